"""Every backward against finite differences of its forward."""

from __future__ import annotations

import pytest

import gpt2lib.ops
from gpt2lib.opcheck import check_operations, operation_cases


@pytest.mark.parametrize("seed", range(3))
def test_every_argument_of_every_operation(ops, seed):
    report = check_operations(ops, seed=seed, tolerance=1e-8)
    assert report.ok, f"\n{report}"


def test_no_backward_is_left_out():
    tried = {case.name.split(" ")[0] for case in operation_cases(gpt2lib.ops)}
    backwards = {n.removesuffix("_backward") for n in gpt2lib.ops.__all__ if "_backward" in n}
    assert tried == backwards
