"""The same bits for any number of threads and under every runtime; the same numbers as NumPy.

What is compared is everything that training leaves behind after ten steps: the losses, the
gradients of the last step, the weights. Threads and runtimes may differ in no bit of it. The NumPy
backend adds in another order, so with it the comparison is one of numbers.

Run as a program (``python -m tests.test_determinism SHAPE RUNTIME THREADS …``), this file makes the
ten steps once for each number of threads and prints digests: the runtimes are tested that way, each
in a process of its own.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from gpt2lib import kernels, runtimes
from gpt2lib.check import one_blas_thread
from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW, clip_scale
from gpt2lib.parameters import Parameters
from gpt2lib.runtimes import nosv

ROOT = Path(__file__).resolve().parents[1]
THREADS = (1, 2, 3, 5)
STEPS = 10


class Shape(NamedTuple):
    config: GPT2Config
    batch: int
    seq: int


# Idle machines need a few seconds for any of it; this is for the others.
pytestmark = pytest.mark.timeout(600)
at_gpt2s_widths = pytest.mark.slow

SHAPES = {
    "tiny": Shape(GPT2Config.preset("tiny"), 2, 48),
    # GPT-2's own widths; fewer layers, which repeat what one does, and few tokens.
    "gpt2": Shape(GPT2Config.preset("gpt2", layers=2), 1, 40),
    # Nothing is a multiple of anything: vectors, tiles and chunks all have remainders.
    "odd": Shape(GPT2Config(vocab_size=101, context=40, layers=2, heads=3, channels=39), 3, 37),
    "one token": Shape(GPT2Config.preset("tiny", layers=1), 1, 1),
    "three rows": Shape(GPT2Config.preset("tiny", layers=1), 1, 3),
}


class Outcome(NamedTuple):
    losses: list[float]
    gradients: Parameters
    weights: Parameters

    def digests(self) -> dict[str, Any]:
        """Return what two outcomes share only if they share every bit."""
        return {
            "losses": [loss.hex() for loss in self.losses],
            "gradients": hashlib.sha256(self.gradients.flat.tobytes()).hexdigest(),
            "weights": hashlib.sha256(self.weights.flat.tobytes()).hexdigest(),
        }


@functools.cache
def start(name: str) -> tuple[Parameters, np.ndarray, np.ndarray]:
    """Return weights (nothing zero, nothing one), ids and targets."""
    config, batch, seq = SHAPES[name]
    rng = np.random.default_rng(0)
    weights = Parameters(config)
    rng.random(out=weights.flat, dtype=np.float32)
    weights.flat -= np.float32(0.5)
    weights.flat *= np.float32(0.07)  # a standard deviation of 0.02, as GPT-2 begins
    for parameter, view in weights.items():
        if "ln_" in parameter and parameter.endswith("weight"):
            view += 1
    ids = rng.integers(0, config.vocab_size, (2, batch, seq))
    return weights, ids[0], ids[1]


def ten_steps(name: str, steps: int = STEPS, **backend: Any) -> Outcome:
    """Train: forward, backward, clipping, AdamW."""
    weights, ids, targets = start(name)
    model = GPT2(weights.config, parameters=weights.copy(), **backend)
    optimizer = AdamW(model.parameters, learning_rate=1e-4, ops=model.ops)
    losses = []
    for _ in range(steps):
        model.zero_gradients()
        losses.append(model.loss(ids, targets))
        model.backward()
        scale, _ = clip_scale(model.gradients, 1.0, model.ops)
        optimizer.step(model.gradients, gradient_scale=scale)
    return Outcome(losses, model.gradients, model.parameters)


@functools.cache
def on_one_thread(name: str) -> dict[str, Any]:
    return ten_steps(name, backend="numba", runtime="sequential").digests()


# ------------------------------------------------------------------------- threads


@pytest.mark.parametrize("name", [n for n in SHAPES if n != "gpt2"])
def test_any_number_of_threads_gives_the_same_bits(name):
    for threads in (*THREADS, 16):
        found = ten_steps(name, backend="numba", runtime="threads", threads=threads)
        assert found.digests() == on_one_thread(name), f"{threads} threads"


@at_gpt2s_widths
def test_any_number_of_threads_gives_the_same_bits_at_gpt2s_widths():
    for threads in THREADS[1:]:
        found = ten_steps("gpt2", backend="numba", runtime="threads", threads=threads)
        assert found.digests() == on_one_thread("gpt2"), f"{threads} threads"


def test_the_digests_tell_one_bit():
    """A comparison that cannot fail would prove nothing."""
    outcome = ten_steps("three rows", 1, backend="numba", runtime="sequential")
    before = outcome.digests()
    outcome.weights.flat.view(np.int32)[7] ^= 1
    assert outcome.digests() != before


def test_two_models_trained_at_once_get_the_bits_they_get_alone():
    """On one pool of threads, whose regions take turns, and on two pools."""
    for numbers in ((2, 2), (2, 3)):
        found: dict[int, Any] = {}

        def train(place: int, threads: int, found: dict[int, Any] = found) -> None:
            found[place] = ten_steps(
                ("tiny", "odd")[place], backend="numba", runtime="threads", threads=threads
            ).digests()

        both = [threading.Thread(target=train, args=pair) for pair in enumerate(numbers)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert found == {0: on_one_thread("tiny"), 1: on_one_thread("odd")}


# ------------------------------------------------------------------------- runtimes


def in_a_process(name: str, runtime: str, numbers: list[int], **environment: str) -> dict[str, Any]:
    """Make the steps under a runtime in a fresh process; return digests by number of threads."""
    command = [sys.executable, "-m", "tests.test_determinism", name, runtime, *map(str, numbers)]
    if runtime == "nosv":
        launcher = [sys.executable, "-m", "gpt2lib.runtimes.launch", "--runtime", "nosv", "--"]
        command = [*launcher, *command]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=280)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # a launcher's child too
        raise
    assert process.returncode == 0, errors[-2000:]
    return json.loads(output.splitlines()[-1])


def numbers_for(runtime: str) -> list[int]:
    """Return the numbers of threads to try, the largest first; skip where the runtime is not."""
    if runtime == "sequential":
        return [1]
    if runtime == "nosv":
        if not nosv.find_library():
            pytest.skip("libnosv.so was not found (set NOSV_HOME to where nOS-V is installed)")
        return list(range(min(len(os.sched_getaffinity(0)), 3), 0, -1))  # a core for each
    state = runtimes.available()[runtime]
    if not state.ok:
        pytest.skip(f"{runtime}: {state.reason}; {state.how_to_get}")
    return sorted(THREADS, reverse=True)


def test_code_just_compiled_gives_the_bits_of_code_from_the_disk(tmp_path):
    """The first process of all compiles, the next does not, and may go on with its training."""
    first, next_one = (
        in_a_process("tiny", "sequential", [1], GPT2LIB_CACHE_DIR=str(tmp_path)) for _ in range(2)
    )
    assert first == next_one == {"1": on_one_thread("tiny")}


@pytest.mark.parametrize("runtime", runtimes.NAMES)
def test_every_runtime_gives_the_same_bits(runtime):
    numbers = numbers_for(runtime)
    found = in_a_process("tiny", runtime, numbers)
    assert found == {str(number): on_one_thread("tiny") for number in numbers}


@at_gpt2s_widths
@pytest.mark.parametrize(
    "runtime", [n for n in runtimes.NAMES if n not in ("sequential", "threads")]
)
def test_every_runtime_gives_the_same_bits_at_gpt2s_widths(runtime):
    number = min(2, numbers_for(runtime)[0])
    found = in_a_process("gpt2", runtime, [number])
    assert found == {str(number): on_one_thread("gpt2")}


# ------------------------------------------------------------------------- NumPy


@pytest.mark.parametrize("name", ["tiny", "odd", pytest.param("gpt2", marks=at_gpt2s_widths)])
def test_numpy_computes_the_same_numbers(name):
    """Losses of ten steps, the first gradients, the last weights: all within 1e-5.

    Left out are the keys' biases. Such a bias moves all scores of a row alike, which changes no
    probability: its true gradient is zero. What rounding leaves there AdamW divides by its own
    size and makes steps of.
    """
    with one_blas_thread():
        expected, first = ten_steps(name, backend="numpy"), ten_steps(name, 1, backend="numpy")
    found = ten_steps(name, backend="numba", runtime="sequential")
    begun = ten_steps(name, 1, backend="numba", runtime="sequential")
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-5)
    for parameter, gradient in first.gradients.items():
        assert distance(begun.gradients[parameter], gradient) < 1e-5, parameter
    C = found.weights.config.channels
    for outcome in (found, expected):
        for parameter, value in outcome.weights.items():
            if parameter.endswith("c_attn.bias"):
                value[C : 2 * C] = 0
    for parameter, value in expected.weights.items():
        assert distance(found.weights[parameter], value) < 1e-5, parameter


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the norm of the difference relative to the norm, in float64."""
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


# ------------------------------------------------------------------------- sums that collide

ROWS = 4096


@pytest.fixture(scope="module")
def collision():
    """Return a gradient (32, 128, 64) whose rows all belong to one token."""
    rng = np.random.default_rng(1)
    dout = rng.standard_normal((32, 128, 64), np.float32)
    return dout, np.full((32, 128), 7), rng.standard_normal((32, 128, 64), np.float32)


@pytest.mark.parametrize("threads", THREADS)
def test_a_token_that_occurs_4096_times_gets_the_sum_of_all(collision, threads):
    dout, ids, _ = collision
    ops = kernels.load("threads", threads)
    first = None
    for _ in range(50):
        dwte, dwpe = np.zeros((11, 64), np.float32), np.zeros((128, 64), np.float32)
        ops.embedding_backward(dout, ids, dwte=dwte, dwpe=dwpe)
        first = first or (dwte.tobytes(), dwpe.tobytes())
        assert (dwte.tobytes(), dwpe.tobytes()) == first
    sums = dout.astype(np.float64).sum((0, 1))
    assert distance(dwte[7], sums) < 1e-5
    assert distance(dwpe, dout.astype(np.float64).sum(0)) < 1e-5
    assert not np.delete(dwte, 7, axis=0).any()
    assert first == reference_bits("embedding", collision)


@pytest.mark.parametrize("threads", THREADS)
def test_biases_and_gains_get_the_sum_over_4096_rows(collision, threads):
    dout, _, x = collision
    ops = kernels.load("threads", threads)
    first = None
    for _ in range(20):
        found = biases_and_gains(ops, dout, x)
        first = first or [array.tobytes() for array in found]
        assert [array.tobytes() for array in found] == first
    assert first == reference_bits("biases", collision)
    rows, inputs = (a.reshape(ROWS, 64).astype(np.float64) for a in (dout, x))
    scaled = (inputs - inputs.mean(1, keepdims=True)) / np.sqrt(inputs.var(1, keepdims=True) + 1e-5)
    dbias, dgain, dshift = found
    assert distance(dbias, rows.sum(0)) < 1e-5
    assert distance(dgain, (rows * scaled).sum(0)) < 1e-5
    assert distance(dshift, rows.sum(0)) < 1e-5


def biases_and_gains(ops, dout, x):
    """Return the gradients of a linear layer's bias and of a LayerNorm's gain and bias."""
    weight = np.eye(64, dtype=np.float32)
    _, _, dbias = ops.linear_backward(dout, x, weight)
    gain = np.ones(64, np.float32)
    _, mean, rstd = ops.layernorm_forward(x, gain, np.zeros(64, np.float32))
    _, dgain, dshift = ops.layernorm_backward(dout, x, gain, mean, rstd)
    return dbias, dgain, dshift


_BITS: dict[str, Any] = {}


def reference_bits(what, collision):
    """Return the bits that one thread computes."""
    if what not in _BITS:
        ops = kernels.load("sequential")
        dout, ids, x = collision
        if what == "embedding":
            dwte, dwpe = np.zeros((11, 64), np.float32), np.zeros((128, 64), np.float32)
            ops.embedding_backward(dout, ids, dwte=dwte, dwpe=dwpe)
            _BITS[what] = dwte.tobytes(), dwpe.tobytes()
        else:
            _BITS[what] = [array.tobytes() for array in biases_and_gains(ops, dout, x)]
    return _BITS[what]


def test_a_batch_of_one_repeated_token_trains_alike_on_any_number_of_threads():
    weights, _, _ = start("tiny")
    ids = np.full((32, 128), 7)
    found = []
    for threads in (1, 2, 5):
        model = GPT2(weights.config, parameters=weights.copy(), backend="numba", threads=threads)
        loss = model.loss(ids, ids)
        model.backward()
        found.append((loss, model.gradients.flat.tobytes()))
    assert found[0] == found[1] == found[2]


def print_digests(name: str, runtime: str, numbers: list[int]) -> None:
    """Make the steps on each number of threads; print digests as JSON."""
    found = {}
    for number in numbers:
        outcome = ten_steps(name, backend="numba", runtime=runtime, threads=number)
        found[number] = outcome.digests()
        if runtime == "nosv":  # of which there is one in a process, with one number of cores
            runtimes.get(runtime, number).close()
    print(json.dumps(found))


if __name__ == "__main__":
    print_digests(sys.argv[1], sys.argv[2], [int(number) for number in sys.argv[3:]])
