from __future__ import annotations

import time

import numpy as np
import pytest

from gpt2lib.config import PRESETS, GPT2Config, divisors_of
from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW
from gpt2lib.parameters import parameter_shapes

# Counted from the released checkpoints' tensors; the paper's table 2 has rounded (and, for the two
# smallest, other) figures.
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_published_parameter_counts(name, count):
    assert GPT2Config.preset(name).parameter_count == count


def test_tiny_is_about_a_million():
    assert 0.7e6 < GPT2Config.preset("tiny").parameter_count < 1.3e6


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_those_of_the_tensors(name):
    config = GPT2Config.preset(name)
    sizes = {n: int(np.prod(shape)) for n, shape in parameter_shapes(config).items()}
    matrices = [n for n, shape in parameter_shapes(config).items() if len(shape) == 2]
    assert sum(sizes.values()) == config.parameter_count
    assert sum(sizes[n] for n in matrices) == config.matrix_parameter_count
    assert config.matmul_parameter_count == config.matrix_parameter_count - sizes["wpe"]


def test_tied_head_counts_once():
    config = GPT2Config.preset("gpt2")
    assert config.parameter_count + config.vocab_size * config.channels == 163_037_184


def test_flops_by_hand():
    # One block, C = 2, V = 3, T = 4: the matrices hold 12·4 + 3·2 numbers; attention is 4·N·T·C.
    config = GPT2Config(vocab_size=3, context=4, layers=1, heads=1, channels=2)
    assert config.forward_flops(1, 4) == 2 * 4 * (48 + 6) + 4 * 4 * 4 * 2
    assert config.training_flops(5, 4) == 3 * 5 * config.forward_flops(1, 4)


@pytest.mark.parametrize(
    "fields",
    [
        {"heads": 4, "channels": 50},
        {"heads": 48, "channels": 1600},
        {"heads": 0, "channels": 64},
        {"heads": -1, "channels": 64},
        {"layers": 0},
        {"vocab_size": 0},
        {"context": -5},
        {"layers": 2.0},
        {"layers": "12"},
        {"layers": True},
        {"layers": None},
    ],
)
def test_refuses_what_cannot_be(fields):
    with pytest.raises(ValueError, match=str(next(iter(fields.values())))):
        GPT2Config(**fields)


def test_refusal_names_both_numbers_and_the_way_out():
    with pytest.raises(ValueError, match=r"4 heads.*50 channels.*1, 2, 5, 10, 25, 50"):
        GPT2Config(channels=50, heads=4)


def test_refusal_of_an_astronomical_width_does_not_hang():
    start = time.monotonic()
    with pytest.raises(ValueError, match="multiple of heads"):
        GPT2Config(channels=2**61 + 1, heads=2)
    assert time.monotonic() - start < 5


def test_numpy_integers_become_plain_ones():
    config = GPT2Config(layers=np.int64(2))
    assert type(config.layers) is int
    assert config == GPT2Config(layers=2)
    assert hash(config) == hash(GPT2Config(layers=2))


def test_dict_round_trip_and_its_refusals():
    config = GPT2Config.preset("tiny", context=64)
    assert GPT2Config.from_dict(config.to_dict()) == config
    with pytest.raises(ValueError, match="missing: heads"):
        GPT2Config.from_dict({k: v for k, v in config.to_dict().items() if k != "heads"})
    with pytest.raises(ValueError, match="unknown: width"):
        GPT2Config.preset("tiny", width=3)
    with pytest.raises(ValueError, match=r"gpt3.*tiny"):
        GPT2Config.preset("gpt3")


def test_lengths():
    config = GPT2Config.preset("tiny")
    config.check_length(128)
    with pytest.raises(ValueError, match=r"129.*128"):
        config.check_length(129)
    with pytest.raises(ValueError, match="at least one token"):
        config.check_length(0)


def test_divisors():
    assert divisors_of(12) == [1, 2, 3, 4, 6, 12]
    assert divisors_of(1) == [1]


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_training_bytes_are_those_of_the_arrays_that_a_step_leaves(backend):
    """Counted anew: every array that model and optimizer refer to after a step, each once."""
    config = GPT2Config.preset("tiny")
    model = GPT2(config, backend=backend)
    optimizer = AdamW(model.parameters)
    ids = np.arange(3 * 10).reshape(3, 10)
    model.loss(ids, ids)
    model.backward()
    optimizer.step(model.gradients)
    held = {}
    parts = model.parameters, model.gradients, optimizer.m, optimizer.v
    for thing in (model, *parts, model._saved()):
        for value in vars(thing).values():
            for array in value if isinstance(value, list | tuple) else [value]:
                if isinstance(array, np.ndarray) and array.dtype == np.float32:
                    owner = array if array.base is None else array.base
                    held[id(owner)] = owner.nbytes
    assert sum(held.values()) == pytest.approx(config.training_bytes(3, 10), rel=0.01)
