"""Which contenders meet, in which order, and what is asked of them.

A *race*: every contender is started, makes its first steps, and is compared with the others; then
come the rounds. In a round each has its turn, forwards in one round and backwards in the next, so
that what else the machine does meets all of them alike. A turn begins with a step that does not
count, for the caches that the others have filled. Samples go into the record as they come: whatever
stops the run, what has been measured is kept.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.side_by_side import data, llmc, startup
from benchmarks.side_by_side.contender import Contender, ContenderError
from gpt2lib.config import GPT2Config

Record = dict[str, Any]
LOSS_TOLERANCE = 1e-3
FIRST_STEPS = 4
PROMPT = 16  # tokens that a generation begins with
CHECKED_TOKENS = 12  # whose ids must be the same

LABELS = {
    "gpt2lib": "gpt2lib",
    "gpt2lib-1": "gpt2lib, 1 thread",
    "numpy": "gpt2lib, NumPy backend",
    "pytorch": "PyTorch eager",
    "compiled": "PyTorch compiled",
    "llmc": "llm.c",
    "huggingface": "Hugging Face, PyTorch",
    "picogpt": "picoGPT style, NumPy",
}
TRAINING = ("gpt2lib", "gpt2lib-1", "pytorch", "compiled", "llmc")
LONG = ("gpt2lib", "pytorch")
GENERATION = ("gpt2lib", "gpt2lib-1", "huggingface", "picogpt")
# No phase is as costly for so little as this one, so it comes only when it is named.
OPTIONAL = ("numpy",)
PHASES = ("training", "breakdown", "runtimes", "long", "generation", "startup")


@dataclass
class Settings:
    """What the command line says."""

    config: GPT2Config
    batch: int
    seq: int
    threads: int
    repeats: int = 5
    steps: int = 3
    tokens: int = 24
    seed: int = 0
    runtime: str = "threads"
    runtimes: tuple[str, ...] = ()
    matmul: str | None = None
    only: tuple[str, ...] = ()
    phases: tuple[str, ...] = PHASES
    llmc: str | None = None
    torch_python: str = sys.executable
    timeout: float = 600.0
    compile_timeout: float = 900.0
    megabytes: int = 512
    sgemm: int = 2048
    say: Callable[[str], None] = field(default=lambda text: None)
    keep: Callable[[], None] = field(default=lambda: None)  # writes what there is so far

    def wanted(self, name: str) -> bool:
        """Tell whether a contender takes part."""
        return name in self.only if self.only else name not in OPTIONAL

    def named(self, names: tuple[str, ...]) -> list[str]:
        """Return the contenders of a phase that take part: this library's first."""
        ours = [name for name in names if name.startswith("gpt2lib")]
        others = [name for name in names if name not in ours]
        return [name for name in (*ours, *OPTIONAL, *others) if self.wanted(name)]


class Worker:
    """A contender in a worker process, with what to tell it at its start."""

    def __init__(self, process: Contender, first_timeout: float | None = None, **options: Any):
        self.process, self.options, self.first_timeout = process, options, first_timeout

    def set_up(self, source: Path) -> Record:
        """Have it load what it needs."""
        return self.process.ask("set_up", folder=str(source), **self.options)

    def steps(self, count: int) -> Record:
        """Make the first steps: of a compiler's contender they take their time."""
        return self.process.ask("steps", count=count, timeout=self.first_timeout)

    def turn(self, count: int) -> Record:
        """Make a step that does not count, then those that do."""
        found = self.process.ask("steps", count=1 + count)
        return {**found, "seconds": found["seconds"][1:], "losses": found["losses"][1:]}

    def generate(self, tokens: int) -> Record:
        """Generate; return ids and seconds a token."""
        return self.process.ask("generate", prompt=PROMPT, tokens=tokens)

    def peak_bytes(self) -> int | None:
        """Return the most memory that it has had."""
        return self.process.peak_bytes()

    def close(self) -> None:
        """End the process."""
        self.process.close()


class Ceilings:
    """What the machine can do, measured in its own turns."""

    def __init__(self, settings: Settings) -> None:
        self.process = Contender(
            "machine.Machine", threads=settings.threads, timeout=settings.timeout
        )
        self.settings = settings

    def set_up(self) -> Record:
        """Make the operands."""
        s = self.settings
        return self.process.ask("set_up", threads=s.threads, size=s.sgemm, megabytes=s.megabytes)

    def turn(self) -> Record:
        """Multiply and read."""
        return {
            "sgemm": self.process.ask("sgemm", count=3),
            "read": self.process.ask("read_memory", count=5),
        }

    def close(self) -> None:
        """End the process."""
        self.process.close()


# --- Making contenders ----------------------------------------------------------------------------


def make_training(name: str, settings: Settings, folder: Path) -> Any:
    """Start the process of a contender that trains."""
    s = settings
    if name == "llmc":
        # One step less a turn than the others: it is slow, and its program ends soon.
        return llmc.LLMC(llmc.find_program(s.llmc), folder, s.threads, s.timeout)
    if name in ("pytorch", "compiled"):
        kind = "pytorch.Training" if name == "pytorch" else "pytorch.Compiled"
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
        process = Contender(
            kind,
            python=s.torch_python,
            threads=s.threads,
            timeout=s.timeout,
            environment=cache,
        )
        patience = s.compile_timeout if name == "compiled" else None
        return Worker(process, patience, threads=s.threads)
    return make_ours(name, "ours.Training", settings)


def make_generation(name: str, settings: Settings, folder: Path) -> Any:
    """Start the process of a contender that generates."""
    s = settings
    if name in ("huggingface", "picogpt"):
        kind = "huggingface.Generation" if name == "huggingface" else "pico.Generation"
        python = s.torch_python if name == "huggingface" else sys.executable
        process = Contender(kind, python=python, threads=s.threads, timeout=s.timeout)
        return Worker(process, threads=s.threads)
    return make_ours(name, "ours.Generation", settings)


def make_ours(name: str, kind: str, settings: Settings) -> Worker:
    """Start a process of this library: ``gpt2lib``, ``gpt2lib-1``, ``numpy``, or a runtime."""
    s = settings
    threads = 1 if name in ("gpt2lib-1", "sequential") else s.threads
    options: Record = {"backend": "numba", "runtime": s.runtime, "threads": threads}
    if name == "numpy":
        options = {"backend": "numpy"}
    elif not name.startswith("gpt2lib"):
        options["runtime"] = name
    if s.matmul and name != "numpy":
        options["matmul"] = s.matmul
    launcher: list[str] = []
    if options.get("runtime") == "nosv":
        launcher = [sys.executable, "-m", "gpt2lib.runtimes.launch", "--runtime", "nosv", "--"]
    process = Contender(kind, threads=s.threads, timeout=s.timeout, launcher=launcher)
    return Worker(process, **options)


# --- The race -------------------------------------------------------------------------------------


class Race:
    """One comparison: its contenders' processes, and the record that it fills.

    Parameters
    ----------
    settings
        How many rounds, how many steps a turn.
    record
        Where everything goes: ``contenders`` by name, and ``ceilings`` round by round.
    """

    def __init__(self, settings: Settings, record: Record) -> None:
        self.settings, self.record = settings, record
        self.keep = settings.keep
        record.setdefault("contenders", {})
        record.setdefault("ceilings", [])
        self.running: dict[str, Any] = {}
        self.ceilings: Ceilings | None = None

    @contextmanager
    def attempt(self, name: str, status: str) -> Iterator[None]:
        """Take a contender out of the race, with the reason, where it fails."""
        try:
            yield
        except ContenderError as error:
            self.drop(name, status, str(error))

    def drop(self, name: str, status: str, reason: str) -> None:
        """Take a contender out of the race, with the reason."""
        entry = self.record["contenders"][name]
        entry.update(status=status, reason=_without_paths(reason))
        self.settings.say(f"  {entry['label']}: {status}: {entry['reason']}")
        contender = self.running.pop(name, None)
        if contender is not None:
            contender.close()

    def start(self, names: list[str], make: Callable[..., Any], source: Path, work: Path) -> None:
        """Start every contender and the measurement of the machine."""
        for name in names:
            label = LABELS.get(name, f"gpt2lib, {name}")
            self.record["contenders"][name] = {"label": label, "status": "ok", "rounds": []}
            self.settings.say(f"  starting {label}")
            with self.attempt(name, "absent"):
                own = work / name
                own.mkdir()
                self.running[name] = make(name, self.settings, own)
                described = self.running[name].set_up(source)
                self.record["contenders"][name]["description"] = described
        try:
            self.ceilings = Ceilings(self.settings)
            self.record["ceilings_of"] = self.ceilings.set_up()
        except ContenderError as error:
            self._lose_ceilings(error)

    def _lose_ceilings(self, error: ContenderError) -> None:
        self.record["ceilings_of"] = {"failed": _without_paths(str(error))}
        self.settings.say(f"  the machine's ceilings are not measured: {error}")
        if self.ceilings is not None:
            self.ceilings.close()
        self.ceilings = None

    def first(self, check: Callable[[Any], Record]) -> None:
        """Have everybody do the same thing once, before anything is timed."""
        for name in list(self.running):
            self.settings.say(f"  first steps of {self.record['contenders'][name]['label']}")
            with self.attempt(name, "failed"):
                self.record["contenders"][name]["first"] = check(self.running[name])

    def rounds(self, turn: Callable[[str, Any], Record]) -> None:
        """Give everybody a turn, again and again."""
        for number in range(self.settings.repeats):
            self.settings.say(f"  round {number + 1} of {self.settings.repeats}")
            if self.ceilings is not None:
                try:
                    self.record["ceilings"].append({"round": number, **self.ceilings.turn()})
                except ContenderError as error:
                    self._lose_ceilings(error)
            names = list(self.running)
            for name in names if number % 2 == 0 else reversed(names):
                load = os.getloadavg()[0]
                with self.attempt(name, "failed"):
                    found = turn(name, self.running[name])
                    self.record["contenders"][name]["rounds"].append(
                        {"round": number, "load": round(load, 2), **found}
                    )
            self.keep()

    def finish(self) -> None:
        """Ask everybody for their memory."""
        for name, contender in list(self.running.items()):
            with self.attempt(name, "failed"):
                self.record["contenders"][name]["peak_bytes"] = contender.peak_bytes()
            if (count := getattr(contender, "activations", None)) is not None:
                self.record["llmc_activations"] = count

    def close(self) -> None:
        """End all processes."""
        for contender in self.running.values():
            contender.close()
        self.running.clear()
        if self.ceilings is not None:
            self.ceilings.close()


def compare_losses(record: Record, tolerance: float = LOSS_TOLERANCE) -> dict[str, str]:
    """Return who computes other losses than the first contender, and which."""
    wrong = {}
    found = {n: e["first"]["losses"] for n, e in record["contenders"].items() if "first" in e}
    if not found:
        return {}
    reference, expected = next(iter(found.items()))
    for name, losses in found.items():
        for step, (ours, theirs) in enumerate(zip(expected, losses, strict=True)):
            if not abs(ours - theirs) <= tolerance:
                wrong[name] = f"loss {theirs:.6f} at step {step}, where {reference} has {ours:.6f}"
                break
    return wrong


def compare_ids(record: Record) -> dict[str, str]:
    """Return who generates other tokens than the first contender, and where they part."""
    wrong = {}
    found = {n: e["first"]["ids"] for n, e in record["contenders"].items() if "first" in e}
    if not found:
        return {}
    reference, expected = next(iter(found.items()))
    for name, ids in found.items():
        if ids != expected:
            place = next(i for i, (a, b) in enumerate(zip(expected, ids, strict=True)) if a != b)
            wrong[name] = f"token {place} is {ids[place]}, where {reference} has {expected[place]}"
    return wrong


# --- The phases -----------------------------------------------------------------------------------


def run(settings: Settings, results: Record) -> None:
    """Run the phases that are asked for; what there is so far is kept after every round.

    Parameters
    ----------
    settings
        What the command line says.
    results
        Filled as the run goes on: ``results["phases"][name]``.
    """
    phases = results.setdefault("phases", {})
    for name in PHASES:
        if name not in settings.phases or name == "breakdown":  # that one is a part of training
            continue
        phase = _RUNNERS[name]
        record: Record = {}
        phases[name] = record
        settings.say(f"{name}:")
        with tempfile.TemporaryDirectory(prefix="gpt2lib-peers-") as folder:
            phase(settings, record, Path(folder))
        settings.keep()


def _training_race(
    settings: Settings, record: Record, folder: Path, names: list[str], batch: int, seq: int
) -> None:
    """Race over training steps."""
    s = settings
    record.update(batch=batch, seq=seq, tolerance=LOSS_TOLERANCE)
    record["training_flops"] = s.config.training_flops(batch, seq)
    record["parameters"] = s.config.parameter_count
    if reason := too_little_memory(s, len(names), batch, seq):
        record["skipped"] = reason
        s.say(f"  skipped: {reason}")
        return
    data.write(folder, s.config, batch, seq, s.seed)
    race = Race(s, record)
    try:
        race.start(names, make_training, folder, folder)
        race.first(lambda contender: contender.steps(FIRST_STEPS))
        for name, reason in compare_losses(record).items():
            race.drop(name, "disagrees", reason)
        race.rounds(
            lambda name, contender: contender.turn(min(s.steps, 2) if name == "llmc" else s.steps)
        )
        race.finish()
        if "breakdown" in s.phases and "gpt2lib" in race.running and "long" not in record:
            _breakdown(race, record)
    finally:
        race.close()


def _breakdown(race: Race, record: Record) -> None:
    race.settings.say("  where the time of a step goes")
    steps = max(2, race.settings.steps)
    with race.attempt("gpt2lib", "failed"):
        rows = race.running["gpt2lib"].process.ask("breakdown", count=steps)
        record["breakdown"] = {"steps": steps, "rows": rows}


def _training(settings: Settings, record: Record, folder: Path) -> None:
    names = settings.named(TRAINING)
    _training_race(settings, record, folder, names, settings.batch, settings.seq)


def _runtimes(settings: Settings, record: Record, folder: Path) -> None:
    names = list(settings.runtimes)
    if not names:
        record["skipped"] = "not asked for: --runtimes threads,openmp,tbb,nosv"
        settings.say(f"  skipped: {record['skipped']}")
        return
    _training_race(settings, record, folder, names, settings.batch, settings.seq)


def _long(settings: Settings, record: Record, folder: Path) -> None:
    names = [name for name in LONG if settings.wanted(name)]
    _training_race(settings, record, folder, names, 1, settings.config.context)


def _generation(settings: Settings, record: Record, folder: Path) -> None:
    s = settings
    record.update(prompt=PROMPT, tokens=s.tokens, checked=CHECKED_TOKENS)
    record["weight_bytes"] = 4 * (s.config.parameter_count - s.config.context * s.config.channels)
    names = s.named(GENERATION)
    data.write(folder, s.config, 1, s.config.context, s.seed)
    race = Race(s, record)
    try:
        race.start(names, make_generation, folder, folder)
        race.first(lambda contender: contender.generate(CHECKED_TOKENS))
        for name, reason in compare_ids(record).items():
            race.drop(name, "disagrees", reason)
        # Without a cache every token costs a whole forward: a few of them say enough.
        race.rounds(
            lambda name, contender: contender.generate(4 if name == "picogpt" else s.tokens)
        )
        race.finish()
    finally:
        race.close()


def _startup(settings: Settings, record: Record, folder: Path) -> None:
    s = settings
    options = {"runtime": s.runtime, "threads": s.threads}
    try:
        s.say("  import")
        record["import"] = startup.import_times(2 * s.repeats, s.timeout)
        s.say("  first use of the kernels, nothing compiled yet and compiled before")
        record["first_use"] = startup.first_use(s.repeats, options, s.timeout)
    except ContenderError as error:
        record["failed"] = _without_paths(str(error))
        s.say(f"  failed: {record['failed']}")


_RUNNERS = {
    "training": _training,
    "runtimes": _runtimes,
    "long": _long,
    "generation": _generation,
    "startup": _startup,
}


def too_little_memory(settings: Settings, contenders: int, batch: int, seq: int) -> str:
    """Say so where the contenders of a race would not fit into memory together (Linux)."""
    c, tokens = settings.config, batch * seq
    activations = 4 * tokens * (2 * 18 * c.layers * c.channels + 3 * c.vocab_size)
    needed = contenders * (18 * c.parameter_count + activations + (1 << 28))
    try:
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
    except OSError:
        return ""
    free = next(int(line.split()[1]) for line in text.splitlines() if "MemAvailable" in line) * 1024
    if needed <= free:
        return ""
    return (
        f"{contenders} contenders need about {needed / 2**30:.0f} GiB of memory together, "
        f"{free / 2**30:.0f} GiB are available: take fewer, with --only or --runtimes"
    )


def _without_paths(text: str) -> str:
    """Shorten the paths in a message to their last part: a machine's folders are its own affair."""
    words = [Path(word).name if word.startswith("/") else word for word in text.split(" ")]
    return " ".join(words)
