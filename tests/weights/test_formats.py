"""Our own, Hugging Face's and llm.c's files, against files that those programs wrote.

``tests/golden/make_weights.py`` made them: the same lopsided model in every format, and the logits
of transformers' own implementation.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.weights import (
    load_huggingface,
    load_llmc,
    load_model,
    read_debug_state,
    read_model_metadata,
    save_huggingface,
    save_llmc,
    save_model,
)
from gpt2lib.weights.safetensors import TensorFile, write_tensors

GOLDEN = Path(__file__).parents[1] / "golden" / "weights"
CONFIG = GPT2Config(vocab_size=37, context=12, layers=2, heads=2, channels=8)


@pytest.fixture(scope="module")
def expected():
    with np.load(GOLDEN / "expected.npz") as data:
        return dict(data)


@pytest.fixture
def folder(tmp_path):
    """A copy of the Hugging Face folder, to be spoilt."""
    return Path(shutil.copytree(GOLDEN / "huggingface", tmp_path / "hf"))


def check_logits(model, expected, tolerance=1e-4):
    assert model.config == CONFIG
    logits = model.forward(expected["ids"])
    np.testing.assert_allclose(logits, expected["logits"], rtol=tolerance, atol=tolerance)
    assert model.loss(expected["ids"], expected["targets"]) == pytest.approx(
        float(expected["loss"]), rel=tolerance
    )


# ---------------------------------------------------------------------- Hugging Face


@pytest.mark.parametrize("form", ["huggingface", "sharded"])
def test_huggingface_s_logits(form, expected):
    check_logits(load_huggingface(GOLDEN / form), expected)
    check_logits(load_huggingface(GOLDEN / form, dtype=np.float64), expected, 1e-10)


def test_a_file_alone_needs_the_number_of_heads(tmp_path, expected):
    shutil.copy(GOLDEN / "huggingface" / "model.safetensors", tmp_path / "alone.safetensors")
    with pytest.raises(ValueError, match="how many heads"):
        load_huggingface(tmp_path / "alone.safetensors")
    check_logits(load_huggingface(tmp_path / "alone.safetensors", heads=2), expected)


@pytest.mark.parametrize("layer", [0, 1])
def test_the_square_matrix_would_show_a_transpose(folder, expected, layer):
    """attn.c_proj is (C, C): a wrong transpose passes every shape check, not this one."""
    rewrite(folder, {f"h.{layer}.attn.c_proj.weight": lambda x: x.T})
    with pytest.raises(AssertionError):
        check_logits(load_huggingface(folder), expected)


def test_a_transposed_matrix_is_refused_by_its_shape(folder):
    rewrite(folder, {"h.1.mlp.c_fc.weight": lambda x: x.T})
    with pytest.raises(ValueError, match=r"'h\.1\.mlp\.c_fc\.weight' has shape \(32, 8\)"):
        load_huggingface(folder)


def test_old_checkpoints_no_prefix_masks_and_a_head_of_its_own(folder, expected):
    file = TensorFile(folder / "model.safetensors")
    tensors = {name.removeprefix("transformer."): file[name].copy() for name in file}
    for layer in range(2):
        tensors[f"h.{layer}.attn.bias"] = np.tril(np.ones((1, 1, 12, 12), np.float32))
        tensors[f"h.{layer}.attn.masked_bias"] = np.array(-1e4, np.float32)
    tensors["lm_head.weight"] = tensors["wte.weight"]
    write_tensors(folder / "model.safetensors", tensors)
    check_logits(load_huggingface(folder), expected)
    tensors["lm_head.weight"] = tensors["wte.weight"] + 1
    write_tensors(folder / "model.safetensors", tensors)
    with pytest.raises(ValueError, match=r"lm_head\.weight is not wte\.weight"):
        load_huggingface(folder)


def test_half_precision_weights_are_widened(folder):
    file = TensorFile(folder / "model.safetensors")
    halves = {name: file[name].astype(np.float16) for name in file}
    write_tensors(folder / "model.safetensors", halves)
    model = load_huggingface(folder)
    assert model.parameters.dtype == np.float32
    wide = halves["transformer.wte.weight"].astype(np.float32)
    np.testing.assert_array_equal(model.parameters["wte"], wide)


def test_save_and_load_are_bit_equal(tmp_path):
    model = load_huggingface(GOLDEN / "huggingface")
    save_huggingface(tmp_path / "again", model)
    again = load_huggingface(tmp_path / "again")
    np.testing.assert_array_equal(again.parameters.flat, model.parameters.flat)
    mine = TensorFile(tmp_path / "again" / "model.safetensors")
    theirs = TensorFile(GOLDEN / "huggingface" / "model.safetensors")
    assert set(mine) == set(theirs)
    assert mine.metadata == theirs.metadata == {"format": "pt"}
    for name in theirs:
        np.testing.assert_array_equal(mine[name], theirs[name])
    ours = json.loads((tmp_path / "again" / "config.json").read_text(encoding="utf-8"))
    config = json.loads((GOLDEN / "huggingface" / "config.json").read_text(encoding="utf-8"))
    assert all(config[key] == value for key, value in ours.items() if key != "n_ctx")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("activation_function", "gelu"),
        ("layer_norm_epsilon", 1e-6),
        ("scale_attn_by_inverse_layer_idx", True),
        ("scale_attn_weights", False),
        ("add_cross_attention", True),
        ("model_type", "gpt_neo"),
        ("n_inner", 33),
        ("n_head", 3),
        ("n_layer", 3),
        ("n_layer", "2"),
        ("vocab_size", 38),
        ("n_positions", 11),
    ],
)
def test_a_config_that_computes_something_else_is_refused(folder, key, value):
    edit(folder, **{key: value})
    with pytest.raises(ValueError, match="hf"):
        load_huggingface(folder)


def test_fewer_layers_than_the_file_has_are_refused(folder):
    edit(folder, n_layer=1)
    with pytest.raises(ValueError, match=r"has not: h\.1\."):
        load_huggingface(folder)


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "[" * 5000, '{"n_layer": '])
def test_a_spoilt_config_is_refused(folder, text):
    (folder / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json"):
        load_huggingface(folder)


def test_a_missing_tensor_is_named(folder):
    rewrite(folder, {"ln_f.bias": None})
    with pytest.raises(ValueError, match=r"no tensor 'ln_f\.bias'"):
        load_huggingface(folder)


@pytest.mark.parametrize(
    "index",
    [
        "{}",
        "[]",
        '{"weight_map": {}}',
        '{"weight_map": {"a": 3}}',
        '{"weight_map": {"a": "../secret.safetensors"}}',
        '{"weight_map": {"a": "model-00001-of-00001.safetensors"}}',
    ],
)
def test_a_spoilt_index_is_refused(folder, index):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    with pytest.raises(ValueError, match=r"index\.json"):
        load_huggingface(folder)


def test_pickles_are_not_opened(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pickle"):
        load_huggingface(folder)


def test_what_is_not_there(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"neither model\.safetensors nor"):
        load_huggingface(folder)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_huggingface(folder / "nowhere")


def test_a_name_without_a_network_says_which_files_to_put_where(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(OSError, match=r"config\.json and model\.safetensors .* into a folder"):
        load_huggingface("gpt2-medium")


def rewrite(folder, changes):
    """Write the weights again, with some tensors changed or (None) left out."""
    file = TensorFile(folder / "model.safetensors")
    tensors = {name: file[name].copy() for name in file}
    for name, change in changes.items():
        old = tensors.pop(f"transformer.{name}")
        if change is not None:
            tensors[f"transformer.{name}"] = np.ascontiguousarray(change(old))
    write_tensors(folder / "model.safetensors", tensors)


def edit(folder, **settings):
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | settings), encoding="utf-8")


# ----------------------------------------------------------------------------- llm.c


def test_llmc_s_model_files(expected):
    check_logits(load_llmc(GOLDEN / "llmc.bin"), expected)
    exact = load_huggingface(GOLDEN / "huggingface").parameters
    np.testing.assert_array_equal(load_llmc(GOLDEN / "llmc.bin").parameters.flat, exact.flat)
    rounded = load_llmc(GOLDEN / "llmc_bf16.bin").parameters
    np.testing.assert_array_equal(rounded["wte"], expected["bf16"])
    np.testing.assert_allclose(rounded.flat, exact.flat, rtol=2**-8)


@pytest.mark.parametrize(("name", "dtype"), [("llmc", "float32"), ("llmc_bf16", "bfloat16")])
def test_we_write_what_llmc_writes_byte_by_byte(tmp_path, name, dtype):
    save_llmc(tmp_path / "mine.bin", load_llmc(GOLDEN / "llmc.bin"), dtype=dtype)
    assert (tmp_path / "mine.bin").read_bytes() == (GOLDEN / f"{name}.bin").read_bytes()


def test_llmc_s_debug_state(expected):
    """Its logits, loss and gradients, which PyTorch computed, are ours."""
    state = read_debug_state(GOLDEN / "llmc_state.bin", CONFIG)
    np.testing.assert_array_equal(state.ids, expected["ids"])
    np.testing.assert_array_equal(state.targets, expected["targets"])
    model = load_llmc(GOLDEN / "llmc.bin")
    np.testing.assert_allclose(model.forward(state.ids), state.logits, rtol=1e-4, atol=1e-4)
    assert model.loss(state.ids, state.targets) == pytest.approx(state.loss, rel=1e-5)
    model.backward()
    for name, gradient in model.gradients.items():
        scale = np.abs(state.gradients[name]).max()
        np.testing.assert_allclose(
            gradient, state.gradients[name], rtol=1e-3, atol=1e-4 * scale, err_msg=name
        )


def spoil(tmp_path, name, **numbers):
    """Copy a golden file with some numbers of its header changed."""
    data = bytearray((GOLDEN / name).read_bytes())
    for key, value in numbers.items():
        place = 4 * int(key[1:])
        data[place : place + 4] = int(value).to_bytes(4, "little", signed=True)
    path = tmp_path / "spoilt.bin"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"h0": 20240520}, r"expected a model .*20240326.*found a token shard \(uint16\)"),
        ({"h0": 20240801}, "found a token shard"),
        ({"h0": 20240327}, "found a debug state"),
        ({"h0": 1}, "found the number 1"),
        ({"h1": 1}, "version 3 .* found version 1"),
        ({"h1": 4}, "found version 4"),
        ({"h1": 5}, "asks for"),
        ({"h2": 13}, r"asks for 12,576 bytes in all, the file has 12,544"),
        ({"h2": 11}, "asks for"),
        ({"h3": 200}, "cannot hold 200"),
        ({"h4": 0}, "layers must be at least 1"),
        ({"h4": 2**31 - 1}, "asks for"),
        ({"h5": 3}, "3 heads cannot share"),
        ({"h6": -8}, "channels must be at least 1"),
        ({"h7": 36}, "padded vocabulary of 36"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(tmp_path, numbers, message):
    with pytest.raises(ValueError, match=message):
        load_llmc(spoil(tmp_path, "llmc.bin", **numbers))


def test_other_kinds_and_cut_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"expected a model .* found a debug state"):
        load_llmc(GOLDEN / "llmc_state.bin")
    with pytest.raises(ValueError, match=r"expected a debug state .* found a model"):
        read_debug_state(GOLDEN / "llmc.bin", CONFIG)
    with pytest.raises(ValueError, match="version 2, found 1"):
        read_debug_state(spoil(tmp_path, "llmc_state.bin", h1=1), CONFIG)
    with pytest.raises(ValueError, match="does not fit"):
        read_debug_state(spoil(tmp_path, "llmc_state.bin", h3=13), CONFIG)
    whole = (GOLDEN / "llmc.bin").read_bytes()
    for size in (0, 3, 1023, 1024, len(whole) - 1):
        (tmp_path / "cut.bin").write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"cut\.bin"):
            load_llmc(tmp_path / "cut.bin")
    (tmp_path / "long.bin").write_bytes(whole + b"\0")
    with pytest.raises(ValueError, match="the file has 12,545"):
        load_llmc(tmp_path / "long.bin")


def test_big_endian_is_called_by_its_name(tmp_path):
    whole = np.frombuffer((GOLDEN / "llmc.bin").read_bytes(), "<i4")
    (tmp_path / "big.bin").write_bytes(whole.byteswap().tobytes())
    with pytest.raises(ValueError, match="big-endian"):
        load_llmc(tmp_path / "big.bin")


def test_a_dtype_that_llmc_has_not_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'float16'"):
        save_llmc(tmp_path / "x.bin", GPT2(CONFIG, seed=0), dtype="float16")


# --------------------------------------------------------------------------- our own


def test_our_own_round_trip(tmp_path):
    model = GPT2(CONFIG, seed=3)
    path = tmp_path / "model.safetensors"
    save_model(path, model, tokenizer_name="bpe", metadata={"trained": "a little"})
    again = load_model(path)
    assert again.config == CONFIG
    np.testing.assert_array_equal(again.parameters.flat, model.parameters.flat)
    metadata = read_model_metadata(path)
    assert (metadata["tokenizer"], metadata["trained"]) == ("bpe", "a little")


def test_the_tied_matrix_is_in_the_file_once(tmp_path):
    save_model(tmp_path / "m", GPT2(CONFIG, seed=3))
    file = TensorFile(tmp_path / "m")
    numbers = sum(int(np.prod(file.shape(name))) for name in file)
    assert numbers == CONFIG.parameter_count
    assert "lm_head.weight" not in file
    data = (tmp_path / "m").stat().st_size
    assert 4 * CONFIG.parameter_count < data < 4 * CONFIG.parameter_count + 8192


def test_float64_parameters_are_saved_as_float32(tmp_path):
    model = GPT2(CONFIG, seed=3, dtype=np.float64)
    save_model(tmp_path / "m", model)
    np.testing.assert_array_equal(
        load_model(tmp_path / "m").parameters.flat, model.parameters.flat.astype(np.float32)
    )


def test_a_file_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ValueError, match="carries no digest"):
        load_model(GOLDEN / "huggingface" / "model.safetensors")
    with pytest.raises(ValueError, match=r"llmc\.bin is not a whole safetensors file"):
        load_model(GOLDEN / "llmc.bin")
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "nothing")
