r"""Laws of scaling: what p threads give, and what a measurement says of the work.

With :math:`T_p` the time on p threads, the *speedup* is :math:`S(p) = T_1 / T_p` and the
*efficiency* :math:`E(p) = S(p) / p`. The laws below explain S by one number, the *serial part* f:
the share of the work that no second thread can help with. They are models. Threads that share one
memory, wait for each other or get unequal chunks lower S as well, and a fitted f blames all of
that on the serial part.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "AmdahlFit",
    "amdahl",
    "efficiency",
    "fit_amdahl",
    "gustafson",
    "karp_flatt",
    "speedup",
    "wiki",
]


def speedup(sequential: float, parallel: float) -> float:
    r"""Return :math:`S = T_1 / T_p`.

    Parameters
    ----------
    sequential, parallel
        :math:`T_1` and :math:`T_p`, in one unit.

    Raises
    ------
    ValueError
        When a time is not positive and finite.

    Examples
    --------
    >>> round(speedup(35285, 1430), 1)
    24.7
    """
    for name, time in (("sequential", sequential), ("parallel", parallel)):
        if not (0 < time < float("inf")):
            raise ValueError(f"the {name} time must be positive and finite, got {time!r}.")
    return sequential / parallel


def efficiency(gain: float, threads: int) -> float:
    """Return E = S / p: the share of the threads that did something useful.

    Parameters
    ----------
    gain
        S, the speedup.
    threads
        p, at least 1.

    Examples
    --------
    >>> round(efficiency(24.7, 112), 2)
    0.22
    """
    return gain / _threads(threads)


def amdahl(threads: int, serial: float) -> float:
    r"""Return the speedup of one piece of work of a fixed size.

    .. math:: S(p) = \frac{1}{f + (1 - f)/p} \le \frac{1}{f}

    Parameters
    ----------
    threads
        p.
    serial
        f, the share of the one-thread time that stays serial, 0 to 1.

    Raises
    ------
    ValueError
        For fewer than one thread, or a share outside [0, 1].

    Notes
    -----
    Amdahl (1967). The work does not grow with p: *strong* scaling.

    Examples
    --------
    >>> amdahl(4, 0.0), amdahl(4, 1.0), amdahl(2, 0.5)
    (4.0, 1.0, 1.3333333333333333)
    """
    return 1 / (_share(serial) + (1 - serial) / _threads(threads))


def gustafson(threads: int, serial: float) -> float:
    r"""Return the speedup of work that grows with the threads.

    .. math:: S(p) = f + (1 - f)\,p

    Parameters
    ----------
    threads
        p.
    serial
        f, the share of the time *on p threads* that is serial: not Amdahl's share, which is one of
        the time on a single thread.

    Raises
    ------
    ValueError
        For fewer than one thread, or a share outside [0, 1].

    Notes
    -----
    Gustafson (1988). The work grows with p at a constant time: *weak* scaling.

    Examples
    --------
    >>> gustafson(100, 0.1)
    90.1
    """
    return _share(serial) + (1 - serial) * _threads(threads)


def karp_flatt(gain: float, threads: int) -> float:
    r"""Return the serial part that a measured speedup would need, were Amdahl's law all there is.

    .. math:: e = \frac{1/S - 1/p}{1 - 1/p}

    If e is the same at every p, the serial part is to blame; if it grows with p, what costs time
    is what grows with p: waiting, hand-over, shared memory. Above a perfect speedup it is negative.

    Parameters
    ----------
    gain
        S, measured.
    threads
        p, at least 2: one thread says nothing.

    Raises
    ------
    ValueError
        For fewer than two threads, or a speedup that is not positive.

    Notes
    -----
    Karp and Flatt (1990), "the experimentally determined serial fraction".

    Examples
    --------
    >>> round(karp_flatt(amdahl(8, 0.05), 8), 6)
    0.05
    """
    if _threads(threads) < 2:
        raise ValueError("Karp and Flatt's serial part needs at least two threads.")
    if not (0 < gain < float("inf")):
        raise ValueError(f"a speedup must be positive and finite, got {gain!r}.")
    return (1 / gain - 1 / threads) / (1 - 1 / threads)


class AmdahlFit(NamedTuple):
    """Amdahl's law laid through measured times.

    Attributes
    ----------
    serial
        f, between 0 and 1.
    one_thread
        :math:`T_1` of the fitted law, in the unit of the times.
    error
        The largest relative distance between a fitted and a measured time.
    """

    serial: float
    one_thread: float
    error: float


def fit_amdahl(threads: Sequence[int], times: Sequence[float]) -> AmdahlFit:
    r"""Fit Amdahl's law to measured times.

    .. math:: T_p = a + b / p, \qquad f = \frac{a}{a + b}, \qquad a, b \ge 0

    Parameters
    ----------
    threads
        p of each measurement; at least two different ones.
    times
        :math:`T_p`, in any unit.

    Returns
    -------
    AmdahlFit
        The law that has the least squared *relative* error, so that short times count as much as
        long ones.

    Raises
    ------
    ValueError
        For lists of unequal length, fewer than two different p, or times that are not positive.

    Examples
    --------
    >>> fit = fit_amdahl([1, 2, 4], [10.0, 6.0, 4.0])
    >>> round(fit.serial, 6), round(fit.one_thread, 6)
    (0.2, 10.0)
    """
    p = np.array([_threads(n) for n in threads], float)
    t = np.asarray(times, float)
    if t.shape != p.shape:
        raise ValueError(f"there are {p.size} numbers of threads and {t.size} times.")
    if np.unique(p).size < 2:
        raise ValueError("Amdahl's law needs measurements at two numbers of threads or more.")
    if not np.all((t > 0) & np.isfinite(t)):
        raise ValueError("every time must be positive and finite.")
    rows = np.stack([1 / t, 1 / (p * t)], axis=1)  # each row times (a, b) should be 1
    serial, parallel = _nonnegative_least_squares(rows)
    fitted = serial + parallel / p
    error = float(np.max(np.abs(fitted - t) / t))
    return AmdahlFit(serial / (serial + parallel), serial + parallel, error)


def _nonnegative_least_squares(rows: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Return the (a, b), neither negative, for which rows @ (a, b) is closest to all ones."""
    a, b = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0]
    if a >= 0 and b >= 0:
        return float(a), float(b)
    # The best point is on an edge. The column of the smaller error is the edge to take.
    alone = [column.sum() / (column @ column) for column in rows.T]
    misses = [np.sum((x * column - 1) ** 2) for x, column in zip(alone, rows.T, strict=True)]
    return (float(alone[0]), 0.0) if misses[0] < misses[1] else (0.0, float(alone[1]))


def wiki() -> dict[str, Any]:
    """Return the measurements that this book grew from: 124M, B=4, T=64, up to 112 threads.

    Returns
    -------
    dict
        ``source``, the settings, and ``rows`` with runtime, threads, mean_ms, speedup and
        efficiency, as they were published.

    Examples
    --------
    >>> [row["mean_ms"] for row in wiki()["rows"]]
    [35285, 1430, 1616]
    """
    text = (resources.files("gpt2lib.perf") / "wiki.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def _threads(threads: int) -> int:
    if threads < 1:
        raise ValueError(f"the number of threads must be at least 1, got {threads!r}.")
    return threads


def _share(serial: float) -> float:
    if not 0 <= serial <= 1:
        raise ValueError(f"the serial part is a share between 0 and 1, got {serial!r}.")
    return serial
