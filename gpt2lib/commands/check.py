"""Check the gradients: every backward against finite differences of its forward, in float64.

First each operation by itself, then the whole model, tensor by tensor. Exit status 0 when all
agree, 1 when one does not.
"""

from __future__ import annotations

import argparse

HELP = "check that the backward is the gradient of the forward"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--preset", default="tiny", help="shape of the model (default: tiny)")
    parser.add_argument("--backend", default="numpy", help="numpy or numba (default: numpy)")
    parser.add_argument(
        "--samples",
        type=int,
        default=4,
        help="entries of each tensor to move one by one; all move together too (default: 4)",
    )
    parser.add_argument("--seed", type=int, default=0, help="for what is drawn (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Print both reports; return the exit status."""
    from gpt2lib.backend import load_backend
    from gpt2lib.check import check_gradients
    from gpt2lib.config import GPT2Config
    from gpt2lib.opcheck import check_operations

    config = GPT2Config.preset(args.preset)
    if args.seed < 0:
        raise ValueError(f"--seed must not be negative, got {args.seed}.")
    if args.samples < 1:
        raise ValueError(f"--samples: at least one entry a tensor, got {args.samples}.")
    operations = check_operations(load_backend(args.backend), seed=args.seed)
    print(f"{args.backend}: {operations}\n", flush=True)
    model = check_gradients(config, samples=args.samples, seed=args.seed, backend=args.backend)
    print(f"{args.preset}, {args.backend}: {model}")
    if operations.ok and model.ok:
        return 0
    print(f"wrong: {', '.join(operations.failed + model.failed)}")
    return 1
