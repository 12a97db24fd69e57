"""A file that vouches for itself: any changed byte is noticed, and its place is named."""

import numpy as np
import pytest

from gpt2lib.weights.digest import open_sealed, write_sealed
from gpt2lib.weights.safetensors import TensorFile


@pytest.fixture
def sealed(tmp_path):
    path = tmp_path / "sealed.safetensors"
    rng = np.random.default_rng(0)
    tensors = {name: rng.normal(size=shape).astype("f4") for name, shape in SHAPES.items()}
    write_sealed(path, tensors, {"config": '{"sha256": "fake"}', "note": "0" * 64})
    return path


SHAPES = {"a": (3, 4), "b": (5,), "c": (2, 2)}


def test_a_whole_file_opens(sealed):
    file = open_sealed(sealed, remedy="")
    assert file.metadata["note"] == "0" * 64  # text that looks like the blank digest is left alone
    assert {name: file.shape(name) for name in file} == SHAPES


def test_every_single_byte_counts(sealed):
    whole = sealed.read_bytes()
    for place in range(len(whole)):
        broken = bytearray(whole)
        broken[place] ^= 0x20 if place % 2 else 0x01
        sealed.write_bytes(broken)
        with pytest.raises(ValueError, match=r"sealed\.safetensors.*Put it back\."):
            open_sealed(sealed, remedy="Put it back.")


@pytest.mark.parametrize("name", SHAPES)
def test_the_damaged_tensor_is_named(sealed, name):
    place = TensorFile(sealed).place(name)
    broken = bytearray(sealed.read_bytes())
    broken[place + 3] ^= 0x80
    sealed.write_bytes(broken)
    with pytest.raises(ValueError, match=f"tensor '{name}' \\(from byte {place} on\\)"):
        open_sealed(sealed, remedy="")


def test_a_blank_in_the_header_counts_too(sealed):
    """The header is padded with blanks; JSON would not mind a newline in their place."""
    broken = bytearray(sealed.read_bytes())
    length = int.from_bytes(broken[:8], "little")
    assert broken[7 + length] == ord(" "), "no padding in this file: change a name's length"
    broken[7 + length] = ord("\n")
    sealed.write_bytes(broken)
    with pytest.raises(ValueError, match="damaged in its header"):
        open_sealed(sealed, remedy="")


def test_a_file_of_somebody_else_has_no_digest(tmp_path):
    from gpt2lib.weights.safetensors import write_tensors

    write_tensors(tmp_path / "x", {"a": np.ones(2)})
    with pytest.raises(ValueError, match="carries no digest"):
        open_sealed(tmp_path / "x", remedy="")
