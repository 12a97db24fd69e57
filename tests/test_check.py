from __future__ import annotations

import math

import numpy as np
import pytest

from gpt2lib.check import (
    Report,
    Row,
    central_difference,
    check_gradients,
    compare,
    epsilon_sweep,
    example_batch,
)
from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.opcheck import check_operations
from gpt2lib.parameters import parameter_shapes
from tests.backends import BACKENDS, SMALL, one_thread, operations, random_model

__all__ = ["one_thread"]

MICRO = GPT2Config(vocab_size=13, context=7, layers=2, heads=2, channels=4)
ROLES = ["wte (input only)", "wte (target only)", "wte (both)", "wte (neither)"]


def on(backend, config=MICRO):
    return random_model(backend, config, dtype=np.float64)


# ------------------------------------------------------------------------- the whole model


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_entry_of_every_tensor(backend):
    report = check_gradients(on(backend), samples=None)
    assert report.ok, f"\n{report}"
    assert {row.tensor for row in report.rows} == {*ROLES, *parameter_shapes(MICRO)} - {"wte"}
    assert sum(row.checked for row in report.rows) == MICRO.parameter_count


@pytest.mark.parametrize("backend", BACKENDS)
def test_three_layers(backend):
    report = check_gradients(on(backend, SMALL), samples=3)
    assert report.ok, f"\n{report}"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("means", ["zero", "of the batch", "given"])
def test_the_head_mask_and_what_it_lets_through(backend, means):
    rng = np.random.default_rng(0)
    given = rng.standard_normal((2, 2, 2)) if means == "given" else None
    report = check_gradients(
        on(backend),
        samples=2,
        head_mask=[[0.0, 1.3], [0.6, 1.0]],
        ablation="zero" if means == "zero" else "mean",
        head_means=given,
    )
    assert report.ok, f"\n{report}"
    assert report["head_mask"].checked == 2
    assert report["head_mask"].size == 4


def test_gpt2s_own_start():
    # Many gradients are small there; the tolerance is met all the same.
    config = GPT2Config(vocab_size=31, context=8, layers=2, heads=2, channels=16)
    assert check_gradients(GPT2(config, seed=0)).ok


def test_a_float32_model_is_copied_and_left_alone():
    model = random_model("numpy", MICRO)
    before = model.parameters.flat.copy()
    assert check_gradients(model, samples=1).ok
    assert model.parameters.flat.tobytes() == before.tobytes()
    assert model._gradients is None


def test_own_ids_and_targets():
    ids, targets = np.array([[0, 1, 2]]), np.array([[1, 2, 3]])
    report = check_gradients(MICRO, ids=ids, targets=targets, samples=1)
    assert report.ok
    sizes = [report[role].size // 4 for role in ROLES]
    assert sizes == [1, 1, 2, 9]


def test_the_seed_decides():
    first, again, other = (str(check_gradients(MICRO, samples=2, seed=s)) for s in (0, 0, 1))
    assert first == again
    assert first != other


def test_refusals():
    with pytest.raises(ValueError, match="both ids and targets"):
        check_gradients(MICRO, ids=[[1]])
    with pytest.raises(ValueError, match="at least one entry"):
        check_gradients(MICRO, samples=0)
    with pytest.raises(ValueError, match="vocabulary"):
        check_gradients(MICRO, ids=[[99]], targets=[[0]])
    with pytest.raises(ValueError, match=r"'conv'.*layernorm"):
        check_operations(names="conv")


@pytest.mark.parametrize("vocab_size", [1, 2, 3, 4, 5, 300])
@pytest.mark.parametrize("context", [1, 2, 3, 9])
def test_the_examples_roles(vocab_size, context):
    config = GPT2Config(vocab_size, context, 1, 1, 4)
    ids, targets = example_batch(config, np.random.default_rng(0))
    assert ids.shape == targets.shape == (2, min(6, context))
    assert np.isin(ids, np.arange(vocab_size)).all()
    assert (targets == -1).sum() == (context > 2)
    assert (ids[:, 1:] == targets[:, :-1])[targets[:, :-1] >= 0].all()  # shifted by one
    if vocab_size > 3 and context > 2:
        read, wanted = set(ids.flat), set(targets.flat) - {-1}
        for role in (read - wanted, wanted - read, read & wanted):
            assert role
        assert set(range(vocab_size)) - read - wanted


def test_operations_by_name():
    report = check_operations(names=["layernorm", "gelu"])
    assert [row.tensor for row in report.rows] == [
        "layernorm: x",
        "layernorm: weight",
        "layernorm: bias",
        "gelu: x",
    ]
    assert check_operations(operations("numpy"), "head").ok


# ------------------------------------------------------------------------- the parts


def test_central_difference_of_a_cubic():
    # (x + e)³ - (x - e)³ = 6 x² e + 2 e³: the error is e² exactly.
    x = np.array([1.0, 2.0])
    measured = central_difference(lambda: float(x[1] ** 3), x, 1, epsilon=0.1)
    assert measured == pytest.approx(12 + 0.01, rel=1e-12)
    together = central_difference(lambda: float(x @ x), x, np.array([1.0, -1.0]), epsilon=0.1)
    assert together == pytest.approx(2 - 4, rel=1e-12)
    np.testing.assert_array_equal(x, [1, 2])


def test_central_difference_puts_back_what_it_moved():
    x = np.array([1.0, 2.0])

    def fails():
        raise KeyboardInterrupt

    for direction in (0, np.ones(2)):
        with pytest.raises(KeyboardInterrupt):
            central_difference(fails, x, direction)
        np.testing.assert_array_equal(x, [1, 2])


@pytest.mark.parametrize(
    ("analytic", "numeric", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0),
        ([1.0, 2.0], [1.0, 1.0], 0.5),
        ([0.0, 0.0], [0.0, 0.0], 0),
        ([0.0, 0.0], [0.0, 1e-9], 1),
        ([1e-9, 4.0], [0.0, 4.0], 2.5e-10),
        ([np.nan, 1.0], [1.0, 1.0], math.inf),
        ([np.inf, 1.0], [np.inf, 1.0], math.inf),
    ],
)
def test_the_error_is_relative_to_the_largest(analytic, numeric, error):
    with np.errstate(invalid="ignore"):
        row = compare("w", 2, np.array(analytic), np.array(numeric), 1e-6)
    assert row.error == pytest.approx(error)
    assert row.ok == (error <= 1e-6)


def test_the_report_is_a_table_a_reader_understands():
    good = Row("wte", 65_536, 4, 0.25, 0.25, 1e-9)
    bad = Row("h.0.ln_1.bias", 128, 4, 0.25, -0.125, 1.5)
    assert Report("t", [good]).ok
    report = Report("central differences", [good, bad])
    lines = str(report).splitlines()
    assert lines[0] == "central differences"
    for word in ("tensor", "analytic", "numeric", "rel. error", "verdict"):
        assert word in lines[1]
    assert lines[2].split() == [
        "wte", "4", "65,536", "2.500000e-01", "2.500000e-01", "1.0e-09", "ok",
    ]  # fmt: skip
    assert lines[3].endswith("1.5e+00  WRONG")
    assert "1 of 2 agree" in lines[4]
    assert not report.ok
    assert report.failed == ["h.0.ln_1.bias"]
    assert report.worst == 1.5
    assert not Row("w", 1, 1, 0, 0, math.nan).ok


def test_the_sweep_is_a_v_and_float32s_bottom_is_high():
    sweep = epsilon_sweep(MICRO, epsilons=np.logspace(0, -12, 13), entries=4)
    wide, narrow = sweep.errors["float64"], sweep.errors["float32"]
    assert wide.shape == narrow.shape == (13,)
    for errors in (wide, narrow):
        assert errors[0] > 30 * errors.min()  # right: the loss bends within the step
        assert errors[-1] > 30 * errors.min()  # left: the digits run out
    assert wide.min() < 1e-8 < 1e-6 < narrow.min()
    assert 1e-7 < sweep.best("float64") < sweep.best("float32") < 0.5
    # Down the right arm the error falls with the square of the step: a hundred times a decade.
    assert wide[1] / wide[3] == pytest.approx(1e4, rel=0.5)
