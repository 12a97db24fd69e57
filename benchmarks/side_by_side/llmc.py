"""llm.c as a contender: its own program, fed with files, read by the lines that it prints.

``train_gpt2`` takes no arguments: it reads ``gpt2_124M.bin``, a tokenizer and two token files from
where it is started, and makes 41 training steps on batches of 4 x 64 tokens, each reported as
``step 3: train loss 4.2 (took 700.1 ms)``. Before every 20th it writes a text of 63 tokens, and
computes the whole batch for each of them: there the program is started again instead. Between
turns it is stopped in the middle of a step, so the first line of a turn tells nothing and is
dropped: it stands for the step with which other contenders warm up.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.side_by_side import data
from benchmarks.side_by_side.contender import ContenderError, Process
from benchmarks.side_by_side.worker import peak_bytes
from gpt2lib.data.shards import write_shard
from gpt2lib.weights.llmc import save_llmc

BATCH, SEQ = 4, 64  # compiled into the program
LAST_STEP = 19  # before step 20 the program writes its first text
STEP = re.compile(r"step (\d+): train loss (\S+) \(took (\S+) ms\)")
ACTIVATIONS = re.compile(r"num_activations: (\d+)")


def find_program(given: str | Path | None) -> Path:
    """Return the program in a folder, or the program itself; say how to get it where it is not."""
    how = "build llm.c (make train_gpt2) and give its folder: --llmc PATH"
    if given is None:
        raise ContenderError(f"not given; {how}")
    path = Path(given)
    path = path / "train_gpt2" if path.is_dir() else path
    if not path.is_file():
        raise ContenderError(f"there is no program train_gpt2 there; {how}")
    return path.resolve()


def write_files(folder: Path, source: Path) -> None:
    """Write what the program reads into ``folder``, from the contenders' common data."""
    weights = data.read_weights(source)
    stream = np.load(source / "stream.npy")
    save_llmc(folder / "gpt2_124M.bin", weights)
    shards = folder / "dev" / "data" / "tinyshakespeare"
    shards.mkdir(parents=True, exist_ok=True)
    for part in ("train", "val"):
        # Just one batch: the program shuffles batches, and this one it cannot.
        write_shard(shards / f"tiny_shakespeare_{part}.bin", stream)
    _write_tokenizer(folder / "gpt2_tokenizer.bin", weights.config.vocab_size)


def _write_tokenizer(path: Path, vocab_size: int) -> None:
    """Write a vocabulary in which every token is a dot: without one, the program may crash."""
    header = np.zeros(256, "<u4")
    header[:4] = 20240328, 2, vocab_size, vocab_size - 1
    path.write_bytes(header.tobytes() + b"\x01." * vocab_size)


class LLMC:
    """The program, with the methods of the other contenders."""

    def __init__(self, program: Path, folder: Path, threads: int, timeout: float) -> None:
        self.program, self.folder, self.timeout = program, folder, timeout
        self.environment = {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "false"}
        self.activations: int | None = None
        self._peak: int | None = None
        self.process: Process | None = None

    def set_up(self, source: str | Path) -> dict[str, Any]:
        """Write the files, and start the program."""
        _, batch, seq = data.read_shape(source)
        if (batch, seq) != (BATCH, SEQ):
            raise ContenderError(
                f"train_gpt2 is compiled for B={BATCH} T={SEQ}, not B={batch} T={seq}"
            )
        write_files(self.folder, Path(source))
        self._start()
        return {"version": "train_gpt2", "threads": int(self.environment["OMP_NUM_THREADS"])}

    def _start(self) -> None:
        self.close()
        self.process = Process(
            [str(self.program)], environment=self.environment, folder=self.folder, terminal=True
        )
        self.next_step = 0

    def steps(self, count: int) -> dict[str, Any]:
        """Return the seconds and the losses of the next steps, from the first one on."""
        assert self.process is not None
        self.process.wake()
        try:
            lines = [self._step() for _ in range(count)]
        finally:
            self._stop()
        return {"seconds": [line[1] for line in lines], "losses": [line[2] for line in lines]}

    def turn(self, count: int) -> dict[str, Any]:
        """Drop the step in which the program was stopped; return those that follow."""
        if self.next_step + 1 + count > LAST_STEP + 1:
            self._start()
            self.steps(1)  # memory is touched for the first time: not a step like the others
        everything = self.steps(1 + count)
        return {key: values[1:] for key, values in everything.items()}

    def _step(self) -> tuple[int, float, float]:
        """Read on to the next line of a step: (number, seconds, loss)."""
        assert self.process is not None
        while True:
            line = self.process.line(self.timeout)
            if found := ACTIVATIONS.search(line):
                self.activations = int(found[1])
            if found := STEP.search(line):
                number, loss, milliseconds = int(found[1]), float(found[2]), float(found[3])
                self.next_step = number + 1
                return number, milliseconds / 1000, loss

    def _stop(self) -> None:
        """Stop it where it is; of a small model it may have made some more steps by then."""
        assert self.process is not None
        self.process.sleep()
        for line in self.process.waiting_lines():
            if found := STEP.search(line):
                self.next_step = int(found[1]) + 1

    def peak_bytes(self) -> int | None:
        """Return the most memory that the program has had."""
        if self.process is not None:
            self._peak = max(peak_bytes(self.process.popen.pid) or 0, self._peak or 0) or None
        return self._peak

    def close(self) -> None:
        """End it."""
        if self.process is not None:
            self.peak_bytes()
            self.process.close()
            self.process = None
