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


def test_no_corpus_is_one_line(tmp_path, capsys):
    assert tokenize("no-such-thing", "--out", tmp_path / "s") == 2
    assert capsys.readouterr().err.startswith("gpt2lib tokenize: no corpus 'no-such-thing'")
