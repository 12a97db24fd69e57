from __future__ import annotations

import math

import numpy as np
import pytest

from gpt2lib.config import GPT2Config
from gpt2lib.parameters import Parameters, parameter_shapes

CONFIG = GPT2Config(vocab_size=65, context=9, layers=3, heads=2, channels=64)


def test_names_are_those_of_gpt2s_checkpoints():
    block = [
        "ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias",
        "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias",
        "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias",
    ]  # fmt: skip
    names = {"wte", "wpe", "ln_f.weight", "ln_f.bias"}
    names |= {f"h.{layer}.{part}" for layer in range(3) for part in block}
    assert set(parameter_shapes(CONFIG)) == names


def test_weights_are_in_by_out():
    shapes = parameter_shapes(CONFIG)
    assert shapes["h.1.attn.c_attn.weight"] == (64, 192)
    assert shapes["h.1.mlp.c_fc.weight"] == (64, 256)
    assert shapes["h.1.mlp.c_proj.weight"] == (256, 64)
    assert shapes["wte"] == (65, 64)
    assert shapes["wpe"] == (9, 64)


def test_every_number_of_the_buffer_belongs_to_exactly_one_tensor():
    p = Parameters(CONFIG)
    for view in p.values():
        assert np.shares_memory(view, p.flat)
        assert view.flags.c_contiguous
        view += 1
    assert (p.flat == 1).all()
    assert p.flat.size == CONFIG.parameter_count


def test_what_decays_is_the_matrices_and_nothing_else():
    p = Parameters(CONFIG)
    p.flat[: p.decayed] = 1
    for name, view in p.items():
        assert (view == (1 if view.ndim == 2 else 0)).all(), name


@pytest.mark.parametrize("seed", range(3))
def test_initial_values(seed):
    p = Parameters.initialize(CONFIG, seed)
    for name, view in p.items():
        if view.ndim == 1:
            assert (view == (1 if name.endswith("weight") else 0)).all(), name
            continue
        std = 0.02 / math.sqrt(2 * 3) if name.endswith("c_proj.weight") else 0.02
        assert float(view.std()) == pytest.approx(std, rel=3 / math.sqrt(view.size)), name
        assert abs(float(view.mean())) < 5 * std / math.sqrt(view.size), name


def test_initial_values_are_those_of_the_seed():
    a, b = Parameters.initialize(CONFIG, 5), Parameters.initialize(CONFIG, np.random.default_rng(5))
    assert a.flat.tobytes() == b.flat.tobytes()
    assert (a.flat != Parameters.initialize(CONFIG, 6).flat).any()
    wide = Parameters.initialize(CONFIG, 5, np.float64)
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide.flat, a.flat, rtol=1e-7, atol=1e-12)


def test_copies_are_independent():
    p = Parameters.initialize(CONFIG, 0)
    other, zeros, wide = p.copy(), p.zeros_like(), p.astype(np.float64)
    p["wte"][0] = 7
    assert (other["wte"][0] != 7).all()
    assert not zeros.flat.any()
    assert (wide.dtype, zeros.dtype) == (np.float64, np.float32)
    assert (wide["wte"][0] != 7).all()


def test_looks_into_a_given_buffer():
    flat = np.arange(CONFIG.parameter_count, dtype=np.float32)
    p = Parameters(CONFIG, flat=flat)
    p["wte"][0, 0] = -1
    assert flat[0] == -1


def test_refuses_another_buffer():
    n = CONFIG.parameter_count
    for flat in (np.zeros(n - 1), np.zeros((1, n)), np.zeros(2 * n)[::2]):
        with pytest.raises(ValueError, match=f"{n:,}"):
            Parameters(CONFIG, flat=flat)


def test_an_unknown_name_says_what_is_near():
    with pytest.raises(KeyError, match=r"h\.0\.attn\.c_fc\.weight.*similar"):
        Parameters(CONFIG)["h.0.attn.c_fc.weight"]
