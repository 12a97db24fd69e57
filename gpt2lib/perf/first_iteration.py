r"""Why the first iteration differs from the later ones: an experiment, not an opinion.

A training step meets many things for the first time: code that has to be loaded, threads that have
to be started, memory that the system has promised and not yet given. Each is a *cause* that can be
switched off by doing it before the first step. The experiment starts with a process in which
nothing is prepared, and then prepares one cause more each time, every time in a fresh process:

.. math::
    d_k = t_0 - \operatorname{median}(t_1, t_2, \dots) \quad\text{with the causes } 1 \dots k
    \text{ prepared}, \qquad c_k = d_{k-1} - d_k

:math:`c_k` is what cause k costs, given that those before it are gone. Whatever the values are,
:math:`d_0 = c_1 + \dots + c_K + d_K`: they add up to the difference, and what is left over,
:math:`d_K`, is named "not explained" and shown.

.. code-block:: python

    from gpt2lib import GPT2Config
    from gpt2lib.perf import first_iteration

    config = GPT2Config(vocab_size=4096, context=256, layers=4, heads=4, channels=256)
    results = first_iteration.run(config, batch=4, seq=64, threads=(1, 2), repeats=2)
    print(first_iteration.table(results))

What it cannot know: two causes may share a cost, which then goes to the one that is prepared first.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from gpt2lib._files import atomic_write
from gpt2lib.config import GPT2Config

__all__ = [
    "CAUSES",
    "Case",
    "Cause",
    "Step",
    "about_clock",
    "cases",
    "faster",
    "load",
    "ratios",
    "run",
    "save",
    "table",
]

FORMAT, VERSION = "gpt2lib-first-iteration", 1
COMPILING, UNEXPLAINED = "compiling", "not explained"  # titles of steps that are no switch


class Cause(NamedTuple):
    """Something that a first iteration meets for the first time.

    Attributes
    ----------
    key
        Its name in the results.
    title
        Its name in figures.
    prepared
        How the experiment takes it away.
    """

    key: str
    title: str
    prepared: str


#: The causes, in the order in which they are taken away.
CAUSES: tuple[Cause, ...] = (
    Cause(
        "code",
        "loading compiled code",
        "a step of a tiny model, on one thread, calls every operation once",
    ),
    Cause("threads", "starting threads", "a parallel region with work for every thread"),
    Cause("blas", "BLAS's buffers", "each thread multiplies two 768 x 768 matrices"),
    Cause(
        "parameters",
        "first touch: parameters",
        "each parameter is written to; before, they are mapped from a file, copy on write",
    ),
    Cause("gradients", "first touch: gradients", "zeros are written"),
    Cause("moments", "first touch: moments", "zeros are written"),
    Cause(
        "activations", "first touch: activations", "they and the logits are allocated and written"
    ),
    Cause(
        "rehearsal",
        "caches, and the rest",
        "a whole step on other data, with an update that changes nothing",
    ),
)


class Step(NamedTuple):
    """What one cause, or several together, cost a first iteration.

    Attributes
    ----------
    title
        Which; the last one is "not explained".
    ms
        Milliseconds: the medians' difference. Negative where the first iteration became slower.
    low, high
        The smallest and the largest value of a repeat.
    faults
        Page faults that went with it.
    system
        Milliseconds that processors spent in the system with it, all threads together: for a first
        touch most of it. Others' work on the machine hardly changes that.
    """

    title: str
    ms: float
    low: float
    high: float
    faults: float
    system: float


class Case(NamedTuple):
    """The first iteration on a number of threads, explained.

    Attributes
    ----------
    name
        ``"sequential"`` or the runtime's name with its threads.
    threads
        How many.
    first, steady
        Milliseconds of the first iteration with nothing prepared, and of those after it.
    steps
        What it was; they add up to ``first - steady``.
    """

    name: str
    threads: int
    first: float
    steady: float
    steps: tuple[Step, ...]

    @property
    def difference(self) -> float:
        """What the first iteration took more than a later one, in ms."""
        return self.first - self.steady


def run(
    config: GPT2Config,
    batch: int = 4,
    seq: int = 64,
    threads: Sequence[int] = (1, 2),
    *,
    runtime: str = "threads",
    matmul: str = "blas",
    causes: Sequence[str] | None = None,
    repeats: int = 3,
    iterations: int = 5,
    seconds: float | None = None,
    compilation: bool = False,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Make the experiment.

    Parameters
    ----------
    config
        The model's shape.
    batch, seq
        B and T.
    threads
        The cases: 1 is the sequential runtime, more are ``runtime``.
    runtime, matmul
        As in :class:`gpt2lib.model.GPT2`.
    causes
        The keys of :data:`CAUSES` to tell apart; those in between join the next one that is named.
        All by default.
    repeats
        How often each process is started. The order turns round from one repeat to the next.
    iterations
        Steps in each process, the first included.
    seconds
        Begin no further repeat that would, by the time of those so far, end later than this.
    compilation
        Whether to add a process that has to compile the kernels (half a minute, once a case).
    seed
        Of weights and tokens.
    progress
        Called with a line of text before each process.

    Returns
    -------
    dict
        JSON-able: ``format``, ``version``, ``created``, ``machine``, ``versions``, ``settings``,
        ``causes``, and ``runs``, one for each process: ``threads``, ``on`` (what was prepared),
        ``repeat``, ``order``, ``iterations`` with ``forward_ms``, ``backward_ms``, ``update_ms``,
        ``total_ms``, ``minor_faults``, ``major_faults``, ``user_ms``, ``system_ms``.
        :func:`cases` says what they mean. ``faster`` is empty: a place for what :func:`faster`
        returns.

    Raises
    ------
    ValueError
        For fewer than one repeat or two iterations, or a cause that does not exist.
    RuntimeError
        When a process fails; the message has its last line.
    """
    config.check_length(seq)
    if repeats < 1 or iterations < 2 or batch < 1 or not threads or min(threads) < 1:
        raise ValueError(
            "the experiment needs one repeat, two iterations, one sequence and one thread at "
            f"least, got repeats={repeats}, iterations={iterations}, batch={batch}, "
            f"threads={tuple(threads)}."
        )
    stages = _stages(causes)
    settings = {
        "config": asdict(config),
        "batch": batch,
        "seq": seq,
        "threads": list(threads),
        "runtime": runtime,
        "matmul": matmul,
        "causes": [list(stage) for stage in stages],
        "repeats": repeats,
        "iterations": iterations,
        "seed": seed,
    }
    results = {**_head(), "settings": settings, "runs": [], "faster": []}
    with _weights(config, seed) as weights:
        plan = list(_plan(settings, compilation))
        begin, order = time.perf_counter(), 0
        for repeat in range(repeats):
            spent = time.perf_counter() - begin
            if repeat and seconds is not None and spent * (repeat + 1) / repeat > seconds:
                break
            of = [one for one in plan if repeat == 0 or not one["compile"]]
            for spec in of if repeat % 2 == 0 else reversed(of):
                if progress is not None:
                    progress(_say(spec, repeat))
                report = _process({**spec, "weights": weights})
                kept = {key: spec[key] for key in ("threads", "runtime", "on", "compile")}
                results["runs"].append({**kept, "repeat": repeat, "order": order, **report})
                order += 1
    return results


def faster(
    config: GPT2Config,
    batch: int = 4,
    seq: int = 64,
    *,
    repeats: int = 3,
    iterations: int = 5,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Look for what can make a first iteration *faster*: one thread, everything prepared.

    Parameters
    ----------
    config, batch, seq
        As in :func:`run`.
    repeats
        Processes.
    iterations
        Steps in each.
    seed, progress
        As in :func:`run`.

    Returns
    -------
    list
        A report for each process, in milliseconds:

        ``zeroing``
            ``steps`` of a loop that clears the gradients before each forward, and how long the
            ``clearing`` took in each: 0 in the first, which finds them cleared.
        ``reading``
            A pass that only reads as many numbers as there are parameters: ``untouched`` memory
            (Linux shows the same zeros everywhere), the same ``again``, and once it is ``written``.
            In the memory that NumPy gets (``numpy``), and in pages of 4 KiB (``small pages``).
        ``adamw``
            Updates whose moments were never touched before the first, in both kinds of memory.
        ``clock``
            How long a chain of dependent operations takes right after a rest (``start_ms``) and
            after work (``later_ms``): a ratio below 1 means that the processor starts with a
            higher clock than it keeps.
    """
    config.check_length(seq)
    spec = {
        "what": "faster",
        "config": asdict(config),
        "batch": batch,
        "seq": seq,
        "threads": 1,
        "runtime": "sequential",
        "matmul": "blas",
        "iterations": iterations,
        "seed": seed,
        "on": [cause.key for cause in CAUSES if cause.key != "threads"],
        "compile": False,
    }
    reports = []
    with _weights(config, seed) as weights:
        for repeat in range(repeats):
            if progress is not None:
                progress(f"repeat {repeat + 1}, 1 thread: what is faster at first")
            reports.append(_process({**spec, "weights": weights}))
    return reports


# --- What the results say -------------------------------------------------------------------------


def cases(results: Mapping[str, Any]) -> list[Case]:
    """Return what each cause cost, for each number of threads.

    Parameters
    ----------
    results
        What :func:`run` returned, or :func:`load` read.

    Raises
    ------
    ValueError
        When a process of the first repeat is missing.
    """
    stages = [tuple(stage) for stage in results["settings"]["causes"]]
    found = []
    for threads in results["settings"]["threads"]:
        runs = [one for one in results["runs"] if one["threads"] == threads]
        if not runs:
            raise ValueError(f"these results have no run on {threads} threads.")
        own = [stage for stage in (_for(stage, threads) for stage in stages) if stage]
        levels = [_level(runs, on) for on in _growing(own)]
        titles = [_title(stage) for stage in own]
        if any(one["compile"] for one in runs):
            levels.insert(0, _level([one for one in runs if one["compile"]], [], compiled=True))
            titles.insert(0, COMPILING)
        cold = [one for one in runs if not one["on"]]  # what a program sees that prepares nothing
        later = [step["total_ms"] for one in cold for step in one["iterations"][1:]]
        steady = statistics.median(later)
        pairs = zip(titles, itertools.pairwise(levels), strict=True)
        steps = [_between(title, before, after) for title, (before, after) in pairs]
        last = levels[-1].difference.values()
        rest = Step(
            UNEXPLAINED,
            levels[-1].ms,
            min(last),
            max(last),
            levels[-1].faults,
            levels[-1].system,
        )
        name = runs[0]["runtime"]
        name = name if name == "sequential" else f"{name}, {threads} threads"
        first = steady + levels[0].ms
        found.append(Case(name, threads, first, steady, (*steps, rest)))
    return found


class _Level(NamedTuple):
    """First minus later iterations with some causes prepared, and page faults and system time."""

    difference: dict[int, float]  # repeat -> ms
    faults: float
    system: float

    @property
    def ms(self) -> float:
        return statistics.median(self.difference.values())


def _level(runs: Sequence[Mapping[str, Any]], on: Sequence[str], compiled: bool = False) -> _Level:
    chosen = [one for one in runs if one["on"] == list(on) and one["compile"] == compiled]
    if not chosen:
        raise ValueError(f"these results have no run with {', '.join(on) or 'nothing'} prepared.")

    def differences(key: str) -> dict[int, float]:
        return {
            one["repeat"]: one["iterations"][0].get(key, 0) - _median(one["iterations"][1:], key)
            for one in chosen
        }

    faults, system = differences("minor_faults"), differences("system_ms")
    return _Level(
        differences("total_ms"),
        statistics.median(faults.values()),
        statistics.median(system.values()),
    )


def _between(title: str, before: _Level, after: _Level) -> Step:
    """Return what the cause between two levels cost."""
    both = before.difference.keys() & after.difference.keys()
    each = [before.difference[r] - after.difference[r] for r in both]
    faults, system = before.faults - after.faults, before.system - after.system
    return Step(title, before.ms - after.ms, min(each), max(each), faults, system)


def _median(steps: Sequence[Mapping[str, Any]], key: str) -> float:
    return statistics.median(step.get(key, 0) for step in steps)


def table(results: Mapping[str, Any]) -> str:
    """Return the causes as text, a column for each case."""
    lines = []
    for case in cases(results):
        lines += [
            f"{case.name}: iteration 0 took {case.first:.1f} ms, later ones {case.steady:.1f} ms",
            f"  {'':28s} {'ms':>9s} {'least':>9s} {'most':>9s} {'page faults':>12s} "
            f"{'system (ms)':>12s}",
        ]
        lines += [
            f"  {s.title:28s} {s.ms:9.1f} {s.low:9.1f} {s.high:9.1f} {s.faults:12.0f} "
            f"{s.system:12.1f}"
            for s in case.steps
        ]
        lines += [f"  {'together':28s} {case.difference:9.1f}", ""]
    return "\n".join(lines[:-1])


def ratios(reports: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the first time over the later ones of everything that :func:`faster` measured.

    Parameters
    ----------
    reports
        What :func:`faster` returned.

    Returns
    -------
    dict
        What was measured -> a ratio for each process. Below 1 the first time is faster.
    """
    found: dict[str, list[float]] = {}
    for report in reports:
        loop, clock = report["zeroing"]["steps"], report["clock"]
        pairs = {
            "a step without clearing gradients": (loop[0], statistics.median(loop[1:])),
            "the clock: a chain of operations": (clock["start_ms"], clock["later_ms"]),
        }
        for kind, name in (("numpy", "memory from NumPy"), ("small pages", "pages of 4 KiB")):
            pairs[f"reading untouched memory, {name}"] = (
                report["reading"][kind]["untouched"],
                report["reading"][kind]["written"],
            )
            first, *later = report["adamw"][kind]
            pairs[f"AdamW, moments untouched, {name}"] = (first, statistics.median(later))
        for name, (first, later) in pairs.items():
            found.setdefault(name, []).append(first / later)
    return dict(sorted(found.items(), key=lambda item: statistics.median(item[1])))


def about_clock(results: Mapping[str, Any]) -> str:
    """Say what could be learnt of the processor's clock: read, and measured.

    Parameters
    ----------
    results
        What :func:`run` returned, with the reports of :func:`faster` in ``faster`` if there are
        any.
    """
    mhz = (results["machine"].get("mhz") or {}).get("now")
    said = "the clock cannot be read here" if mhz is None else f"the system says {mhz:.0f} MHz"
    found = [report["clock"]["start_over_later"] for report in results["faster"]]
    if not found:
        return f"{said}; it was not measured."
    middle, least, most = statistics.median(found), min(found), max(found)
    return (
        f"{said}; measured, a chain of operations takes {middle:.3f} times as long right after a "
        f"rest as after work ({least:.3f} to {most:.3f})."
    )


# --- Files ----------------------------------------------------------------------------------------


def save(path: str | os.PathLike[str], results: Mapping[str, Any]) -> None:
    """Write results as JSON."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(results, indent=1), encoding="utf-8")


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read results that :func:`save` wrote.

    Raises
    ------
    ValueError
        For a file that is none.
    """
    try:
        results = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(results, dict) or results.get("format") != FORMAT:
        raise ValueError(f"{path} holds no results of the experiment on the first iteration.")
    if results.get("version") != VERSION:
        raise ValueError(f"{path} has version {results.get('version')}, known is {VERSION}.")
    return results


# --- The processes --------------------------------------------------------------------------------


def _stages(causes: Sequence[str] | None) -> list[tuple[str, ...]]:
    """Cut the list of causes after each that is named (and after the last)."""
    keys = [cause.key for cause in CAUSES]
    for name in causes or ():
        if name not in keys:
            raise ValueError(f"there is no cause {name!r}; there are {', '.join(keys)}.")
    stages: list[tuple[str, ...]] = []
    stage: list[str] = []
    for key in keys:
        stage.append(key)
        if causes is None or key in causes or key == keys[-1]:
            stages.append(tuple(stage))
            stage = []
    return stages


def _for(stage: Sequence[str], threads: int) -> tuple[str, ...]:
    """Leave out what a single thread does not have."""
    return tuple(key for key in stage if threads > 1 or key != "threads")


def _growing(stages: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Yield what is prepared: nothing, the first stage, the first two, ..."""
    on: list[str] = []
    yield list(on)
    for stage in stages:
        on += stage
        yield list(on)


def _title(stage: Sequence[str]) -> str:
    """Name several causes in one title: what is touched, is named together."""
    parts: list[str] = []
    for kind, group in itertools.groupby(
        (cause.title for cause in CAUSES if cause.key in stage),
        key=lambda title: title.partition(": ")[0] if ": " in title else "",
    ):
        titles = [title.removeprefix(f"{kind}: ") if kind else title for title in group]
        parts.append(f"{kind}: {', '.join(titles)}" if kind else ", ".join(titles))
    return "; ".join(parts)


def _plan(settings: Mapping[str, Any], compilation: bool) -> Iterator[dict[str, Any]]:
    """Yield the processes of one repeat."""
    common = {key: settings[key] for key in ("config", "batch", "seq", "matmul", "iterations")}
    common |= {"what": "first", "seed": settings["seed"], "compile": False}
    for threads in settings["threads"]:
        runtime = "sequential" if threads == 1 else settings["runtime"]
        case = {**common, "threads": threads, "runtime": runtime}
        if compilation:
            yield {**case, "on": [], "compile": True}
        for on in _growing([_for(stage, threads) for stage in settings["causes"]]):
            yield {**case, "on": on}


def _say(spec: Mapping[str, Any], repeat: int) -> str:
    done = "nothing is compiled yet" if spec["compile"] else f"{len(spec['on'])} causes prepared"
    threads = spec["threads"]
    return f"repeat {repeat + 1}, {threads} thread{'s' if threads > 1 else ''}: {done}"


class _weights:
    """A file of random parameters, from which every process maps its own, as long as it is open."""

    def __init__(self, config: GPT2Config, seed: int) -> None:
        from gpt2lib.parameters import Parameters

        self._folder = tempfile.TemporaryDirectory(prefix="gpt2lib-first-")
        self._path = Path(self._folder.name, "weights.bin")
        Parameters.initialize(config, seed).flat.tofile(self._path)

    def __enter__(self) -> str:
        return str(self._path)

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def _process(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Run one process and return its report."""
    command = [sys.executable, "-m", "gpt2lib.perf._first_worker", json.dumps(spec)]
    if spec["runtime"] == "nosv":
        launcher = [sys.executable, "-m", "gpt2lib.runtimes.launch", "--runtime", "nosv", "--"]
        command = [*launcher, *command]
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="gpt2lib-cache-") as cache:
        if spec["compile"]:
            environment |= {"GPT2LIB_CACHE_DIR": cache, "NUMBA_CACHE_DIR": cache}
        done = subprocess.run(
            command, capture_output=True, text=True, encoding="utf-8", env=environment, check=False
        )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RuntimeError(f"a process of the experiment failed ({done.returncode}): {last}")
    return json.loads(done.stdout.splitlines()[-1])


def _head() -> dict[str, Any]:
    """Return what a file of results begins with."""
    from gpt2lib.perf import machine

    return {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {**machine.describe(), "huge_pages": _huge_pages()},
        "versions": machine.versions(),
        "causes": [cause._asdict() for cause in CAUSES],
    }


def _huge_pages() -> str | None:
    """Return when Linux gives memory in pages of 2 MiB: always, madvise (NumPy asks), never."""
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    try:
        chosen = re.search(r"\[(\w+)\]", path.read_text(encoding="utf-8"))
    except OSError:
        return None
    return chosen[1] if chosen else None
