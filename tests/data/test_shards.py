"""Shards: the bytes are llm.c's, and nothing else is taken for a shard."""

import struct

import numpy as np
import pytest

from gpt2lib.data import read_shard, write_shard


def shard_bytes(tokens, magic=20240520, version=1, count=None, order="<", kind="H"):
    """The format, written here by hand from its description."""
    count = len(tokens) if count is None else count
    header = struct.pack(f"{order}256i", magic, version, count, *[0] * 253)
    return header + struct.pack(f"{order}{len(tokens)}{kind}", *tokens)


def test_bytes_are_as_the_format_says(tmp_path):
    write_shard(tmp_path / "a.bin", np.array([0, 50256, 65535]))
    assert (tmp_path / "a.bin").read_bytes() == shard_bytes([0, 50256, 65535])


@pytest.mark.parametrize("dtype", [np.int64, np.uint16, np.int32, np.uint32])
def test_round_trip(tmp_path, dtype):
    tokens = np.array([0, 1, 255, 256, 32767, 7], dtype=dtype)
    write_shard(tmp_path / "a.bin", tokens)
    back = read_shard(tmp_path / "a.bin")
    assert isinstance(back, np.memmap)
    assert back.dtype == np.uint16
    assert not back.flags.writeable
    np.testing.assert_array_equal(back, tokens)


def test_an_empty_shard(tmp_path):
    write_shard(tmp_path / "a.bin", np.array([], dtype=np.int64))
    assert len(read_shard(tmp_path / "a.bin")) == 0


@pytest.mark.parametrize("bad", [[65536], [70000], [-1], [1, 2, -3], [2**40]])
def test_ids_that_do_not_fit_are_refused_before_anything_is_written(tmp_path, bad):
    with pytest.raises(ValueError, match=str(bad[-1])):
        write_shard(tmp_path / "a.bin", np.array(bad))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", [np.array([1.0]), np.ones((2, 2), dtype=int), np.array(["a"])])
def test_what_are_not_ids_is_refused(tmp_path, bad):
    with pytest.raises(ValueError, match="shard holds"):
        write_shard(tmp_path / "a.bin", bad)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_write_leaves_the_old_file(tmp_path):
    write_shard(tmp_path / "a.bin", np.array([1, 2, 3]))
    with pytest.raises(ValueError, match="65536"):
        write_shard(tmp_path / "a.bin", np.array([65536]))
    np.testing.assert_array_equal(read_shard(tmp_path / "a.bin"), [1, 2, 3])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "shorter than a shard's header"),
        (shard_bytes([1])[:1023], "shorter than a shard's header"),
        (shard_bytes([1, 2], magic=7), "magic number 7, not 20240520"),
        (shard_bytes([1, 2], version=2), "version 2"),
        (shard_bytes([1, 2], order=">"), "big-endian"),
        (shard_bytes([1, 2], count=3), "3 tokens, 6 bytes, but 4 follow"),
        (shard_bytes([1, 2], count=1), "1 tokens, 2 bytes, but 4 follow"),
        (shard_bytes([1, 2], count=-1), "-1 tokens"),
        (shard_bytes([1, 2])[:-1], "but 3 follow"),
        (shard_bytes([1, 2], magic=20240801, version=7, kind="I"), "uint32"),
        (shard_bytes([1, 2], kind="I"), "not uint16"),
        (shard_bytes([1, 2], magic=20240326, version=3), "model weights"),
        (shard_bytes([1, 2], magic=20240327, version=2), "debug state"),
    ],
)
def test_what_is_not_such_a_file_is_refused_in_words(tmp_path, content, message):
    path = tmp_path / "bad.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_shard(path)
    assert "bad.bin" in str(caught.value)
