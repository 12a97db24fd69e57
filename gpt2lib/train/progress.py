"""What a training run shows while it runs: tqdm's bar, in a notebook its widget."""

from __future__ import annotations

import sys
import warnings
from types import TracebackType
from typing import Any

from gpt2lib.train.log import Record


class Progress:
    """A bar with loss, validation loss, tokens/s and time left.

    Where there is neither a terminal nor a notebook (output to a file), a bar would be a mess of
    carriage returns: there it is a line at every evaluation.

    Parameters
    ----------
    done, total
        Steps made before, and steps in all.
    tokens
        Tokens a step.
    floor
        The best possible validation loss, where it is known.
    show
        False for nothing at all.
    """

    def __init__(
        self, done: int, total: int, tokens: int, floor: float | None, show: bool = True
    ) -> None:
        self._floor, self._tokens, self._total = floor, tokens, total
        self._average: float | None = None
        self._rate: float | None = None
        self._validation = ""
        self._bar: Any = None
        self._lines = False
        if not show:
            return
        tqdm = _tqdm()
        in_notebook = "notebook" in tqdm.__module__
        self._lines = not in_notebook and not sys.stderr.isatty()
        if not self._lines:
            self._bar = tqdm(initial=done, total=total, unit="step", dynamic_ncols=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, record: Record) -> None:
        """Bring the display up to date with a step."""
        self._average = _smooth(self._average, record["loss"])
        self._rate = _smooth(self._rate, record["tokens_per_second"])
        if "validation_loss" in record:
            self._validation = f", val {record['validation_loss']:.3f}"
            if self._floor is not None:
                self._validation += f" (floor {self._floor:.3f})"
        text = f"loss {self._average:.3f}{self._validation}, {self._rate:,.0f} tok/s"
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update()
        elif self._lines and "validation_loss" in record:
            left = (self._total - record["step"]) * self._tokens / self._rate
            line = f"step {record['step']}/{self._total}: {text}, {_minutes(left)} left"
            print(line, file=sys.stderr, flush=True)


def _tqdm() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm warns where a notebook has no widgets; the bar works
        from tqdm.auto import tqdm
    return tqdm


def _smooth(average: float | None, value: float) -> float:
    return value if average is None else 0.9 * average + 0.1 * value


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
