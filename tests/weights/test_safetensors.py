"""The reader against the writing library, against every kind of bad file, and BF16 by its bits."""

import json
import resource
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gpt2lib.weights.safetensors import (
    TensorFile,
    bfloat16_to_float32,
    float32_to_bfloat16,
    write_tensors,
)


def make(path, header, data=b"", length=None):
    """Write a file byte by byte: header length, header, data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(text) if length is None else length
    path.write_bytes(length.to_bytes(8, "little") + text + data)
    return path


def entry(begin=0, end=8, shape=(2,), dtype="F32", **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end], **more}


# ------------------------------------------------------------------------- what is right


def test_what_the_library_writes_is_read(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {
        "a": rng.normal(size=(3, 5)).astype(np.float32),
        "b": rng.normal(size=(2, 1, 4)),
        "c": rng.normal(size=7).astype(np.float16),
        "whole": np.array([[-(2**40), 3]], np.int64),
        "bytes": np.arange(5, dtype=np.uint8),
        "scalar": np.array(2.5, np.float32),
        "none": np.zeros((0, 4), np.float32),
        "flags": np.array([True, False]),
    }
    save_file(tensors, tmp_path / "x.safetensors", metadata={"größe": "日本"})
    file = TensorFile(tmp_path / "x.safetensors")
    assert file.metadata == {"größe": "日本"}
    assert set(file) == set(tensors)
    for name, tensor in tensors.items():
        assert file[name].dtype == tensor.dtype
        assert file.shape(name) == tensor.shape
        np.testing.assert_array_equal(file[name], tensor)
    with pytest.raises(KeyError, match="no tensor called 'd'"):
        file["d"]


def test_what_we_write_the_library_reads(tmp_path):
    path = tmp_path / "with spaces é.safetensors"
    strided = np.arange(12, dtype=np.float32).reshape(3, 4).T
    write_tensors(path, {"x": strided}, {"step": "7"})
    np.testing.assert_array_equal(load_file(path)["x"], strided)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_bf16_by_its_bits(tmp_path):
    bits = np.array([0x3F80, 0xC000, 0x7F80, 0x0001], "<u2")
    path = make(tmp_path / "b", {"x": entry(shape=(4,), dtype="BF16")}, bits.tobytes())
    x = TensorFile(path)["x"]
    assert x.dtype == np.float32
    assert x[:3].tolist() == [1.0, -2.0, np.inf]
    assert x[3] == np.float32(2.0**-133)  # 9.18e-41


def test_bf16_round_trip_and_rounding():
    every = np.arange(1 << 16, dtype=np.uint16)
    back = float32_to_bfloat16(bfloat16_to_float32(every))
    nan = np.isnan(bfloat16_to_float32(every))
    np.testing.assert_array_equal(back[~nan], every[~nan])
    assert np.isnan(bfloat16_to_float32(back[nan])).all()
    one = np.float32(1)
    ulp = np.float32(2.0**-7)
    x = np.array([one + ulp / 2, one + 3 * ulp / 2, one + ulp * 0.51, 3.4e38], np.float32)
    assert bfloat16_to_float32(float32_to_bfloat16(x)).tolist() == [
        1.0,  # a tie goes to the even neighbour, below …
        1 + 2 * 2.0**-7,  # … or above
        1 + 2.0**-7,
        np.inf,
    ]


def test_floats_converts_exactly_or_refuses_by_name(tmp_path):
    tensors = {
        "f2": np.array([1 / 3, 65504, 6e-8], np.float16),
        "f8": np.array([1 / 3, 1e300]),
        "i8": np.array([1, 2]),
    }
    save_file(tensors, tmp_path / "x")
    file = TensorFile(tmp_path / "x")
    np.testing.assert_array_equal(file.floats("f2"), tensors["f2"].astype(np.float32))
    np.testing.assert_array_equal(file.floats("f8", np.float64), tensors["f8"])
    with pytest.raises(ValueError, match="'i8' has type I64"):
        file.floats("i8")


def test_a_type_that_is_not_known_is_refused_by_name(tmp_path):
    path = make(tmp_path / "f8", {"x": entry(0, 2, dtype="F8_E4M3")}, b"..")
    with pytest.raises(ValueError, match="'F8_E4M3'"):
        TensorFile(path)


def test_offsets_need_not_be_aligned(tmp_path):
    header = {"a": entry(0, 1, (1,), "U8"), "b": entry(1, 9)}
    path = make(tmp_path / "odd", header, b"\x07" + np.array([1.5, -2], "<f4").tobytes())
    assert TensorFile(path)["b"].tolist() == [1.5, -2.0]


# ------------------------------------------------------------------------- what is wrong

DATA = b"\0" * 8
BAD = {
    "length 2^63": ({"x": entry()}, DATA, 2**63),
    "length 2^64-1": ({"x": entry()}, DATA, 2**64 - 1),
    "length 0": ({"x": entry()}, DATA, 0),
    "length beyond the file": (b"{}", b"", 3),
    "not JSON": (b"{'x': 1}", DATA, None),
    "not UTF-8": (b'{"\xff": 1}', DATA, None),
    "not an object": (b"[1, 2]", DATA, None),
    "begin after end": ({"x": entry(8, 0)}, DATA, None),
    "end past the file": ({"x": entry(0, 16, (4,))}, DATA, None),
    "overlap": ({"x": entry(), "y": entry(4, 12)}, DATA + b"\0" * 4, None),
    "same place": ({"x": entry(), "y": entry()}, DATA, None),
    "gap": ({"x": entry(), "y": entry(12, 20)}, b"\0" * 20, None),
    "gap at the start": ({"x": entry(4, 12)}, b"\0" * 12, None),
    "bytes left over": ({"x": entry()}, DATA + b"\0", None),
    "huge shape": ({"x": entry(shape=(2**40, 2**40))}, DATA, None),
    "shape and offsets disagree": ({"x": entry(shape=(3,))}, DATA, None),
    "type and offsets disagree": ({"x": entry(dtype="F64")}, DATA, None),
    "too many dimensions": ({"x": entry(shape=(1,) * 40 + (2,))}, DATA, None),
    "negative size": ({"x": entry(shape=(-2, -1))}, DATA, None),
    "float size": ({"x": entry(shape=(2.0,))}, DATA, None),
    "duplicate key": (
        b'{"x": %s, "x": %s}' % ((json.dumps(entry()).encode(),) * 2),
        DATA,
        None,
    ),
    "negative offset": ({"x": entry(-8, 0)}, DATA, None),
    "string offset": ({"x": entry("0", 8)}, DATA, None),
    "true for an offset": ({"x": entry(True, 9)}, DATA + b"\0", None),
    "three offsets": ({"x": entry() | {"data_offsets": [0, 4, 8]}}, DATA, None),
    "missing field": ({"x": {"dtype": "F32", "shape": [2]}}, DATA, None),
    "more fields": ({"x": entry(more=1)}, DATA, None),
    "metadata not strings": ({"__metadata__": {"a": 1}, "x": entry()}, DATA, None),
    "nested too deep": (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", DATA, None),
    "number too long": (b'{"x": ' + b"9" * 100_000 + b"}", DATA, None),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_refused_by_name_before_anything_is_allocated(tmp_path, kind):
    path = make(tmp_path / "bad.safetensors", *BAD[kind])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"bad\.safetensors is not a whole"):
        TensorFile(path)
    assert time.monotonic() - began < 5  # a loop or an allocation of 2^63 would not end at all
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KB


@pytest.mark.parametrize("content", [b"", b"\1", b"\0" * 7])
def test_a_file_too_short_for_its_first_number(tmp_path, content):
    path = tmp_path / "short"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"it has {len(content)} bytes"):
        TensorFile(path)


def test_every_truncation_is_refused(tmp_path):
    save_file({"a": np.ones(3, np.float32), "b": np.ones((2, 2))}, tmp_path / "x")
    whole = (tmp_path / "x").read_bytes()
    for size in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:size])
        with pytest.raises(ValueError, match="cut"):
            TensorFile(tmp_path / "cut")


def test_reading_maps_the_file_instead_of_copying_it(tmp_path):
    """200 MB are opened, and one number of them read, under a limit that a copy would break."""
    path = tmp_path / "large"
    header = json.dumps({"x": entry(0, 200_000_000, (50_000_000,))}).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 200_000_000)  # a sparse file: costs no disk
    code = f"""
        import resource
        from gpt2lib.weights.safetensors import TensorFile
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        x = TensorFile({str(path)!r}).floats("x")
        assert x.shape == (50_000_000,) and x[40_000_000] == 0
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    run = [sys.executable, "-c", textwrap.dedent(code)]
    grown = int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    assert grown < 20_000  # KB


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no file size limits here")
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    """A limit on file sizes stands in for the full disk: both fail in the middle of a write."""
    path = tmp_path / "w.safetensors"
    write_tensors(path, {"x": np.ones(4, np.float32)})
    code = f"""
        import resource, numpy as np
        from gpt2lib.weights.safetensors import write_tensors
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            write_tensors({str(path)!r}, {{"x": np.zeros(1_000_000, np.float32)}})
        except OSError:
            print("refused")
    """
    run = [sys.executable, "-c", textwrap.dedent(code)]
    result = subprocess.run(run, capture_output=True, text=True, check=False)
    assert result.stdout == "refused\n", result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]
    assert TensorFile(path)["x"].tolist() == [1.0] * 4
