"""A checkpoint is whole at any moment, or it is refused."""

import os
import random
import signal
import time

import numpy as np
import pytest

from gpt2lib.config import GPT2Config
from gpt2lib.optimizer import AdamW
from gpt2lib.parameters import Parameters
from gpt2lib.train import Trainer, open_checkpoint, save_checkpoint
from gpt2lib.train.checkpoint import restore_optimizer
from gpt2lib.weights import TensorFile, load_model, save_model
from gpt2lib.weights.digest import write_sealed

CONFIG = GPT2Config(vocab_size=101, context=16, layers=2, heads=2, channels=32)
STATE = dict.fromkeys(("settings", "batches", "data", "tokenizer", "corpus", "seconds", "backend"))


def optimizer_at(step):
    """An optimizer whose every number tells the step it is of."""
    adam = AdamW(Parameters(CONFIG))
    for offset, part in enumerate((adam.parameters, adam.m, adam.v)):
        part.flat[:] = step + offset / 4
    adam.t = step
    return adam


def save_at(path, step):
    save_checkpoint(path, optimizer_at(step), {**STATE, "step": step})


def save_for_ever(path):
    step = 1
    while True:
        save_at(path, step)
        step += 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_sigkill_at_random_moments_of_saving(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    save_at(path, 0)
    chance, seen = random.Random(5), set()
    for _ in range(20):
        child = os.fork()
        if child == 0:  # saves until it is killed; never comes back into pytest
            try:
                save_for_ever(path)
            finally:
                os._exit(1)
        time.sleep(chance.uniform(0.005, 0.12))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        checkpoint = open_checkpoint(path)
        step = checkpoint.state["step"]
        adam = AdamW(Parameters(CONFIG))
        restore_optimizer(checkpoint, adam)
        assert adam.t == step
        assert (adam.parameters.flat == step).all()
        assert (adam.m.flat == step + 0.25).all()
        assert (adam.v.flat == step + 0.5).all()
        seen.add(step)
    assert len(seen) > 1  # some of the kills did come after a save


def test_a_model_can_be_read_from_a_checkpoint(tmp_path):
    save_at(tmp_path / "c", 3)
    model = load_model(tmp_path / "c")
    assert (model.parameters.flat == 3).all()


def test_the_checkpoint_holds_weights_and_two_means(tmp_path):
    save_at(tmp_path / "c", 3)
    file = TensorFile(tmp_path / "c")
    names = set(Parameters(CONFIG))
    assert set(file) == names | {f"m.{n}" for n in names} | {f"v.{n}" for n in names}


def test_a_flipped_bit_is_refused_with_file_place_and_remedy(
    dataset, small_model, settings, tmp_path
):
    Trainer(small_model(), dataset, settings(), tmp_path).run(until=2, progress=False)
    path = tmp_path / "checkpoint.safetensors"
    whole = path.read_bytes()
    chance = random.Random(1)
    for place in [0, 8, 30, *(chance.randrange(len(whole)) for _ in range(40)), len(whole) - 1]:
        broken = bytearray(whole)
        broken[place] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"checkpoint\.safetensors.*train again"):
            Trainer(small_model(), dataset, settings(), tmp_path, resume=True)


@pytest.mark.parametrize("lost", ["m.wte", "v.h.1.ln_2.bias", "h.0.attn.c_attn.weight"])
def test_a_state_that_lacks_a_tensor_is_refused(dataset, small_model, settings, tmp_path, lost):
    Trainer(small_model(), dataset, settings(), tmp_path).run(until=2, progress=False)
    path = tmp_path / "checkpoint.safetensors"
    file = TensorFile(path)
    tensors = {name: file[name].copy() for name in file if name != lost}
    write_sealed(path, tensors, {k: v for k, v in file.metadata.items() if k != "sha256"})
    with pytest.raises(ValueError, match=f"no tensor '{lost}'"):
        Trainer(small_model(), dataset, settings(), tmp_path, resume=True)


def test_weights_alone_are_no_checkpoint(dataset, small_model, settings, tmp_path):
    save_model(tmp_path / "checkpoint.safetensors", small_model())
    with pytest.raises(ValueError, match="without AdamW's state"):
        Trainer(small_model(), dataset, settings(), tmp_path, resume=True)


def test_a_state_that_lacks_a_part_is_refused(tmp_path):
    save_checkpoint(tmp_path / "c", optimizer_at(1), {"step": 1})
    with pytest.raises(ValueError, match="has no settings, batches"):
        open_checkpoint(tmp_path / "c")


def test_a_save_that_fails_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    save_at(tmp_path / "c", 1)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpt2lib.weights.digest.write_in_place", full)
    with pytest.raises(OSError, match="No space"):
        save_at(tmp_path / "c", 2)
    assert open_checkpoint(tmp_path / "c").state["step"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_shapes_must_agree(tmp_path):
    save_at(tmp_path / "c", 1)
    other = AdamW(Parameters(GPT2Config(101, 16, 2, 4, 32)))  # same tensors, other heads
    with pytest.raises(ValueError, match="the model is"):
        restore_optimizer(open_checkpoint(tmp_path / "c"), other)
    np.testing.assert_array_equal(other.parameters.flat, 0)
