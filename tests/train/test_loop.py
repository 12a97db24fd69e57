"""The loop: it learns, it can be stopped and continued, and what it is told twice must agree."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from gpt2lib.config import GPT2Config
from gpt2lib.data import Dataset, TokenStream, load_corpus
from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW, clip_scale, cosine_schedule
from gpt2lib.tokenizer import BPE
from gpt2lib.train import TrainConfig, Trainer, evaluate, open_checkpoint, read_log, windows


def state_of(trainer):
    """Everything that training changes, to be compared bit by bit."""
    optimizer = trainer.optimizer
    flat = (optimizer.parameters.flat, optimizer.m.flat, optimizer.v.flat)
    return [array.copy() for array in flat], optimizer.t, trainer.batches.state()


def assert_equal(one, other):
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_array_equal(a, b)
    assert one[1:] == other[1:]


def losses(trainer):
    return [(r["step"], r["loss"], r["learning_rate"]) for r in trainer.history]


# ----------------------------------------------------------------------------- it learns


def test_the_loop_is_the_one_of_the_book(dataset, small_model, settings):
    """Batch, loss, backward, clip, rate, step: written out once more, the same to the last bit."""
    c = settings()
    trainer = Trainer(small_model(), dataset, c)
    trainer.run(progress=False)
    model = small_model()
    adam = AdamW(model.parameters, betas=c.betas, eps=c.eps, weight_decay=c.weight_decay)
    batches = Trainer(small_model(), dataset, c).batches
    for step in range(c.steps):
        ids, targets = batches.next()
        assert trainer.history[step]["loss"] == model.loss(ids, targets)
        model.zero_gradients()
        model.backward()
        scale, norm = clip_scale(model.gradients, c.clip)
        rate = cosine_schedule(
            step,
            max_rate=c.learning_rate,
            min_rate=c.learning_rate * c.final_rate,
            warmup=c.warmup,
            steps=c.steps,
        )
        adam.step(model.gradients, rate, scale)
        assert trainer.history[step]["gradient_norm"] == norm
        assert trainer.history[step]["learning_rate"] == rate
    np.testing.assert_array_equal(model.parameters.flat, trainer.model.parameters.flat)


def test_the_loss_falls_from_ln_v(dataset, small_model, settings):
    trainer = Trainer(small_model(), dataset, settings(steps=60, learning_rate=1e-2))
    history = trainer.run(progress=False)
    assert history[0]["loss"] == pytest.approx(np.log(dataset.tokenizer.vocab_size), abs=0.3)
    assert history[-1]["loss"] < history[0]["loss"] - 1
    assert history[-1]["validation_loss"] < history[4]["validation_loss"]
    assert [r["step"] for r in history] == list(range(1, 61))
    assert all("validation_loss" in r and r["floor"] == dataset.floor for r in history[4::5])


def test_exactly_one_shift(settings):
    """On 0, 1, …, 9, 0, 1, … the trained model says what comes next, not what comes after that."""
    tokenizer = BPE([])
    row = np.tile(np.arange(10), 60)
    stream = TokenStream(np.concatenate(([256], row, [256])), 256)
    dataset = Dataset(tokenizer, stream, stream)
    model = GPT2(GPT2Config(257, 16, layers=1, heads=2, channels=32), seed=0)
    Trainer(model, dataset, settings(steps=120, learning_rate=1e-2)).run(progress=False)
    predicted = model.forward(row[:16]).argmax(axis=-1)
    np.testing.assert_array_equal(predicted[2:], (row[:16] + 1)[2:] % 10)


def test_micro_batches_change_nothing_but_rounding(dataset, small_model, settings):
    whole = Trainer(small_model(), dataset, settings())
    cut = Trainer(small_model(), dataset, settings(accumulate=4))
    expected = [r["loss"] for r in whole.run(progress=False)]
    np.testing.assert_allclose([r["loss"] for r in cut.run(progress=False)], expected, rtol=1e-4)


def test_steps_is_a_loop_for_the_caller(dataset, small_model, settings, tmp_path):
    trainer = Trainer(small_model(), dataset, settings(), tmp_path / "run")
    for record in trainer.steps():
        if record["step"] == 6:
            break
    assert trainer.step == 6
    del record
    again = Trainer(small_model(seed=9), dataset, settings(), tmp_path / "run", resume=True)
    assert again.step == 6  # leaving the loop saved, although 6 is no multiple of 4


# --------------------------------------------------------------------------- evaluation


def test_evaluation_uses_no_randomness_of_training(dataset, small_model, settings):
    runs = [
        Trainer(small_model(), dataset, settings(eval_every=every)).run(progress=False)
        for every in (3, 7)
    ]
    assert [r["loss"] for r in runs[0]] == [r["loss"] for r in runs[1]]


def test_evaluate_is_the_mean_over_tokens(dataset, small_model):
    """Against one call over everything; the last batch and the last row are incomplete."""
    model = small_model()
    tokens = dataset.validation.tokens[:150].astype(np.int64)
    ids, targets = windows(tokens, 16)
    assert (targets != -1).sum() == 149  # every token but the first is predicted, once
    np.testing.assert_array_equal(targets[targets != -1], tokens[1:])
    expected = model.loss(ids, targets)
    assert evaluate(model, ids, targets, batch=4) == pytest.approx(expected, rel=1e-6)
    assert evaluate(model, ids, targets, batch=64) == pytest.approx(expected, rel=1e-6)
    first = model.loss(ids[:8], targets[:8])
    assert evaluate(model, ids, targets, batch=4, batches=2) == pytest.approx(first, rel=1e-6)


def test_evaluate_needs_something_to_predict(small_model):
    with pytest.raises(ValueError, match="no target"):
        evaluate(small_model(), np.zeros((2, 4), int), np.full((2, 4), -1))


# ------------------------------------------------------------- stopping and continuing


@pytest.mark.parametrize("stop", [1, 5, 8])
def test_a_continued_run_equals_an_uninterrupted_one_bit_for_bit(
    dataset, small_model, settings, tmp_path, stop
):
    whole = Trainer(small_model(), dataset, settings(), tmp_path / "whole")
    whole.run(progress=False)
    first = Trainer(small_model(), dataset, settings(), tmp_path / "cut")
    first.run(until=stop, progress=False)
    second = Trainer(small_model(seed=99), dataset, settings(), tmp_path / "cut", resume=True)
    assert second.step == stop
    second.run(progress=False)
    assert_equal(state_of(second), state_of(whole))
    assert losses(second) == losses(whole)
    assert [(r["step"], r["loss"]) for r in read_log(tmp_path / "cut")] == [
        (r["step"], r["loss"]) for r in whole.history
    ]


def test_continuing_across_an_epoch(dataset, small_model, settings, tmp_path):
    """24 rows of 16 make 6 batches an epoch: the order of the second epoch is drawn, not copied."""
    part = TokenStream(dataset.train.tokens[: 24 * 16 + 1], dataset.train.end_of_text)
    little = Dataset(dataset.tokenizer, part, dataset.validation)
    whole = Trainer(small_model(), little, settings(steps=16))
    assert whole.batches.batches_per_epoch == 6
    whole.run(progress=False)
    Trainer(small_model(), little, settings(steps=16), tmp_path).run(until=8, progress=False)
    second = Trainer(small_model(seed=1), little, settings(steps=16), tmp_path, resume=True)
    second.run(progress=False)
    assert_equal(state_of(second), state_of(whole))


def test_lines_of_steps_that_a_kill_has_undone_are_cut(dataset, small_model, settings, tmp_path):
    """Killed after step 10 in the middle of a line, with the checkpoint of step 8."""
    trainer = Trainer(small_model(), dataset, settings(), tmp_path / "run")
    trainer.run(until=8, progress=False)
    shutil.copytree(tmp_path / "run", tmp_path / "killed")
    trainer.run(until=10, progress=False)
    ten = (tmp_path / "run" / "log.jsonl").read_bytes()
    (tmp_path / "killed" / "log.jsonl").write_bytes(ten + b'{"step": 11, "lo')
    again = Trainer(small_model(), dataset, settings(), tmp_path / "killed", resume=True)
    assert [r["step"] for r in again.history] == list(range(1, 9))
    again.run(progress=False)
    assert [r["step"] for r in read_log(tmp_path / "killed")] == list(range(1, 13))


def test_a_finished_run_has_nothing_left_to_do(dataset, small_model, settings, tmp_path):
    Trainer(small_model(), dataset, settings(), tmp_path).run(progress=False)
    again = Trainer(small_model(), dataset, settings(), tmp_path, resume=True)
    before = state_of(again)
    assert len(again.run(progress=False)) == 12
    assert_equal(state_of(again), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 13}, "steps was 12 and is 13"),
        ({"batch": 8}, "batch was 4 and is 8"),
        ({"learning_rate": 1e-4}, "learning_rate was 0.003 and is 0.0001"),
        ({"betas": (0.9, 0.9)}, "betas was"),
        ({"seed": 1, "aligned": True}, "aligned was False and is True now; seed was 0 and is 1"),
    ],
)
def test_contradicting_settings_are_refused(
    dataset, small_model, settings, tmp_path, change, message
):
    Trainer(small_model(), dataset, settings(), tmp_path).run(until=2, progress=False)
    with pytest.raises(ValueError, match=message):
        Trainer(small_model(), dataset, settings(**change), tmp_path, resume=True)


def test_settings_that_change_no_weight_may_change(dataset, small_model, settings, tmp_path):
    Trainer(small_model(), dataset, settings(), tmp_path).run(until=2, progress=False)
    free = settings(eval_every=1, eval_batches=1, checkpoint_every=100)
    assert Trainer(small_model(), dataset, free, tmp_path, resume=True).step == 2


def test_other_data_or_another_tokenizer_are_refused(dataset, small_model, settings, tmp_path):
    Trainer(small_model(), dataset, settings(), tmp_path).run(until=2, progress=False)
    tokens = dataset.train.tokens.copy()
    tokens[100] = (tokens[100] + 1) % 250
    other = Dataset(
        dataset.tokenizer, TokenStream(tokens, dataset.train.end_of_text), dataset.validation
    )
    with pytest.raises(ValueError, match="the corpus has other tokens"):
        Trainer(small_model(), other, settings(), tmp_path, resume=True)
    corpus = load_corpus("stories", documents=40)
    foreign = Dataset.from_corpus(corpus, BPE.train(corpus.train[:5], 300))
    with pytest.raises(ValueError, match="tokenizer is another one"):
        Trainer(small_model(), foreign, settings(), tmp_path, resume=True)


def test_a_model_of_another_shape_is_refused(dataset, small_model, settings, tmp_path):
    Trainer(small_model(), dataset, settings(), tmp_path).run(until=2, progress=False)
    wide = GPT2(GPT2Config(dataset.tokenizer.vocab_size, 32, 2, 2, 32), seed=0)
    with pytest.raises(ValueError, match="the model is"):
        Trainer(wide, dataset, settings(), tmp_path, resume=True)


def test_another_backend_may_continue_and_says_so(
    dataset, small_model, settings, tmp_path, monkeypatch
):
    Trainer(small_model(), dataset, settings(), tmp_path).run(until=2, progress=False)
    monkeypatch.setattr("gpt2lib.train.loop.backend_name", lambda model: "numba")
    again = Trainer(small_model(), dataset, settings(), tmp_path, resume=True)
    assert "began with the numpy backend and goes on with numba" in again.notes[0]


# ------------------------------------------------------------------- folders and files


def test_a_folder_that_holds_a_run_is_not_overwritten(dataset, small_model, settings, tmp_path):
    Trainer(small_model(), dataset, settings(), tmp_path).run(until=2, progress=False)
    with pytest.raises(ValueError, match="already holds a run: continue it with --resume"):
        Trainer(small_model(), dataset, settings(), tmp_path)


def test_resuming_nothing_is_refused(dataset, small_model, settings, tmp_path):
    with pytest.raises(ValueError, match=r"holds no checkpoint\.safetensors"):
        Trainer(small_model(), dataset, settings(), tmp_path / "empty", resume=True)
    assert not (tmp_path / "empty").exists()


def folders(tmp_path):
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    link = tmp_path / "dangling"
    link.symlink_to(tmp_path / "nowhere" / "at" / "all")
    return ["/proc/x", file, file / "below", link, tmp_path / ("x" * 300)]


@pytest.mark.parametrize("which", range(5))
def test_a_folder_that_cannot_be_is_refused_before_the_first_step(
    dataset, small_model, settings, tmp_path, which
):
    out = folders(tmp_path)[which]
    with pytest.raises(ValueError, match="cannot be kept in"):
        Trainer(small_model(), dataset, settings(), out)


def test_odd_names_of_folders_work(dataset, small_model, settings, tmp_path):
    out = tmp_path / "größe 日本" / "a b"
    trainer = Trainer(small_model(), dataset, settings(), out)
    trainer.run(progress=False)
    assert {p.name for p in out.iterdir()} == {
        "log.jsonl",
        "checkpoint.safetensors",
        "model.safetensors",
    }
    assert f'--resume --out "{out}"' in trainer.interrupted()


def test_what_a_kill_in_a_save_left_behind_is_swept(dataset, small_model, settings, tmp_path):
    Trainer(small_model(), dataset, settings(), tmp_path).run(until=2, progress=False)
    (tmp_path / ".checkpoint.safetensors.abc123.part").write_bytes(b"half")
    Trainer(small_model(), dataset, settings(), tmp_path, resume=True)
    assert not list(tmp_path.glob("*.part"))
    assert not list(tmp_path.glob(".*.part"))


def test_too_little_space_is_said_before_the_first_step(
    dataset, small_model, settings, tmp_path, monkeypatch
):
    monkeypatch.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(ValueError, match="two checkpoints need"):
        Trainer(small_model(), dataset, settings(), tmp_path)


def test_a_vocabulary_that_is_too_small_is_refused(dataset, settings):
    model = GPT2(GPT2Config(200, 32, 1, 1, 8), seed=0)
    with pytest.raises(ValueError, match="the model a vocabulary of 200"):
        Trainer(model, dataset, settings())


def test_a_sequence_beyond_the_context_is_refused(dataset, small_model, settings):
    with pytest.raises(ValueError, match="33 tokens does not fit"):
        Trainer(small_model(), dataset, settings(seq=33))


@pytest.mark.parametrize(
    "bad",
    [
        {"steps": 0},
        {"batch": 0},
        {"batch": 2.0},
        {"seq": -1},
        {"learning_rate": 0},
        {"final_rate": 1.5},
        {"warmup": -1},
        {"accumulate": 3},
        {"eval_every": -1},
        {"checkpoint_every": True},
    ],
)
def test_impossible_settings_are_refused_by_name(settings, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        settings(**bad)


def test_settings_survive_json(settings):
    config = settings(clip=None, learning_rate=0.1 + 0.2)
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_infinite_gradients_leave_the_last_good_weights(dataset, small_model, settings, tmp_path):
    trainer = Trainer(small_model(), dataset, settings(), tmp_path)
    trainer.run(until=4, progress=False)
    trainer.model.parameters["wte"][5] = np.inf
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="no step was made"):
        trainer.run(progress=False)
    assert open_checkpoint(Path(tmp_path) / "checkpoint.safetensors").state["step"] == 4
