"""Files of every kind become the same documents."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpt2lib.data.text import read_documents, repair_mojibake, text_encoding, text_files

SAMPLE = "Once é 日本 👍\nsecond line\n<|endoftext|>\n\n<|endoftext|>\nThe end.\n<|endoftext|>\n"
DOCUMENTS = ["Once é 日本 👍\nsecond line", "", "The end."]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends_make_no_difference(tmp_path, encoding, line_end):
    path = tmp_path / "sample.txt"
    path.write_bytes(SAMPLE.replace("\n", line_end).encode(encoding))
    assert list(read_documents(path)) == DOCUMENTS


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-be"])
def test_big_and_little_endian_marks(tmp_path, encoding):
    path = tmp_path / "sample.txt"
    path.write_bytes(("\ufeff" + SAMPLE).encode(encoding))
    assert list(read_documents(path)) == DOCUMENTS


def test_the_system_s_encoding_does_not_matter(tmp_path):
    path = tmp_path / "sample.txt"
    path.write_bytes(SAMPLE.replace("\n", "\r\n").encode("utf-8"))
    program = (
        "import sys; from gpt2lib.data.text import read_documents;"
        "print(ascii(list(read_documents(sys.argv[1]))))"
    )
    environment = {**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    flags = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    done = subprocess.run(
        [sys.executable, *flags, "-c", program, str(path)],
        env=environment,
        capture_output=True,
        text=True,
        encoding="ascii",
        check=True,
    )
    assert done.stdout.strip() == ascii(DOCUMENTS)


def test_unreadable_bytes_become_replacement_characters(tmp_path):
    path = tmp_path / "latin1.txt"
    path.write_bytes("Ein schönes Märchen von früher, gut erzählt.".encode("latin-1"))
    assert list(read_documents(path)) == [
        "Ein sch\ufffdnes M\ufffdrchen von fr\ufffdher, gut erz\ufffdhlt."
    ]


def test_a_short_text_may_have_an_unreadable_character(tmp_path):
    path = tmp_path / "short.txt"
    path.write_bytes("café".encode("latin-1"))
    assert list(read_documents(path)) == ["caf\ufffd"]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary"),
        (bytes(range(1, 32)) * 40, "binary"),
        ("text without a mark".encode("utf-16-le"), "binary"),
        ("Текст на кириллице, и всё по-русски".encode("cp1251"), "iconv"),
    ],
)
def test_what_is_not_text_is_refused_in_words(tmp_path, content, word):
    path = tmp_path / "thing.dat"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"thing.dat.*{word}"):
        list(read_documents(path))


def test_a_zero_byte_far_into_the_file_is_found(tmp_path):
    path = tmp_path / "late.txt"
    path.write_bytes(b"line\n" * 20_000 + b"\0")
    with pytest.raises(ValueError, match="line 20001"):
        list(read_documents(path))


def test_a_character_across_the_sample_s_end_is_no_fault(tmp_path):
    path = tmp_path / "wide.txt"
    path.write_bytes(b"a" + "é".encode() * 40_000)
    assert text_encoding(path) == "utf-8"


def test_the_marker_inside_a_line_is_ordinary_text(tmp_path):
    path = tmp_path / "about.txt"
    path.write_text("GPT-2 writes <|endoftext|> between texts.", encoding="utf-8")
    assert list(read_documents(path)) == ["GPT-2 writes <|endoftext|> between texts."]


def test_paragraphs_of_a_small_file_are_documents_and_blank_lines_are_not(tmp_path):
    path = tmp_path / "small.txt"
    path.write_text("\n\nOne\nline two\n\n\n \nTwo\n\nThree", encoding="utf-8")
    assert list(read_documents(path)) == ["One\nline two", "Two", "Three"]
    whole = list(read_documents(path, paragraphs=False))
    assert whole == ["One\nline two\n\n\n \nTwo\n\nThree"]


def test_paragraphs_of_a_large_file_are_grouped_and_nothing_is_lost(tmp_path):
    path = tmp_path / "large.txt"
    blocks = [f"Speaker {i}:\n" + "word " * 20 for i in range(3000)]
    path.write_text("\n\n".join(blocks), encoding="utf-8")
    documents = list(read_documents(path))
    assert 50 < len(documents) < 300
    assert [len(d) > 1900 for d in documents[:-1]] == [True] * (len(documents) - 1)
    assert "".join("".join(documents).split()) == "".join("".join(blocks).split())


@pytest.mark.parametrize("content", ["", "\n\n\n"])
def test_an_empty_file_has_no_documents(tmp_path, content):
    path = tmp_path / "empty.txt"
    path.write_text(content, encoding="utf-8")
    assert list(read_documents(path)) == []


def test_a_folder_s_text_files_in_order_without_hidden_and_binary_ones(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("b/2.txt", "a.txt", ".git/config", ".hidden"):
        (tmp_path / name).write_text("text", encoding="utf-8")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0")
    files, refused = text_files(tmp_path)
    assert [f.relative_to(tmp_path) for f in files] == [Path("a.txt"), Path("b/2.txt")]
    assert len(refused) == 1
    assert "picture.png" in refused[0]


HEALTHY = "“Don’t,” she said — “it’s 20 °C… and costs £5 or €3™ 👍 ♥” naïve café Ünïcödé été"


def damage(text):
    """UTF-8 taken for cp1252, its five undefined bytes kept as control characters."""
    return "".join(bytes([b]).decode("cp1252", "ignore") or chr(b) for b in text.encode("utf-8"))


def test_damage_is_undone():
    assert damage("“") == "â€œ"
    for text in ("“Don’t,” she said — “no…”", "20°C costs £5", "café naïve été", "👍 ok ™"):
        assert damage(text) != text
        assert repair_mojibake(damage(text)) == text


def test_text_damaged_twice_is_repaired_and_repairing_again_changes_nothing():
    twice = damage(damage("“Don’t”"))
    assert repair_mojibake(twice) == "“Don’t”"
    for text in (HEALTHY, damage(HEALTHY), twice, "â€", "ÃÂâ€ðŸ€œ" * 3):
        once = repair_mojibake(text)
        assert repair_mojibake(once) == once


@pytest.mark.parametrize(
    "text",
    [
        HEALTHY,
        "„AMANHÔ, disse «MAÇû; Â e Ã são letras. CAFÉ” VOILÀ… hotărâ” “Â”",
        "ROMÂ» ÎN ROMÂNIA, Ångström, ðe, Ÿ, œuvre, €5",
        "日本語 Привет עברית",
    ],
)
def test_healthy_text_is_left_alone(text):
    assert repair_mojibake(text) == text


def test_a_lost_last_byte_means_a_right_quotation_mark():
    assert repair_mojibake("â€œCome!â€ said Tom.") == "“Come!” said Tom."
