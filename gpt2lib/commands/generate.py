"""Continue a text: with the small model of this package, one of your own, or GPT-2.

The text appears as it is drawn and ends where the model ends it, or after --tokens. The same seed
gives the same text.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator

HELP = "let a model continue a text"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--prompt", default="", help="how the text begins (default: with nothing)")
    parser.add_argument(
        "--model",
        default="tiny",
        help="tiny, gpt2 … gpt2-xl, the folder of a run, or a weight file (default: tiny)",
    )
    parser.add_argument("--tokens", type=int, default=200, help="at most so many (default: 200)")
    how = parser.add_argument_group("how to draw")
    how.add_argument(
        "--temperature",
        type=float,
        help="below 1 sharper, above 1 flatter, 0 the most probable always (default: 0.8)",
    )
    how.add_argument("--top-k", type=int, help="only among so many tokens")
    how.add_argument("--top-p", type=float, help="only among the tokens that make up this share")
    how.add_argument("--greedy", action="store_true", help="the same as --temperature 0")
    how.add_argument(
        "--seed", type=int, help="draw the same text again (default: another each time)"
    )
    parser.add_argument(
        "--heads-off",
        metavar="L.H,...",
        help="switch attention heads off, such as 1.0,2.3: layer and head, counted from 0",
    )
    parser.add_argument("--ignore-end", action="store_true", help="go on after the end of the text")
    run_group = parser.add_argument_group("how to run")
    run_group.add_argument("--no-cache", action="store_true", help="read the text anew each time")
    run_group.add_argument("--backend", default="numpy", help="numpy or numba (default: numpy)")
    run_group.add_argument("--runtime", help="for numba: who runs the chunks (default: threads)")
    run_group.add_argument("--threads", type=int, help="for numba: on how many threads")
    run_group.add_argument("--verbose", action="store_true", help="the speed, on stderr")


def run(args: argparse.Namespace) -> int:
    """Print the prompt and its continuation; return the exit status."""
    from gpt2lib.ablation import heads_off
    from gpt2lib.generate import check_sampling, generate_text
    from gpt2lib.pretrained import load

    temperature = _temperature(args.greedy, args.temperature)
    check_sampling(temperature, args.top_k, args.top_p)  # before a large model is read
    if args.seed is not None and args.seed < 0:
        raise ValueError(f"--seed must not be negative, got {args.seed}.")
    off = None if args.heads_off is None else _heads(args.heads_off)
    model, tokenizer = load(
        args.model, backend=args.backend, runtime=args.runtime, threads=args.threads
    )
    mask = None if off is None else heads_off(model.config, off)
    length, context = len(tokenizer.encode(args.prompt)), model.config.context
    if length > context:
        print(
            f"gpt2lib generate: the prompt has {length} tokens and the model reads {context}: "
            "only the end of the prompt counts.",
            file=sys.stderr,
        )
    drawn: list[int] = []
    pieces = generate_text(
        model,
        tokenizer,
        args.prompt,
        tokens=args.tokens,
        ignore_end=args.ignore_end,
        drawn=drawn,
        temperature=temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        rng=args.seed,
        cache=not args.no_cache,
        head_mask=mask,
    )
    start = time.perf_counter()
    try:
        _stream(args.prompt, pieces)
    finally:
        if args.verbose:
            seconds = time.perf_counter() - start
            speed = f"{len(drawn)} tokens in {seconds:.2f} s, {len(drawn) / seconds:.1f} tokens/s"
            print(speed, file=sys.stderr)
    return 0


def _temperature(greedy: bool, temperature: float | None) -> float:
    """Return the temperature that two options ask for, which must agree."""
    if greedy and temperature:
        raise ValueError(
            f"--greedy is a temperature of 0, and --temperature says {temperature}: give one of "
            "the two."
        )
    return 0.0 if greedy else 0.8 if temperature is None else temperature


def _heads(text: str) -> list[tuple[int, int]]:
    """Read "1.0,2.3" as pairs of layer and head."""
    pairs = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)\.(\d+)\s*", part, re.ASCII)
        if not found:
            raise ValueError(
                f"--heads-off: {part!r} is no head; write layer.head, counted from 0, with commas "
                "between several: 1.0,2.3."
            )
        pairs.append((int(found[1]), int(found[2])))
    return pairs


def _stream(prompt: str, pieces: Iterator[str]) -> None:
    """Print the prompt, then each piece as it comes."""
    try:
        print(prompt, end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
    finally:  # after Ctrl-C too: what follows shall not stand in the middle of the text
        print(flush=True)
