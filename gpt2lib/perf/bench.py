"""Measure training steps on every runtime and number of threads, each run in a fresh process.

A *combination* is a runtime with a number of threads. Every combination makes as many *runs* as
there are repeats; a run is a process of its own that makes some training iterations. The repeats
are rounds in which each combination has its turn, in an order that favours none (:func:`orders`):
what else the machine does, and how warm it is, meets all of them alike.

After every run the results are written, so what has been measured is never lost, and a second call
goes on where the first one stopped. The form of the file: :mod:`gpt2lib.perf.results`.
"""

from __future__ import annotations

import datetime
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpt2lib.config import GPT2Config
from gpt2lib.perf import _spawn
from gpt2lib.perf._spawn import WorkerError
from gpt2lib.perf._worker import OPERATION_STEPS
from gpt2lib.perf.results import NAME, load, save, summarise

__all__ = [
    "Bench",
    "Estimate",
    "Run",
    "Settings",
    "WorkerError",
    "absent",
    "begin",
    "orders",
    "plan",
    "product_rate",
    "resume",
]

Record = dict[str, Any]
_GIVEN_UP_AFTER = 2  # failures of one combination
# The files whose speed is measured, in the library's folder.
_MEASURED = (
    *("kernels", "runtimes", "ops", "perf/_worker.py"),
    *("model.py", "activations.py", "parameters.py", "optimizer.py", "backend.py"),
)


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes
    ----------
    preset, config
        The model's name, and its five numbers.
    batch, seq
        B and T of the one batch that all iterations see.
    matmul
        The rung of the ladder of matrix products.
    iterations
        Of a run, the first one included; at least 2.
    repeats
        Runs of each combination.
    runtimes, threads
        Every runtime meets every number of threads; ``sequential`` has one thread and one only.
    seed
        Of weights, tokens, and the order of the runs.
    """

    preset: str
    config: GPT2Config
    batch: int
    seq: int
    matmul: str
    iterations: int
    repeats: int
    runtimes: tuple[str, ...]
    threads: tuple[int, ...]
    seed: int

    def to_dict(self) -> Record:
        """Return them as the results hold them."""
        lists = {"runtimes": list(self.runtimes), "threads": list(self.threads)}
        return {**asdict(self), "config": self.config.to_dict(), **lists}

    @property
    def flops(self) -> int:
        """Floating-point operations of a step, as :meth:`GPT2Config.training_flops` counts them."""
        return self.config.training_flops(self.batch, self.seq)

    def combinations(self, missing: Sequence[str] = ()) -> list[tuple[str, int]]:
        """Return every (runtime, threads), but for the runtimes that are missing."""
        return [
            (runtime, threads)
            for runtime in self.runtimes
            if runtime not in missing
            for threads in ((1,) if runtime == "sequential" else self.threads)
        ]


class Run(NamedTuple):
    """One run: which combination, in which round, and its place among all runs."""

    runtime: str
    threads: int
    repeat: int
    order: int


# ------------------------------------------------------------------------- the plan


def orders(count: int, rounds: int, seed: int) -> list[list[int]]:
    """Return an order of ``count`` things for each round, so that none is favoured.

    Rounds come in pairs. The second of a pair is the first one backwards: over a pair everything
    has the same mean place, so a drift of the machine cancels. From pair to pair the order is
    rotated: over ``count`` pairs everything stands in every place equally often (a Latin square).

    Parameters
    ----------
    count
        How many things.
    rounds
        How many orders.
    seed
        Of the order that is rotated.

    Examples
    --------
    >>> orders(4, 4, seed=0)
    [[2, 0, 1, 3], [3, 1, 0, 2], [1, 3, 2, 0], [0, 2, 3, 1]]
    """
    start = np.random.default_rng(seed).permutation(count).tolist()
    pairs = -(-rounds // 2)
    found = []
    for number in range(rounds):
        turned = (number // 2) * max(1, count // max(1, pairs))  # spread over the places
        turned = (turned + (number // 2) // max(1, count)) % max(1, count)
        order = start[turned:] + start[:turned]
        found.append(order[::-1] if number % 2 else order)
    return found


def plan(settings: Settings, missing: Sequence[str] = ()) -> list[Run]:
    """Return all runs, in the order in which they are made.

    Parameters
    ----------
    settings
        What is measured.
    missing
        Runtimes that are not there.
    """
    combinations = settings.combinations(missing)
    rounds = orders(len(combinations), settings.repeats, settings.seed)
    places = [(repeat, place) for repeat, order in enumerate(rounds) for place in order]
    return [
        Run(*combinations[place], repeat, number) for number, (repeat, place) in enumerate(places)
    ]


def absent(names: Sequence[str]) -> list[Record]:
    """Say of each runtime that is not there why, and how to get it.

    nOS-V has to be in a process from its start; it is there when a process can be started so.
    """
    from gpt2lib import runtimes
    from gpt2lib.runtimes import nosv

    found = []
    for name, state in runtimes.available().items():
        if name not in names or state.ok or (name == "nosv" and nosv.find_library()):
            continue
        reason, remedy = (_spawn.without_paths(text) for text in (state.reason, state.how_to_get))
        found.append({"runtime": name, "reason": reason, "how_to_get": remedy})
    return found


# ------------------------------------------------------------------------- the results


def begin(settings: Settings, missing: Sequence[Record]) -> Record:
    """Return results that hold everything but measurements."""
    from gpt2lib.perf.machine import describe, versions

    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "format": "gpt2lib-bench",
        "version": 1,
        "created": now,
        "finished": False,
        "machine": describe(),
        "versions": versions(),
        "git": _git(),
        "settings": settings.to_dict(),
        "flops_per_step": settings.flops,
        "absent": list(missing),
        "failed": [],
        "ceilings": [],
        "runs": [],
        "summary": [],
    }


def resume(folder: Path, results: Record) -> Record | None:
    """Return the results that a folder holds already, to go on with; None where it has no run.

    Parameters
    ----------
    folder
        Where ``results.json`` may be.
    results
        Fresh ones, of :func:`begin`: what is measured now, where, with what.

    Raises
    ------
    ValueError
        When the folder's are of other settings, another version of the program or another machine,
        or not whole. Measurements of two kinds do not go into one file.
    """
    path = folder / NAME
    if not path.exists():
        return None
    old = load(path)
    if not old["runs"] and not old["finished"]:
        return None  # nothing was measured: nothing is lost
    remedy = "Name another folder with --out, or ask for the same as before."
    if differ := _differences(old["settings"], results["settings"]):
        raise ValueError(f"{path} was measured with other settings: {differ}. {remedy}")
    if old["finished"]:
        return old
    if differ := _differences(_identity(old, results), _identity(results)):
        raise ValueError(
            f"{path} was begun with another program or machine, and two kinds of measurements do "
            f"not go into one file: {differ}. {remedy}"
        )
    # What failed is tried again, what was missing may be there now.
    return {**old, "absent": results["absent"], "failed": []}


def _identity(results: Record, newer: Record | None = None) -> Record:
    """Return what must be the same for all runs of a file, besides the settings.

    Another commit is as good as that of ``newer`` where nothing that is measured differs.
    """
    commit = results["git"]["commit"]
    if newer is not None and _same_code(commit, newer["git"]["commit"]):
        commit = newer["git"]["commit"]
    machine = {key: results["machine"][key] for key in ("processor", "cores")}
    return {"commit": commit, **results["versions"], **machine}


def _same_code(one: str | None, other: str | None) -> bool:
    """Tell whether git knows both commits, and no file that is measured differs."""
    if one is None or other is None:
        return False
    try:
        _ask_git("diff", "--quiet", one, other, "--", *_MEASURED)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _differences(old: Record, new: Record) -> str:
    return "; ".join(
        f"{key} {_shown(old.get(key))} there, {_shown(new.get(key))} here"
        for key in {**old, **new}
        if old.get(key) != new.get(key)
    )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={item}" for key, item in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _git() -> Record:
    """Return the commit of the library's source and whether it was changed, or None and None."""
    try:
        _ask_git("ls-files", "--error-unmatch", "perf/bench.py")  # ours, not one around us
        commit = _ask_git("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_ask_git("status", "--porcelain", "--", "."))}
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "dirty": None}


def _ask_git(*words: str) -> str:
    """Return what git says, asked in the library's folder; an error where it has none."""
    command = ["git", "-C", str(Path(__file__).resolve().parents[1]), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.strip()


# ------------------------------------------------------------------------- measuring


class Bench:
    """The runs that are still to be made, and the results that they go into.

    Parameters
    ----------
    folder
        Where ``results.json`` is written.
    settings
        What is measured.
    results
        Of :func:`begin` or :func:`resume`.
    timeout
        Seconds that a run may say nothing; a run says something at every iteration that takes long.
    ceilings
        Keyword arguments of :func:`gpt2lib.perf.machine.measure_ceilings`.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        results: Record,
        *,
        timeout: float = 600.0,
        ceilings: Record | None = None,
    ) -> None:
        self.folder, self.settings, self.results = folder, settings, results
        self.timeout = timeout
        self._ceilings = {"size": 2048, "memory_bytes": None, "passes": 3, **(ceilings or {})}
        done = {(run["runtime"], run["threads"], run["repeat"]) for run in results["runs"]}
        self.all_runs = plan(settings, [row["runtime"] for row in results["absent"]])
        self.to_do = [run for run in self.all_runs if run[:3] not in done]

    def compile(self) -> Record:
        """Have everything compiled and on the disk, so that no run has to; say what it took.

        Returns
        -------
        dict
            ``compiled``, the number of functions, and ``seconds``.

        Raises
        ------
        WorkerError
            When that fails: no run could work.
        """
        names = {run.runtime for run in self.to_do}
        total: Record = {"compiled": 0, "seconds": 0.0}
        # nOS-V's code is made only where nOS-V is in the process.
        for group in (names - {"nosv"}, names & {"nosv"}):
            if group:
                request = {
                    "do": "compile",
                    "runtimes": sorted(group),
                    "matmul": self.settings.matmul,
                }
                first, timeout = min(group), max(self.timeout, 600.0)
                found = _spawn.ask(request, runtime=first, timeout=timeout)
                total = {key: total[key] + found[key] for key in total}
        return total

    def measure_ceilings(self) -> None:
        """Measure the ceilings for each number of threads; of this and earlier times keep the best.

        Raises
        ------
        WorkerError
            When that fails.
        """
        for threads in sorted({run.threads for run in self.all_runs}):
            request = {"do": "ceilings", "threads": threads, **self._ceilings}
            found = _spawn.ask(request, threads=threads, timeout=self.timeout)["ceilings"]
            rows = self.results["ceilings"]
            old = next((row for row in rows if row["threads"] == threads), None)
            if old is None:
                rows.append(found)
                continue
            if found["sgemm_gflops"] > old["sgemm_gflops"]:
                old.update({k: v for k, v in found.items() if k.startswith("sgemm")})
            for key in ("read_gbs", "copy_gbs"):
                old[key] = max(old[key], found[key])
        self.save()

    def make(self, run: Run, heard: Callable[[int], None] = lambda iterations: None) -> bool:
        """Make one run and write it down; tell whether it went well.

        A run that dies, hangs or computes another loss goes into ``failed``, with the reason.

        Parameters
        ----------
        run
            One of ``to_do``.
        heard
            Called with the number of iterations that have been made since the last call.
        """
        try:
            if self._failures(run) >= _GIVEN_UP_AFTER:
                raise WorkerError(f"not tried: it failed {_GIVEN_UP_AFTER} times before")
            record = self._measure(run, heard)
            self._compare(record)
            self.results["runs"].append(record)
            return True
        except WorkerError as error:
            failure = {**run._asdict(), "reason": str(error)}
            del failure["order"]
            self.results["failed"].append(failure)
            return False
        finally:
            self.to_do = [other for other in self.to_do if other[:3] not in self._settled()]
            self.save()

    def finish(self) -> None:
        """Write that there is nothing left to do."""
        self.results["finished"] = not self.to_do
        self.save()

    def save(self) -> None:
        """Write the results as they are now."""
        self.results["summary"] = summarise(self.results)
        save(self.folder / NAME, self.results)

    def _measure(self, run: Run, heard: Callable[[int], None]) -> Record:
        s = self.settings
        request = {
            "do": "run",
            "runtime": run.runtime,
            "threads": run.threads,
            "config": s.config.to_dict(),
            **{key: getattr(s, key) for key in ("matmul", "batch", "seq", "iterations", "seed")},
        }
        record: Record = {**run._asdict(), "matmul": s.matmul, "iterations": []}
        options: Any = {"runtime": run.runtime, "threads": run.threads, "timeout": self.timeout}
        with _spawn.Worker(request, **options) as worker:
            for answer in worker.answers():
                if "ready" in answer:
                    record["setup_s"] = round(time.perf_counter() - worker.started, 3)
                    record["described"] = answer["ready"]
                elif "iterations" in answer:
                    record["iterations"] += answer["iterations"]
                    heard(len(answer["iterations"]))
                elif "operations" in answer:
                    record["operations"] = answer["operations"]
                else:
                    record.update(peak_bytes=answer["peak_bytes"], compiled=answer["compiled"])
        return record

    def _compare(self, record: Record) -> None:
        """Refuse a run whose losses are not, to the last bit, those of the first run."""
        if not self.results["runs"]:
            return
        first = self.results["runs"][0]
        pairs = zip(first["iterations"], record["iterations"], strict=True)
        for number, (one, other) in enumerate(pairs):
            if one["loss"] != other["loss"]:
                raise WorkerError(
                    f"computed something else: the loss of iteration {number} is "
                    f"{other['loss']!r}, that of {first['runtime']} on {first['threads']} threads "
                    f"{one['loss']!r}"
                )

    def _failures(self, run: Run) -> int:
        return sum((row["runtime"], row["threads"]) == run[:2] for row in self.results["failed"])

    def _settled(self) -> set[tuple[Any, ...]]:
        rows = [*self.results["runs"], *self.results["failed"]]
        return {(row["runtime"], row["threads"], row["repeat"]) for row in rows}


# ------------------------------------------------------------------------- how long it takes


class Estimate:
    """How long runs will take: guessed from FLOPs at first, then from those that were made.

    Parameters
    ----------
    settings
        What is measured.
    rate
        Floating-point operations a second of this product on one thread (:func:`product_rate`).
    cores
        How many threads can work at once.
    """

    START = 2.5  # seconds until a worker has imported everything and loaded its code
    CEILINGS = 4.0  # seconds for each number of threads, twice
    PYTHON = 0.003  # seconds of a step outside of the products, however small the model
    BYTES = 8e9  # a second that a core reads and writes: AdamW, weights, logits
    DRAWN = 1.2e8  # random numbers a second, for the weights

    def __init__(self, settings: Settings, rate: float, cores: int) -> None:
        self.settings, self.rate, self.cores = settings, rate, cores
        self._made: dict[tuple[str, int], list[float]] = {}
        self._guessed = self._spent = 0.0

    def step(self, threads: int) -> float:
        """Guess the seconds of a step."""
        s = self.settings
        moved = 4 * (14 * s.config.parameter_count + 8 * s.batch * s.seq * s.config.vocab_size)
        products = s.flops / (0.85 * self.rate)
        return (products + moved / self.BYTES) / min(threads, self.cores) + self.PYTHON

    def run(self, run: Run) -> float:
        """Return the seconds of a run: measured ones of its combination, else a corrected guess."""
        made = self._made.get(run[:2])
        if made:
            return sum(made) / len(made)
        return self._guess(run) * (self._spent / self._guessed if self._guessed else 1.0)

    def total(self, runs: Sequence[Run], ceilings: int) -> float:
        """Return the seconds of these runs, with ``ceilings`` measurements of the machine."""
        return sum(map(self.run, runs)) + self.CEILINGS * ceilings

    def learn(self, run: Run, seconds: float) -> None:
        """Take what a run really took into account."""
        self._made.setdefault(run[:2], []).append(seconds)
        self._guessed += self._guess(run)
        self._spent += seconds

    def _guess(self, run: Run) -> float:
        weights = self.settings.config.parameter_count / self.DRAWN
        steps = self.settings.iterations + OPERATION_STEPS + 1
        return self.START + weights + steps * self.step(run.threads)


def product_rate(matmul: str) -> float:
    """Measure briefly how many FLOPs a second one thread makes of a rung of the ladder."""
    from gpt2lib.kernels import Backend
    from gpt2lib.runtimes.sequential import Sequential

    backend = Backend(Sequential(), matmul)
    n = 512 if matmul in ("blas", "micro") else 192
    x, out = np.ones((n, n), np.float32), np.zeros((n, n), np.float32)
    seconds = []
    for _ in range(4):  # the first one loads code, and does not count unless it is the fastest
        begun = time.perf_counter()
        backend.linear_forward(x, x, x[0], out=out)
        seconds.append(time.perf_counter() - begun)
    return 2 * n**3 / min(seconds)
