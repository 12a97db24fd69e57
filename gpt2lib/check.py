"""Gradient checks: what the backward says, against what the loss does.

A derivative says how much the loss moves when one parameter moves. So move it, a little to each
side, and look. That needs two forwards a parameter, far too slow to train with, but it shares
nothing with the backward: where both agree to many digits, the backward is right.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpt2lib.backend import load_backend
from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.ops._shapes import Array
from gpt2lib.parameters import Parameters

TOLERANCE = 1e-6
EPSILON = 1e-5


@dataclass(frozen=True)
class Row:
    """One tensor's comparison.

    Attributes
    ----------
    tensor
        Its name; for ``wte`` also which of its rows.
    size, checked
        How many numbers it has, and how many were moved one by one.
    analytic, numeric
        Backward's value and the finite difference, where they differ most.
    error
        Largest difference, relative to the largest gradient among those compared.
    tolerance
        The largest error that passes.
    """

    tensor: str
    size: int
    checked: int
    analytic: float
    numeric: float
    error: float
    tolerance: float = TOLERANCE

    @property
    def ok(self) -> bool:
        """Whether the error is within the tolerance (NaN is not)."""
        return self.error <= self.tolerance


@dataclass(frozen=True, repr=False)
class Report:
    """All rows of a check; prints as a table.

    Attributes
    ----------
    title
        What was checked, and how.
    rows
        One a tensor.
    """

    title: str
    rows: list[Row] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every row is."""
        return all(row.ok for row in self.rows)

    @property
    def failed(self) -> list[str]:
        """The tensors whose gradient is wrong."""
        return [row.tensor for row in self.rows if not row.ok]

    @property
    def worst(self) -> float:
        """The largest error of all rows; infinite where a gradient is not finite."""
        return max((row.error for row in self.rows), default=0.0)

    def __getitem__(self, tensor: str) -> Row:
        for row in self.rows:
            if row.tensor == tensor:
                return row
        raise KeyError(tensor)

    def __str__(self) -> str:
        width = max([len(row.tensor) for row in self.rows] + [6])
        lines = [
            self.title,
            f"{'tensor':{width}} {'checked':>8} {'of':>9} {'analytic':>14} {'numeric':>14} "
            f"{'rel. error':>10}  verdict",
        ]
        lines += [
            f"{row.tensor:{width}} {row.checked:8,} {row.size:9,} {row.analytic:14.6e} "
            f"{row.numeric:14.6e} {row.error:10.1e}  {'ok' if row.ok else 'WRONG'}"
            for row in self.rows
        ]
        good = len(self.rows) - len(self.failed)
        end = f"{good} of {len(self.rows)} agree; the largest relative error is {self.worst:.1e}."
        return "\n".join([*lines, end])

    __repr__ = __str__


# ------------------------------------------------------------------------- the comparison


def central_difference(
    loss: Callable[[], float], x: Array, direction: Array | int, epsilon: float = EPSILON
) -> float:
    r"""Return the derivative of ``loss`` along a direction, measured.

    .. math:: \frac{L(x + \varepsilon d) - L(x - \varepsilon d)}{2 \varepsilon}

    To both sides, since then the error shrinks with :math:`\varepsilon^2`; to one side only with
    :math:`\varepsilon`.

    Parameters
    ----------
    loss
        Computes L; it must read ``x``.
    x
        A contiguous array, changed and put back.
    direction
        An array of the shape of ``x``, or the flat index of a single entry.
    epsilon
        The step. Too large and the loss bends within it, too small and its digits run out: see
        :func:`epsilon_sweep`.
    """
    flat = x.reshape(-1)
    where = direction if isinstance(direction, int) else slice(None)
    step = epsilon * (1.0 if isinstance(direction, int) else direction.reshape(-1))
    kept = flat[where].copy()
    try:
        flat[where] = kept + step
        above = loss()
        flat[where] = kept - step
        below = loss()
    finally:
        flat[where] = kept
    return (above - below) / (2 * epsilon)


def compare(tensor: str, size: int, analytic: Array, numeric: Array, tolerance: float) -> Row:
    """Return the row of one tensor, from its gradients at the entries that were checked.

    The error is relative to the largest gradient of the tensor. Entry by entry it would say nothing
    where a gradient is 0, or so small that rounding is all that a finite difference sees.
    """
    difference = np.abs(analytic - numeric)
    difference[~np.isfinite(difference)] = np.inf
    at = int(difference.argmax())
    scale = max(float(np.abs(analytic).max()), float(np.abs(numeric).max()))
    if not math.isfinite(difference[at]):
        error = math.inf
    else:
        error = float(difference[at]) / scale if scale else 0.0
    return Row(
        tensor, size, len(analytic), float(analytic[at]), float(numeric[at]), error, tolerance
    )


def check_tensor(
    tensor: str,
    loss: Callable[[], float],
    x: Array,
    gradient: Array,
    *,
    among: Array | None = None,
    samples: int | None = None,
    rng: np.random.Generator | None = None,
    epsilon: float = EPSILON,
    tolerance: float = TOLERANCE,
) -> Row:
    """Compare one tensor's gradient with finite differences.

    Parameters
    ----------
    tensor
        Its name in the report.
    loss
        Computes the loss, reading ``x``.
    x, gradient
        The tensor and its gradient by the backward.
    among
        Flat indices of the entries to look at; by default all.
    samples
        How many entries to move one by one: half of them (at least one) those with the largest
        gradient, half drawn. Then all entries move once together, in a random direction, so that
        a fault in any of them shows. None moves every entry.
    rng
        Draws the sample.
    epsilon, tolerance
        The step, and the largest relative error that passes.
    """
    rng = np.random.default_rng(rng)
    among = np.arange(x.size) if among is None else among
    flat = gradient.reshape(-1)
    chosen = _sample(np.abs(flat[among]), samples, rng)
    entries = among[chosen]
    numeric = np.array([central_difference(loss, x, int(i), epsilon) for i in entries])
    row = compare(tensor, len(among), flat[entries], numeric, tolerance)
    if len(entries) == len(among) or not row.ok:
        return row
    # A unit vector: the step is as long as for one entry. Its derivative is of the order of the
    # gradient's root mean square, by which the error is judged.
    direction = np.zeros(x.size)
    direction[among] = rng.choice([-1.0, 1.0], len(among)) / math.sqrt(len(among))
    together = central_difference(loss, x, direction, epsilon)
    expected = float(flat[among] @ direction[among])
    scale = max(float(np.sqrt(np.mean(flat[among] ** 2))), abs(together))
    error = abs(expected - together) / scale if scale else 0.0
    if not error <= row.error:
        return Row(tensor, len(among), len(entries), expected, together, error, tolerance)
    return row


def _sample(magnitude: Array, samples: int | None, rng: np.random.Generator) -> Array:
    """Return which entries to check: half the largest, half drawn from the others."""
    size = len(magnitude)
    if samples is None or samples >= size:
        return np.arange(size)
    top = np.argsort(magnitude)[::-1][: max(1, samples // 2)]
    rest = np.setdiff1d(np.arange(size), top)
    return np.concatenate([top, rng.choice(rest, samples - len(top), replace=False)])


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS on one thread: in matrices as small as these its threads only wait for each other.

    On a busy machine that makes a check many times faster. Without threadpoolctl (in a browser,
    say) nothing happens.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with threadpool_limits(1, user_api="blas"):
        yield


# ------------------------------------------------------------------------- the whole model


def check_gradients(
    model: GPT2 | GPT2Config,
    *,
    ids: Any = None,
    targets: Any = None,
    samples: int | None = 6,
    epsilon: float = EPSILON,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    backend: str = "numpy",
    head_mask: Any = None,
    ablation: str = "zero",
    head_means: Array | None = None,
) -> Report:
    """Compare every parameter tensor's gradient with finite differences, in float64.

    ``wte`` has four rows in the report. It is used twice, to look tokens up and to score them, and
    its gradient has a part from each use: tokens that occur as input get both, all others only
    the second.

    Parameters
    ----------
    model
        A model, whose parameters are copied and not touched; or a configuration, for parameters
        drawn so that no gradient is too small to be measured.
    ids, targets
        (B, T); by default short texts in which tokens repeat and one target is ignored.
    samples
        Entries to move in each tensor, as in :func:`check_tensor`; None for all.
    epsilon, tolerance
        The step, and the largest relative error that passes.
    seed
        For whatever is drawn.
    backend
        For a configuration: who computes.
    head_mask, ablation, head_means
        As in :meth:`GPT2.loss`. With a mask, its gradient is checked too.

    Returns
    -------
    Report
        One row a tensor.

    Raises
    ------
    ValueError
        When only one of ``ids`` and ``targets`` is given, or ``samples`` is below 1.
    """
    if (ids is None) != (targets is None):
        raise ValueError("give both ids and targets, or neither.")
    if samples is not None and samples < 1:
        raise ValueError(f"at least one entry of each tensor must be checked, got {samples}.")
    rng = np.random.default_rng(seed)
    copy = in_float64(model, rng, backend)
    if ids is None:
        ids, targets = example_batch(copy.config, rng)
    mask = None if head_mask is None else np.array(head_mask, np.float64)

    def loss() -> float:
        return copy.loss(ids, targets, head_mask=mask, ablation=ablation, head_means=head_means)

    report = Report(f"central differences in float64, step {epsilon:g}, tolerance {tolerance:g}")

    def check(label: str, x: Array, gradient: Array, among: Array | None = None) -> None:
        row = check_tensor(
            label,
            loss,
            x,
            gradient,
            among=among,
            samples=samples,
            rng=rng,
            epsilon=epsilon,
            tolerance=tolerance,
        )
        report.rows.append(row)

    with one_blas_thread():
        gradients = analytic_gradients(copy, loss, rng)
        of_mask = copy.head_mask_gradient  # kept here: the next loss begins a new one
        for label, name, among in _parts(copy, np.asarray(ids), np.asarray(targets)):
            check(label, copy.parameters[name], gradients[name], among)
        if mask is not None and of_mask is not None:
            check("head_mask", mask, of_mask)
    return report


def analytic_gradients(
    model: GPT2, loss: Callable[[], float], rng: np.random.Generator
) -> Parameters:
    """Return the gradients by the backward, in conditions that a wrong one does not survive.

    A backward runs before, so that its scratch buffers are dirty; and the gradients hold other
    numbers already, which are taken off afterwards: backward must add to them, not overwrite.
    """
    loss()
    model.backward()
    before = rng.standard_normal(model.parameters.flat.shape) * 0.1
    model.gradients.flat[...] = before
    loss()
    model.backward()
    return Parameters(model.config, np.float64, model.gradients.flat - before)


def in_float64(model: GPT2 | GPT2Config, rng: np.random.Generator, backend: str = "numpy") -> GPT2:
    """Return a float64 copy of a model, or a model with parameters that suit a check.

    At GPT-2's own starting point many gradients are tiny (the attention hardly prefers any token,
    so its queries and keys hardly matter). Here the weights keep each layer's output at the size
    of its input, and gains and biases are random too.
    """
    if isinstance(model, GPT2):
        copy = type(model)(model.config, parameters=model.parameters.astype(np.float64))
        copy.ops = model.ops
        return copy
    parameters = Parameters(model, np.float64)
    for name, view in parameters.items():
        if view.ndim == 1:
            start = 1.0 if name.endswith("weight") else 0.0
            view[...] = start + 0.2 * rng.standard_normal(view.shape)
        else:
            width = view.shape[1] if name in ("wte", "wpe") else view.shape[0]
            view[...] = rng.standard_normal(view.shape) / math.sqrt(width)
    copy = GPT2(model, parameters=parameters)
    copy.ops = load_backend(backend)
    return copy


def example_batch(
    config: GPT2Config, rng: np.random.Generator, batch: int = 2, seq: int = 6
) -> tuple[Array, Array]:
    """Return ids and targets (B, T) that put every token of the vocabulary in one of four roles.

    Each row is a text: one token begins it and occurs nowhere else (input only), one ends it
    (target only), a few in the middle are both, again and again; at least one is in no text. One
    target is ignored.
    """
    T = min(seq, config.context)
    order = rng.permutation(config.vocab_size)
    middle = order[2:-1][: max(1, batch * (T - 1) // 2)]
    if len(middle) == 0:  # fewer than four tokens: not every role can be filled
        middle = order
    text = rng.choice(middle, (batch, T + 1))
    text[:, 0], text[:, -1] = order[0], order[min(1, len(order) - 1)]
    ids, targets = text[:, :-1].copy(), text[:, 1:].copy()
    if T > 2:
        targets[0, T // 2] = -1
    return ids, targets


def _parts(model: GPT2, ids: Array, targets: Array) -> Iterator[tuple[str, str, Array | None]]:
    """Yield a label, a tensor's name and the entries of it, for each row of the report."""
    C, tokens = model.config.channels, np.arange(model.config.vocab_size)
    read, wanted = np.isin(tokens, ids), np.isin(tokens, targets)
    for role, chosen in (
        ("input only", read & ~wanted),
        ("target only", wanted & ~read),
        ("both", read & wanted),
        ("neither", ~read & ~wanted),
    ):
        if chosen.any():
            entries = np.flatnonzero(chosen)[:, None] * C + np.arange(C)
            yield f"wte ({role})", "wte", entries.reshape(-1)
    for name in model.parameters:
        if name != "wte":
            yield name, name, None


# ------------------------------------------------------------------------- the step


@dataclass(frozen=True)
class Sweep:
    """How well finite differences do, step by step.

    Attributes
    ----------
    tensor
        Whose gradient was measured.
    epsilons
        The steps.
    errors
        For each of float32 and float64, the error at each step: the norm of the difference over
        the norm of the gradient.
    """

    tensor: str
    epsilons: Array
    errors: dict[str, Array]

    def best(self, dtype: str) -> float:
        """Return the step with the least error."""
        return float(self.epsilons[int(np.argmin(self.errors[dtype]))])


def epsilon_sweep(
    model: GPT2 | GPT2Config,
    *,
    tensor: str = "h.0.mlp.c_fc.weight",
    epsilons: Sequence[float] | None = None,
    entries: int = 8,
    seed: int = 0,
    backend: str = "numpy",
) -> Sweep:
    r"""Measure the error of central differences over the step, in float32 and in float64.

    Drawn with both axes logarithmic it is a V. On the right the loss bends within the step, an
    error that grows with :math:`\varepsilon^2`; on the left the two losses differ only in their
    last digits, an error that grows with :math:`1/\varepsilon`. float32 runs out of digits so
    early that its best step is poor: that is why gradients are checked in float64.

    Parameters
    ----------
    model
        As in :func:`check_gradients`.
    tensor
        Whose gradient to measure.
    epsilons
        The steps; by default three a decade, from 1 down to 1e-12.
    entries
        How many entries of the tensor to move, those with the largest gradient.
    seed, backend
        As in :func:`check_gradients`.
    """
    steps = np.logspace(0, -12, 37) if epsilons is None else np.asarray(epsilons, np.float64)
    rng = np.random.default_rng(seed)
    exact = in_float64(model, rng, backend)
    ids, targets = example_batch(exact.config, rng)
    truth = analytic_gradients(exact, lambda: exact.loss(ids, targets), rng)[tensor].reshape(-1)
    where = np.argsort(np.abs(truth))[::-1][:entries]
    errors = {}
    for dtype in (np.float32, np.float64):
        copy = GPT2(exact.config, parameters=exact.parameters.astype(dtype))
        copy.ops = exact.ops

        def loss(copy: GPT2 = copy) -> float:
            return copy.loss(ids, targets)

        x = copy.parameters[tensor]
        with one_blas_thread():
            measured = np.array(
                [[central_difference(loss, x, int(i), float(eps)) for i in where] for eps in steps]
            )  # (steps, entries)
        off = np.linalg.norm(measured - truth[where], axis=1)
        errors[np.dtype(dtype).name] = off / np.linalg.norm(truth[where])
    return Sweep(tensor, steps, errors)
