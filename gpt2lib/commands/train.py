"""Train a model on a corpus, with checkpoints that survive a kill at any moment.

For instance:

  gpt2lib train --corpus stories --steps 200 --out run
  gpt2lib train --corpus my-texts/ --preset tiny --steps 2000 --out run2
  gpt2lib train --resume --out run2
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from gpt2lib._files import new_folder, one_writer

HELP = "train a model on a corpus"

# The highest learning rate that suits each size: Brown et al. (2020), table 2.1; tiny: our own.
_RATES = {"gpt2": 6e-4, "gpt2-medium": 3e-4, "gpt2-large": 2.5e-4, "gpt2-xl": 2e-4}
_WIDTH = 768  # C of the model that GPT-2's initial weights are for
# Options that are settings of TrainConfig, with the type of their value.
_SETTINGS: dict[str, tuple[Any, str]] = {
    "steps": (int, "steps in all (default 200); rates depend on it, so --resume keeps it"),
    "batch": (int, "sequences a step (default 16; 4 for the gpt2 sizes)"),
    "seq": (int, "tokens a sequence (default 128)"),
    "learning_rate": (float, "highest learning rate (default 3e-3; less for the gpt2 sizes)"),
    "final_rate": (float, "rate at the end, as a fraction of the highest (default 0.05)"),
    "warmup": (int, "steps on which the rate rises (default a tenth of --steps, at most 100)"),
    "weight_decay": (float, "decay of matrices (default 0; 0.1 for the gpt2 sizes)"),
    "clip": (float, "largest norm of the gradients (default 1)"),
    "accumulate": (int, "cut each batch into so many micro-batches, to save memory (default 1)"),
    "seed": (int, "seed of the weights and of the order of the data (default 0)"),
    "eval_every": (int, "steps between two validation losses (default 100)"),
    "eval_batches": (int, "validation batches to look at (default 16; 0: all)"),
    "checkpoint_every": (int, "steps between two checkpoints (default 100)"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options. Settings default to None, so that --resume sees what was asked for."""
    from gpt2lib.config import PRESETS
    from gpt2lib.data import CORPORA

    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the run")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")
    parser.add_argument(
        "--corpus",
        metavar="NAME|PATH",
        help=f"{', '.join(CORPORA)}, or a text file or folder (default stories)",
    )
    parser.add_argument("--documents", type=int, metavar="N", help="use so many documents")
    parser.add_argument(
        "--validation",
        type=float,
        metavar="SHARE",
        help="share of the documents that is kept for validation (default 0.1)",
    )
    parser.add_argument("--preset", choices=PRESETS, help="size of the model (default tiny)")
    parser.add_argument(
        "--init",
        metavar="NAME|PATH",
        help="begin with the weights of a trained model, and its tokenizer, instead of random "
        "weights: fine-tuning",
    )
    parser.add_argument(
        "--tokenizer",
        metavar="gpt2|bpe|PATH",
        help="gpt2's vocabulary, one trained on the corpus, or a file "
        "(default: bpe for tiny, gpt2 for the others)",
    )
    for name, (kind, text) in _SETTINGS.items():
        parser.add_argument(_option(name), type=kind, metavar="N", help=text)
    parser.add_argument(
        "--aligned",
        action=argparse.BooleanOptionalAction,
        help="begin every sequence where a document begins (default for stories)",
    )
    parser.add_argument("--backend", choices=("numpy", "numba"), default="numpy")
    parser.add_argument("--runtime", metavar="NAME", help="with numba: threads, openmp, …")
    parser.add_argument("--threads", type=int, metavar="N", help="with numba: how many threads")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    """Train, or continue training, and sum up."""
    out = Path(args.out)
    if args.resume and args.init is not None:
        raise ValueError(
            "--init begins a new run and --resume continues one: leave out one of them"
        )
    if args.resume:
        return _run(args, out)
    with new_folder(out), one_writer(out):
        return _run(args, out)


def _run(args: argparse.Namespace, out: Path) -> int:
    """Do as ``run`` does, in a folder that is there."""
    import numpy as np

    from gpt2lib.tokenizer import BPE
    from gpt2lib.train.loop import Trainer

    setup = _continued(args, out) if args.resume else _fresh(args, out)
    trainer = Trainer(
        setup["model"],
        setup["dataset"],
        setup["config"],
        out,
        resume=args.resume,
        corpus=setup["corpus"],
    )
    if not args.resume and isinstance(setup["dataset"].tokenizer, BPE):
        setup["dataset"].tokenizer.save(out / "tokenizer.json")
    for note in (*setup["notes"], *trainer.notes):
        print(f"note: {note}")
    _introduce(trainer)
    first = trainer.step
    try:
        with np.errstate(all="ignore"):  # a loss that is no number ends the run, in words
            trainer.run(progress=not args.quiet)
    except FloatingPointError as error:
        raise ValueError(f"step {trainer.step + 1}: {error}") from None
    _sum_up(trainer, first)
    return 0


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# ------------------------------------------------------------------------ a new run


def _fresh(args: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Make model, data and settings of a new run; the folder is checked before anything slow."""
    from gpt2lib.backend import load_backend
    from gpt2lib.config import GPT2Config
    from gpt2lib.data import Dataset
    from gpt2lib.data.corpus import check_request
    from gpt2lib.model import GPT2
    from gpt2lib.train.config import TrainConfig
    from gpt2lib.train.loop import prepare_folder

    if args.backend == "numpy":
        load_backend(**_backend(args))  # refuses --runtime and --threads before anything slow
    start = _trained(args)
    preset = args.preset or "tiny"
    shape = GPT2Config.preset(preset) if start is None else start.model.config
    if start is not None and shape.channels >= _WIDTH:
        preset = "gpt2"  # the settings of a large model suit it, whichever it is
    given = {name: value for name in _SETTINGS if (value := getattr(args, name)) is not None}
    name = "stories" if args.corpus is None else args.corpus
    check_request(name, args.documents)
    given["aligned"] = name == "stories" if args.aligned is None else args.aligned
    config = TrainConfig(**{**_defaults(preset, given), **given})
    shape.check_length(config.seq)
    prepare_folder(out, False, 12 * shape.parameter_count)
    spec = {
        "name": _place(name),
        "documents": args.documents,
        "validation": 0.1 if args.validation is None else args.validation,
    }
    corpus = _load(spec)
    if start is None:
        tokenizer, notes = _tokenizer(args.tokenizer, preset, corpus)
    else:
        tokenizer, notes = start.tokenizer, []
    dataset = Dataset.from_corpus(corpus, tokenizer)
    if args.batch is None:
        config, smaller = _fitting(config, dataset.train)
        notes += smaller
    if start is None:
        shape = GPT2Config.preset(preset, vocab_size=tokenizer.vocab_size)
        model = GPT2(shape, parameters=_initial(shape, config.seed), **_backend(args))
    else:
        model = start.model
    return {
        "model": model,
        "dataset": dataset,
        "config": config,
        "corpus": spec,
        "notes": [*corpus.notes, *notes],
    }


def _trained(args: argparse.Namespace) -> Any:
    """Return the trained model (and its tokenizer) to begin with, or None for random weights."""
    if args.init is None:
        return None
    if args.preset is not None or args.tokenizer is not None:
        raise ValueError("--init brings its own size and tokenizer: leave out --preset/--tokenizer")
    from gpt2lib.pretrained import load

    return load(args.init, **_backend(args))


def _defaults(preset: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that depend on the size of the model and the length of the run."""
    steps = given.get("steps", 200)
    settings: dict[str, Any] = {"warmup": min(100, steps // 10)}
    if preset != "tiny":
        settings |= {
            "batch": 4,
            "learning_rate": _RATES[preset],
            "weight_decay": 0.1,
            "betas": (0.9, 0.95),
        }
    return settings


def _initial(shape: Any, seed: int) -> Any:
    """Return fresh parameters, widened for a model that is narrower than GPT-2.

    A standard deviation of 0.02 suits C = 768: a product over C channels then comes out at about
    the size of its input. The same holds for another C with 0.02 sqrt(768 / C); with less, a
    narrow model spends its first steps growing its weights.
    """
    from gpt2lib.parameters import Parameters

    parameters = Parameters.initialize(shape, seed)
    if shape.channels < _WIDTH:
        parameters.flat[: parameters.decayed] *= math.sqrt(_WIDTH / shape.channels)
    return parameters


def _fitting(config: Any, stream: Any) -> tuple[Any, list[str]]:
    """Make a batch that nobody asked for smaller until a short text fills it at least once."""
    from dataclasses import replace

    from gpt2lib.data import Batches

    wanted = config.batch
    while config.batch > config.accumulate:
        try:
            Batches(stream, config.batch, config.seq, aligned=config.aligned)
            break
        except ValueError:
            smaller = config.batch // 2 // config.accumulate * config.accumulate
            config = replace(config, batch=max(smaller, config.accumulate))
    if config.batch == wanted:
        return config, []
    return config, [f"the text is short: a batch of {config.batch} sequences instead of {wanted}"]


def _tokenizer(choice: str | None, preset: str, corpus: Any) -> tuple[Any, list[str]]:
    """Return the tokenizer, and what is to be said of it."""
    from gpt2lib.config import PRESETS
    from gpt2lib.pretrained import PACKAGED_TOKENIZER
    from gpt2lib.tokenizer import BPE, load_tokenizer

    if choice is None and preset == "tiny":
        packaged = corpus.name == "stories" and PACKAGED_TOKENIZER.exists()
        choice = str(PACKAGED_TOKENIZER) if packaged else "bpe"
    if choice != "bpe":
        return load_tokenizer(choice or "gpt2"), []
    wanted = PRESETS[preset]["vocab_size"]
    tokenizer = BPE.train(corpus.train, wanted, name=Path(corpus.name).stem)
    if tokenizer.vocab_size == wanted:
        return tokenizer, []
    return tokenizer, [
        f"the training text has no pairs left to merge at {tokenizer.vocab_size} tokens "
        f"({wanted} were asked for); the model's vocabulary is that large"
    ]


def _place(name: str) -> str:
    """Return a corpus's name, or its path from the root, so that any folder will do to resume."""
    return str(Path(name).resolve()) if Path(name).exists() else name


def _load(spec: dict[str, Any]) -> Any:
    """Load a corpus from what a checkpoint says of it."""
    from gpt2lib.data import load_corpus

    return load_corpus(
        spec["name"], documents=spec["documents"], validation=spec.get("validation", 0.1)
    )


def _backend(args: argparse.Namespace) -> dict[str, Any]:
    return {"backend": args.backend, "runtime": args.runtime, "threads": args.threads}


# ---------------------------------------------------------------------- a continued run


def _continued(args: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Make model, data and settings as the checkpoint has them; refuse what contradicts it."""
    from dataclasses import replace

    from gpt2lib.data import Dataset
    from gpt2lib.model import GPT2
    from gpt2lib.parameters import Parameters
    from gpt2lib.tokenizer import load_tokenizer
    from gpt2lib.train import checkpoint as ckpt
    from gpt2lib.train.config import FREE, TrainConfig
    from gpt2lib.train.loop import prepare_folder

    prepare_folder(out, True, 0)
    path = out / ckpt.NAME
    checkpoint = ckpt.open_checkpoint(path)
    config = TrainConfig.from_dict(checkpoint.state["settings"])
    corpus = checkpoint.state["corpus"] or {}
    if "name" not in corpus:
        raise ValueError(f"{path} is of a run that began in Python: continue it there.")
    _refuse_contradictions(args, config, corpus, checkpoint.config, path)
    free = {name: value for name in FREE if (value := getattr(args, name)) is not None}
    own = out / "tokenizer.json"
    tokenizer = load_tokenizer(str(own) if own.exists() else checkpoint.file.metadata["tokenizer"])
    loaded = _load(corpus)
    return {
        # The checkpoint fills them; drawing fresh ones first would be for nothing.
        "model": GPT2(
            checkpoint.config, parameters=Parameters(checkpoint.config), **_backend(args)
        ),
        "dataset": Dataset.from_corpus(loaded, tokenizer),
        "config": replace(config, **free),
        "corpus": corpus,
        "notes": [],
    }


def _refuse_contradictions(
    args: argparse.Namespace, config: Any, corpus: dict[str, Any], shape: Any, path: Path
) -> None:
    """Compare every option that was given with what the run began with."""
    from gpt2lib.config import GPT2Config
    from gpt2lib.train.config import FREE

    began = {name: getattr(config, name) for name in (*_SETTINGS, "aligned") if name not in FREE}
    began |= {"corpus": corpus["name"]}
    began |= {name: corpus.get(name) for name in ("documents", "validation")}
    problems = [
        f"{_option(name)} was {value} and is {getattr(args, name)} now"
        for name, value in began.items()
        if getattr(args, name) not in (None, value)
        and not (name == "corpus" and _place(args.corpus) == value)
    ]
    if args.preset and GPT2Config.preset(args.preset, vocab_size=shape.vocab_size) != shape:
        problems.append(f"the model is not a {args.preset}")
    if args.tokenizer:
        problems.append("--tokenizer is the run's own and cannot be given again")
    if problems:
        raise ValueError(
            f"{path} cannot be continued like this: {'; '.join(problems)}. Leave those options "
            "out, or start a new run in another folder."
        )


# ------------------------------------------------------------------------------ words


def _introduce(trainer: Any) -> None:
    """Say what is about to be trained on what, and when it will not fit this machine."""
    from gpt2lib.perf.machine import memory_limit

    model, data = trainer.model, trainer.dataset
    per_epoch = trainer.batches.batches_per_epoch
    print(
        f"{model.config.parameter_count:,} parameters; {len(data.train):,} tokens to train on "
        f"({per_epoch} batches an epoch), {len(data.validation):,} to validate; "
        f"steps {trainer.step} to {trainer.config.steps}"
    )
    floor = "" if trainer.floor is None else f", the best possible {trainer.floor:.3f}"
    need = model.config.training_bytes(
        trainer.config.batch // trainer.config.accumulate, trainer.config.seq
    )
    there = memory_limit()
    if there is not None and need > there:
        print(
            f"note: this needs about {need / 1e9:.0f} GB of memory and may have "
            f"{there / 1e9:.0f}: take a smaller --preset or --batch, or more --accumulate"
        )
    print(f"knowing nothing costs {model.config.uniform_loss:.3f} nats a token{floor}")
    sys.stdout.flush()


def _sum_up(trainer: Any, first: int) -> None:
    """Say what came out, and what can be done with it."""
    history = trainer.history
    if trainer.step == first:
        print(f"nothing to do: all {first} steps were made already")
    if history:
        last = history[-1]
        print(f"loss {history[0]['loss']:.3f} at step 1, {last['loss']:.3f} at step {last['step']}")
        if "validation_loss" in last:
            loss = last["validation_loss"]
            text = f"validation loss {loss:.3f} nats a token"
            if trainer.floor is not None:
                over = 100 * (loss / trainer.floor - 1)
                text += f", {over:.0f} % over the floor of {trainer.floor:.3f}"
            print(text)
    out = str(trainer.out)
    quoted = json.dumps(out, ensure_ascii=False) if " " in out else out
    print(f"checkpoint: {trainer.checkpoint_path}")
    print(f'to hear it: gpt2lib generate --model {quoted} --prompt "Once upon a time"')
