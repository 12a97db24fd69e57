import os
import subprocess
import sys
import time

import numpy as np
import pytest

from gpt2lib import cli
from gpt2lib.data import read_documents, read_shard
from gpt2lib.tokenizer import BPE


def tokenize(*arguments):
    return cli.main(["tokenize", *map(str, arguments)])


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    documents = [f"Story {n}: é 日本 and “quotes”." for n in range(25)]
    path.write_text("\n<|endoftext|>\n".join(documents), encoding="utf-8")
    return path


@pytest.fixture
def bpe(tmp_path):
    tokenizer = BPE.train("Story story quotes and and", 270)
    tokenizer.save(tmp_path / "bpe.json")
    return tokenizer


def test_the_shard_holds_the_documents(text, bpe, tmp_path, capsys):
    out = tmp_path / "shards"
    assert tokenize(text, "--tokenizer", tmp_path / "bpe.json", "--out", out) == 0
    tokens = read_shard(out / "train_000000.bin")
    expected = [bpe.end_of_text]
    for document in read_documents(text):
        expected += [*bpe.encode(document), bpe.end_of_text]
    np.testing.assert_array_equal(tokens, expected)
    assert f"train: {len(expected):,} tokens in 1 file" in capsys.readouterr().out


def test_validation_takes_every_so_manyth_document(text, bpe, tmp_path):
    out = tmp_path / "shards"
    arguments = ["--tokenizer", tmp_path / "bpe.json", "--validation", 0.1]
    assert tokenize(text, *arguments, "--out", out) == 0
    sides = {n: read_shard(out / f"{n}_000000.bin").tolist() for n in ("val", "train")}
    documents = list(read_documents(text))
    assert bpe.decode(t for t in sides["val"] if t != bpe.end_of_text) == "".join(documents[::10])
    assert sides["train"].count(bpe.end_of_text) == 1 + 25 - 3


def test_too_few_documents_for_validation(text, bpe, tmp_path, capsys):
    arguments = ["--tokenizer", tmp_path / "bpe.json", "--validation", 0.01]
    assert tokenize(text, *arguments, "--out", tmp_path / "s") == 2
    assert "more than 100 documents" in capsys.readouterr().err


def test_shards_that_are_there_stay(text, bpe, tmp_path, capsys):
    arguments = [text, "--tokenizer", tmp_path / "bpe.json", "--out", tmp_path / "s"]
    assert tokenize(*arguments) == 0
    assert tokenize(*arguments) == 2
    assert "overwrite" in capsys.readouterr().err
    assert tokenize(*arguments, "--overwrite") == 0


def test_what_a_kill_left_behind_is_swept_and_nothing_else(text, bpe, tmp_path):
    out = tmp_path / "shards"
    for name in (".train.abc.part", ".val.def.part", ".mine.part", "train.part"):
        (out / name).mkdir(parents=True)
        (out / name / "half.bin").write_bytes(b"x")
    assert tokenize(text, "--tokenizer", tmp_path / "bpe.json", "--out", out) == 0
    assert sorted(p.name for p in out.iterdir()) == [".mine.part", "train.part", "train_000000.bin"]


def test_no_corpus_is_one_line(tmp_path, capsys):
    assert tokenize("no-such-thing", "--out", tmp_path / "s") == 2
    assert capsys.readouterr().err.startswith("gpt2lib tokenize: no corpus 'no-such-thing'")


@pytest.mark.parametrize("processes", [1, 2])
def test_sigterm_leaves_neither_processes_nor_files(tmp_path, processes):
    source = tmp_path / "large.txt"
    source.write_text("Once upon a time there was a girl.\n\n" * 200_000, encoding="utf-8")
    out = tmp_path / "shards"
    command = [sys.executable, "-m", "gpt2lib", "tokenize", str(source), "--tokenizer", "tiny"]
    process = subprocess.Popen(
        [*command, "--processes", str(processes), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not list(out.glob(".train.*.part/*")):  # until it is in the middle of its work
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.terminate()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 143
    assert error == "gpt2lib tokenize: terminated.\n"
    assert not out.exists()
    for _ in range(100):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return  # nobody of its group is left
        time.sleep(0.1)
    pytest.fail("a worker outlived the command")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stories", "--documents", "20", "--validation", "1e-320"], "takes more than"),
        (["stories", "--documents", "9" * 30], "documents=9999"),
        ([""], "an empty name is no corpus"),
        (["stories", "--documents", "20", "--out", ""], "--out needs the name of a folder"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, capsys, arguments, message):
    out = [] if "--out" in arguments else ["--out", tmp_path / "out"]
    assert tokenize(*arguments, *out) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
