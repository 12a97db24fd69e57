"""The training loop: batch, loss, backward, clip, step, again; and what makes it survive a kill."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np

from gpt2lib._files import atomic_write, one_writer
from gpt2lib.data import Batches, validation_rows
from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW, clip_scale, cosine_schedule
from gpt2lib.train import checkpoint as ckpt
from gpt2lib.train.config import TrainConfig
from gpt2lib.train.evaluate import IGNORED, evaluate, windows
from gpt2lib.train.interrupt import Interrupts
from gpt2lib.train.log import Log, Record
from gpt2lib.train.progress import Progress
from gpt2lib.weights.model_file import save_model

Array = np.ndarray[Any, Any]


class Trainer:
    """Trains a model on a dataset.

    Parameters
    ----------
    model
        Changed in place. Its backend computes everything.
    dataset
        A :class:`gpt2lib.data.Dataset`: two token streams, a tokenizer, perhaps a floor.
    config
        The settings; by default those of :class:`~gpt2lib.train.config.TrainConfig`.
    out
        A folder for ``log.jsonl``, ``checkpoint.safetensors`` and ``model.safetensors``; None
        keeps nothing on disk.
    resume
        Whether to continue the run whose checkpoint is in ``out``.
    corpus
        What the dataset was made of, to be written down beside the weights (JSON-able).

    Attributes
    ----------
    history
        One record a step: ``step``, ``loss``, ``learning_rate``, ``gradient_norm``,
        ``tokens_per_second``, ``seconds``; where it was evaluated ``validation_loss``, and
        ``floor`` where it is known.
    step
        How many steps have been made.

    Raises
    ------
    ValueError
        When ``out`` cannot be written to, holds a run already (and ``resume`` is off), holds none
        (and it is on), or one with other settings, data or tokenizer.

    Examples
    --------
    >>> trainer = Trainer(model, dataset, TrainConfig(steps=100), out="run")  # doctest: +SKIP
    >>> history = trainer.run()                                               # doctest: +SKIP
    """

    def __init__(
        self,
        model: GPT2,
        dataset: Any,
        config: TrainConfig | None = None,
        out: str | os.PathLike[str] | None = None,
        *,
        resume: bool = False,
        corpus: Any = None,
    ) -> None:
        self.model, self.dataset, self.corpus = model, dataset, corpus
        self.config = c = config or TrainConfig()
        model.config.check_length(c.seq)
        _check_vocabulary(model, dataset)
        self.out = None if out is None else Path(out)
        self.optimizer = AdamW(
            model.parameters,
            learning_rate=c.learning_rate,
            betas=c.betas,
            eps=c.eps,
            weight_decay=c.weight_decay,
            decay_all=c.decay_all,
            ops=model.ops,
        )
        self.batches = Batches(dataset.train, c.batch, c.seq, rng=c.seed, aligned=c.aligned)
        self._rows = self._validation_rows()
        self._digests = {"data": ckpt.data_digest(dataset)}
        self._digests["tokenizer"] = ckpt.tokenizer_digest(dataset.tokenizer)
        self.floor: float | None = dataset.floor
        self.seconds = 0.0
        self.history: list[Record] = []
        self.notes: list[str] = []
        if self.out is not None:
            prepare_folder(self.out, resume, 12 * model.config.parameter_count)
        if resume:
            self._resume()

    # --------------------------------------------------------------------- running

    @property
    def step(self) -> int:
        """How many steps have been made."""
        return self.optimizer.t

    def run(self, *, until: int | None = None, progress: bool = True) -> list[Record]:
        """Train to the end, with a bar that shows loss, tokens/s and the time left.

        Ctrl-C (or interrupting a notebook's kernel) lets the step that runs come to its end,
        writes a checkpoint, and raises. The model is then usable, and ``run()`` goes on.

        Parameters
        ----------
        until
            Stop after this step, with a checkpoint; by default at ``config.steps``.
        progress
            Whether to show the bar.

        Returns
        -------
        list
            :attr:`history`.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C; its text says what was saved and how to go on.
        """
        stop = self.config.steps if until is None else min(until, self.config.steps)
        bar = Progress(self.step, stop, self.config.batch * self.config.seq, self.floor, progress)
        with Interrupts() as interrupts, bar, contextlib.closing(self.steps(until=stop)) as steps:
            for record in steps:
                bar.show(record)
                if interrupts.asked and self.step < stop:
                    raise KeyboardInterrupt(self.interrupted())
        return self.history

    def steps(self, *, until: int | None = None) -> Generator[Record, None, None]:
        """Make one step after the other, handing out the record of each.

        The loop body is the caller's: draw, print, change a head mask, stop. Leaving the loop
        early writes a checkpoint (where there is an ``out``).

        Parameters
        ----------
        until
            Stop after this step; by default at ``config.steps``.

        Yields
        ------
        dict
            As in :attr:`history`.

        Raises
        ------
        ValueError
            When another run is writing to ``out``.
        """
        stop = self.config.steps if until is None else min(until, self.config.steps)
        with contextlib.nullcontext() if self.out is None else one_writer(self.out):
            yield from self._steps(stop)

    def _steps(self, stop: int) -> Generator[Record, None, None]:
        """Do as ``steps`` does, in a folder that nobody else writes to."""
        log = Log(self.out / "log.jsonl", self.step) if self.out is not None else None
        if log is not None:
            self.history = list(log.records)
        saved = self.step
        try:
            while self.step < stop:
                record = self._step()  # what raises in here leaves a step half made: not saved
                self.history.append(record)
                if log is not None:
                    log.write(record)
                if self._due(self.config.checkpoint_every):
                    self.save()
                    saved = self.step
                yield record
        except GeneratorExit:
            if self.step != saved:
                self.save()
            raise
        finally:
            if log is not None:
                log.close()
        if self.step != saved:
            self.save()
        if self.out is not None and self.step == self.config.steps:
            self._save_model()

    def _step(self) -> Record:
        """Make one step; return what is to be known of it."""
        began = time.perf_counter()
        c = self.config
        ids, targets = self.batches.next()  # (B, T) each
        self.model.zero_gradients()
        loss = accumulate(self.model, ids, targets, c.accumulate)
        scale, norm = clip_scale(self.model.gradients, c.clip, self.model.ops)
        rate = cosine_schedule(
            self.step,
            max_rate=c.learning_rate,
            min_rate=c.learning_rate * c.final_rate,
            warmup=c.warmup,
            steps=c.steps,
        )
        self.optimizer.step(self.model.gradients, rate, scale)
        took = time.perf_counter() - began
        self.seconds += took
        record: Record = {
            "step": self.step,
            "loss": loss,
            "learning_rate": rate,
            "gradient_norm": norm,
            "tokens_per_second": round(ids.size / took, 1),
            "seconds": round(self.seconds, 3),
        }
        if self._due(c.eval_every):
            record["validation_loss"] = self.evaluate()
            if self.floor is not None:
                record["floor"] = self.floor
        return record

    def _due(self, every: int) -> bool:
        """Say whether something that happens every so many steps, and at the end, happens now."""
        return self.step == self.config.steps or (every > 0 and self.step % every == 0)

    # ------------------------------------------------------------------ evaluating

    def evaluate(self) -> float:
        """Return the validation loss in nats a token: always over the same tokens."""
        c = self.config
        return evaluate(self.model, *self._rows, batch=c.batch, batches=c.eval_batches or None)

    def _validation_rows(self) -> tuple[Array, Array]:
        """Return what to evaluate on: whole documents where a floor is to be compared with."""
        stream, seq = self.dataset.validation, self.config.seq
        if self.dataset.floor is not None:
            ids, targets = validation_rows(stream, seq)
            return ids, targets
        if len(stream.tokens) < 2:
            raise ValueError(
                f"the validation side of the corpus has {len(stream.tokens)} tokens; at least 2 "
                "are needed. Take a larger corpus, or more of it for validation."
            )
        return windows(stream.tokens, seq)

    # ---------------------------------------------------------- saving and resuming

    @property
    def checkpoint_path(self) -> Path | None:
        """Where the checkpoint is."""
        return None if self.out is None else self.out / ckpt.NAME

    def save(self) -> None:
        """Write the checkpoint, if there is a folder for it."""
        path = self.checkpoint_path
        if path is None:
            return
        state = {
            "step": self.step,
            "settings": self.config.to_dict(),
            "batches": self.batches.state(),
            **self._digests,
            "corpus": self.corpus,
            "seconds": self.seconds,
            "backend": backend_name(self.model),
        }
        ckpt.save_checkpoint(path, self.optimizer, state, **self._model_notes())

    def _save_model(self) -> None:
        """Write the weights alone: a third of the checkpoint, for who only wants to generate."""
        assert self.out is not None
        last = self.history[-1] if self.history else {}
        notes = self._model_notes()
        notes["trained"] = json.dumps(
            {"settings": self.config.to_dict(), "corpus": self.corpus, "last": last}
        )
        save_model(self.out / "model.safetensors", self.model, metadata=notes)

    def _model_notes(self) -> dict[str, str]:
        return {
            "tokenizer": self.dataset.tokenizer.name,
            "tokenizer_sha256": self._digests["tokenizer"],
        }

    def _resume(self) -> None:
        """Continue where the checkpoint stands."""
        path = self.checkpoint_path
        if path is None:
            raise ValueError("to resume, say where the run is (out).")
        checkpoint = ckpt.open_checkpoint(path)
        state = checkpoint.state
        problems = TrainConfig.from_dict(state["settings"]).contradictions(self.config)
        if state["tokenizer"] != self._digests["tokenizer"]:
            problems.append("the tokenizer is another one")
        elif state["data"] != self._digests["data"]:
            problems.append("the corpus has other tokens")
        if problems:
            raise ValueError(
                f"{path} cannot be continued like this: {'; '.join(problems)}. Continue with the "
                "run's own settings, or start a new run in another folder."
            )
        ckpt.restore_optimizer(checkpoint, self.optimizer)
        self.batches.restore(state["batches"])
        self.seconds = float(state["seconds"])
        now = backend_name(self.model)
        if state["backend"] != now:
            self.notes.append(
                f"the run began with the {state['backend']} backend and goes on with {now}: "
                "right, but not equal to the last bit"
            )
        assert self.out is not None
        log = Log(self.out / "log.jsonl", self.step)
        self.history = log.records
        log.close()

    def interrupted(self) -> str:
        """Say after which step a run was stopped, what is saved, and how to go on."""
        where = f"stopped after step {self.step} of {self.config.steps}"
        if self.out is None:
            return f"{where}; nothing was saved (no out folder), run() goes on from here"
        return f"{where}; saved {self.checkpoint_path}; to go on: gpt2lib train --resume --out " + (
            f'"{self.out}"' if " " in str(self.out) else str(self.out)
        )


def accumulate(model: GPT2, ids: Array, targets: Array, parts: int = 1) -> float:
    r"""Add the gradient of a batch's loss, computed in several micro-batches.

    .. math::
        \mathrm{loss} = \sum_k \frac{n_k}{n}\,\mathrm{loss}_k

    with :math:`n_k` the targets that count in micro-batch k and n those of all: a mean of means
    would give a token in a half-empty micro-batch twice the weight.

    Parameters
    ----------
    model
        Its gradients are added to, so clear them first.
    ids, targets
        (B, T).
    parts
        How many micro-batches; must divide B.

    Returns
    -------
    float
        The loss of the whole batch, in nats a token.
    """
    if parts < 1 or len(ids) % parts:
        raise ValueError(f"a batch of {len(ids)} cannot be cut into {parts} equal micro-batches.")
    counted = int((targets != IGNORED).sum())
    loss = 0.0
    for x, y in zip(np.split(ids, parts), np.split(targets, parts), strict=True):
        share = int((y != IGNORED).sum()) / max(counted, 1)
        loss += share * model.loss(x, y)
        model.backward(share)
    return loss


def prepare_folder(out: Path, resume: bool, size: int) -> None:
    """Make the run's folder and make sure, before the first step, that the run can be kept there.

    Parameters
    ----------
    out
        The folder.
    resume
        Whether there must be a run in it, or must not.
    size
        Bytes of a checkpoint; two must fit, the old one and the new one.

    Raises
    ------
    ValueError
        Saying what is wrong with the folder.
    """
    if out == Path():  # what an empty name becomes
        raise ValueError(
            "--out names no folder: give the run a folder of its own, such as runs/one."
        )
    try:
        has_run = (out / ckpt.NAME).exists()
        if not has_run and (out / "log.jsonl").exists():
            raise ValueError(
                f"{out} holds the log of a run that ended before its first checkpoint: there is "
                "nothing to go on from. Remove the folder, or choose another."
            )
        if resume and not has_run:
            raise ValueError(f"{out} holds no {ckpt.NAME}: there is no run to resume.")
        if not resume and has_run:
            raise ValueError(
                f"{out} already holds a run: continue it with --resume (resume=True), or choose "
                "another folder."
            )
        out.mkdir(parents=True, exist_ok=True)
        with one_writer(out):
            for stale in out.glob(f".{ckpt.NAME[:40]}.*.part"):  # left by a kill in a save
                stale.unlink()
            probe = out / ".writable"
            with atomic_write(probe) as temporary:
                temporary.write_bytes(b"x")
            probe.unlink()
        free = shutil.disk_usage(out).free
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"the run cannot be kept in {out}: {reason}.") from None
    needed = (1 if resume else 2) * size
    if free < needed:
        raise ValueError(
            f"{out} has {free / 1e6:,.0f} MB free; two checkpoints need {needed / 1e6:,.0f} MB."
        )


def backend_name(model: GPT2) -> str:
    """Return which backend computes for a model: ``numpy`` or ``numba``."""
    return "numpy" if getattr(model.ops, "__name__", "") == "gpt2lib.ops" else "numba"


def _check_vocabulary(model: GPT2, dataset: Any) -> None:
    if dataset.tokenizer.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer {dataset.tokenizer.name} has {dataset.tokenizer.vocab_size} tokens, "
            f"the model a vocabulary of {model.config.vocab_size}."
        )
