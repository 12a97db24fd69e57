import numpy as np
import pytest

import gpt2lib
from gpt2lib.exercises import ch10
from gpt2lib.perf.operations import work

P = gpt2lib.GPT2Config.preset("gpt2").parameter_count


def says(capsys, mark):
    text = capsys.readouterr().out
    assert mark in text
    return text


def steps_of_arrays(M, K, N):
    """Read the answer off real arrays: their strides, in numbers."""
    arrays = {"a": np.empty((M, K)), "b": np.empty((K, N)), "out": np.empty((M, N))}
    indices = {"a": "ik", "b": "kj", "out": "ij"}
    return {
        loop: tuple(
            dict(zip(indices[n], x.strides, strict=True)).get(loop, 0) // x.itemsize
            for n, x in arrays.items()
        )
        for loop in "ijk"
    }


def test_strides(capsys):
    right = steps_of_arrays(4, 5, 6)
    assert ch10.check_strides(right, shape=(4, 5, 6)) is True
    says(capsys, "✓")
    assert ch10.check_strides({k: list(v) for k, v in right.items()}, shape=(4, 5, 6)) is True
    capsys.readouterr()
    transposed = {"i": (1, 0, 1), "j": (0, 5, 4), "k": (4, 1, 0)}
    for wrong in (
        transposed,
        right | {"k": (1, 5, 0)},
        right | {"i": (5, 0, 5)},
        right | {"j": (0, 1)},
        right | {"j": "011"},
        right | {"j": ("0", "1", "1")},
        {"i": (5, 0, 6)},
        [5, 0, 6],
    ):
        assert ch10.check_strides(wrong, shape=(4, 5, 6)) is False
        says(capsys, "✗")
    open_ = dict.fromkeys("ijk", (..., ..., ...))
    assert ch10.check_strides(open_, shape=(4, 5, 6)) is False
    says(capsys, "…")


def test_tile(capsys):
    assert ch10.check_tile(208, cache=1 << 20) is True
    assert ch10.check_tile(144, cache=512 << 10) is True
    says(capsys, "✓")
    for wrong, hint in (
        (224, "bytes"),  # 588 KiB in half a MiB
        (192, "so would"),
        (209, "multiple"),
        (296, "multiple"),
        (288, "bytes"),  # the whole cache
        (0, "bytes"),
        (-208, "bytes"),
        ("208", "multiple"),
        (float("nan"), "multiple"),
        ([208], "multiple"),
    ):
        assert ch10.check_tile(wrong, cache=1 << 20) is False
        assert hint in says(capsys, "✗"), wrong


def test_gelu_agrees_with_the_library(capsys):
    counted = work("gelu_forward", (np.empty((256, 3072), np.float32),))
    alone = counted.flops / counted.bytes
    assert ch10.check_gelu(alone, np.empty((256, 3072), np.float32).nbytes) is True
    says(capsys, "✓")
    for wrong in ((9 / 4, 3145728), (9, 3145728), (9 / 8, 6291456), (9 / 8, 786432), ("x", 1)):
        assert ch10.check_gelu(*wrong) is False
        says(capsys, "✗")


def test_adamw_agrees_with_the_library(capsys):
    x = np.empty(1000, np.float32)
    each = work("adamw_update", (x, x, x, x)).bytes / x.size
    moved, given = each * P, {"parameters": P, "bandwidth": 12.5}
    assert ch10.check_adamw(moved, moved / 12.5e6, **given) is True
    says(capsys, "✓")
    for wrong in (
        (moved / 4, 1.0),
        (moved / 28 * 32, moved / 12.5e6),
        (moved, moved / 12.5e9),  # seconds
        (moved, moved / 12.5e3),
        ("much", "long"),
    ):
        assert ch10.check_adamw(*wrong, **given) is False
        says(capsys, "✗")


def intensity(rows, inputs, outputs):
    x, w = np.empty((rows, inputs), np.float32), np.empty((inputs, outputs), np.float32)
    counted = work("linear_forward", (x, w, np.empty(0, np.float32)))
    return counted.flops / (counted.bytes - 4 * outputs)  # without the bias


@pytest.mark.parametrize("ridge", [0.3, 4.7, 21.0, 130.0])
def test_rows(ridge, capsys):
    enough = 1
    while intensity(enough, 768, 3072) < ridge:
        enough += 1
    assert ch10.check_rows(intensity, enough, ridge=ridge) is True
    says(capsys, "✓")
    for wrong in (enough + 1, enough - 1, "ten", -3):
        assert ch10.check_rows(intensity, wrong, ridge=ridge) is False
        says(capsys, "✗")


def test_rows_of_a_wrong_intensity(capsys):
    for wrong in (
        lambda n, i, o: n / 2,
        lambda n, i, o: intensity(n, i, o) / 2,  # a multiply-add as one
        lambda n, i, o: intensity(n, i, o) * 4,  # numbers, not bytes
    ):
        assert ch10.check_rows(wrong, 10, ridge=5.0) is False
        says(capsys, "✗")


def test_rows_where_no_number_is_enough(capsys):
    assert ch10.check_rows(intensity, float("inf"), ridge=400.0) is True
    assert ch10.check_rows(intensity, 10_000, ridge=400.0) is False
    says(capsys, "✗")


@pytest.mark.parametrize("blank", [None, ...])
def test_nothing_answered_yet(blank, capsys):
    assert ch10.check_tile(blank, cache=1 << 20) is False
    assert ch10.check_gelu(blank, blank) is False
    assert ch10.check_adamw(blank, blank, parameters=P, bandwidth=10.0) is False
    assert ch10.check_rows(lambda n, i, o: blank, blank, ridge=5.0) is False
    assert ch10.check_rows(intensity, blank, ridge=5.0) is False
    text = capsys.readouterr().out
    assert "✗" not in text
    assert "…" in text
