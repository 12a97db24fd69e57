"""Documents to streams and shards, in one process or several."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpt2lib.data import (
    STORIES,
    Dataset,
    TokenStream,
    load_corpus,
    read_shard,
    tokenize,
    tokenize_to_shards,
    validation_rows,
)
from tests.data.stand_in import Bytes, Dying, Failing, Unsendable

E = Bytes.end_of_text
TEXTS = ["Once upon a time.", "", "é 日本 👍", "The end.", "x" * 300] * 40


def expected(texts):
    ids = [E]
    for text in texts:
        ids += [*text.encode("utf-8"), E]
    return ids


def test_a_stream_has_separators_before_between_and_after():
    stream = tokenize(["ab", "", "c"], Bytes())
    assert stream.tokens.tolist() == [E, 97, 98, E, E, 99, E]
    assert stream.starts.tolist() == [0, 3, 4]
    assert [stream.document(i).tolist() for i in range(3)] == [[97, 98], [], [99]]
    assert (len(stream), stream.documents, stream.tokens.dtype) == (7, 3, np.uint16)


def test_no_documents_make_a_stream_of_one_separator():
    stream = tokenize([], Bytes())
    assert stream.tokens.tolist() == [E]
    assert stream.documents == 0


def test_the_floor_is_nats_over_predicted_tokens():
    corpus = load_corpus("stories", documents=300)
    data = Dataset.from_corpus(corpus, Bytes())
    predicted = sum(len(text) + 1 for text in corpus.validation)
    assert data.floor == pytest.approx(corpus.floor_nats(corpus.validation) / predicted)
    _, targets = validation_rows(data.validation, 600)
    assert (targets >= 0).sum() == predicted
    assert Dataset.from_corpus(load_corpus("python-docs", documents=3), Bytes()).floor is None


def shards_of(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def test_the_package_loads_without_processes_and_network():
    """As in a browser, where there is neither."""
    program = (
        "import sys; sys.modules['_multiprocessing'] = sys.modules['_socket'] = None;"
        "from gpt2lib.data import load_corpus; load_corpus('stories', documents=2)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_one_shard_holds_the_stream(tmp_path):
    [path] = tokenize_to_shards(iter(TEXTS), Bytes(), tmp_path / "new folder")
    assert path == tmp_path / "new folder" / "train_000000.bin"
    assert read_shard(path).tolist() == expected(TEXTS)
    stream = TokenStream.from_shards(path, E)
    assert stream.documents == len(TEXTS)


@pytest.mark.parametrize("most", [1, 100, 302, 303, 5000])
def test_shards_are_streams_and_together_the_whole(tmp_path, most):
    texts = TEXTS[:30]
    paths = tokenize_to_shards(texts, Bytes(), tmp_path, shard_tokens=most)
    assert [p.name for p in paths] == [f"train_{i:06d}.bin" for i in range(len(paths))]
    for path in paths:
        tokens = read_shard(path)
        assert tokens[0] == tokens[-1] == E
        assert len(tokens) <= most or (tokens == E).sum() == 2  # one document, too long
    assert TokenStream.from_shards(paths, E).tokens.tolist() == expected(texts)


def test_any_number_of_processes_writes_the_same_bytes(tmp_path):
    tokenize_to_shards(TEXTS, Bytes(), tmp_path / "1", shard_tokens=5000)
    tokenize_to_shards(TEXTS, Bytes(), tmp_path / "2", shard_tokens=5000, processes=2)
    assert shards_of(tmp_path / "1") == shards_of(tmp_path / "2")
    assert len(shards_of(tmp_path / "1")) > 1


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_in_a_document_ends_the_run_and_leaves_nothing(tmp_path, processes):
    texts = [*TEXTS, "BOOM", *TEXTS]
    with pytest.raises(RuntimeError, match="failed on a document"):
        tokenize_to_shards(texts, Failing(), tmp_path, shard_tokens=500, processes=processes)
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_the_source_ends_the_run_and_leaves_nothing(tmp_path):
    def source():
        yield from TEXTS
        raise OSError("the disk went away")

    with pytest.raises(OSError, match="went away"):
        tokenize_to_shards(source(), Bytes(), tmp_path, shard_tokens=500)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_dies_ends_the_run(tmp_path):
    with pytest.raises(ValueError, match="worker process ended"):
        tokenize_to_shards(TEXTS, Dying(), tmp_path, processes=2)
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_that_cannot_be_sent_is_refused_in_words(tmp_path):
    with pytest.raises(ValueError, match="processes=1"):
        tokenize_to_shards(TEXTS, Unsendable(), tmp_path, processes=2)
    assert list(tmp_path.iterdir()) == []


def test_a_corpus_is_never_read_ahead_as_a_whole(tmp_path):
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield "BOOM" if taken == 64 * 3 else "text"

    with pytest.raises(RuntimeError, match="failed"):
        tokenize_to_shards(endless(), Failing(), tmp_path, processes=2)
    assert taken <= 64 * 12


def test_older_shards_are_not_mixed_in(tmp_path):
    tokenize_to_shards(TEXTS, Bytes(), tmp_path, shard_tokens=500)
    (tmp_path / "train_notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=r"train_000000.bin is there already"):
        tokenize_to_shards(["ab"], Bytes(), tmp_path)
    tokenize_to_shards(["ab"], Bytes(), tmp_path, overwrite=True)
    assert sorted(shards_of(tmp_path)) == ["train_000000.bin", "train_notes.txt"]
    tokenize_to_shards(["cd"], Bytes(), tmp_path, name="validation")
    assert read_shard(tmp_path / "validation_000000.bin").tolist() == expected(["cd"])


def test_a_vocabulary_too_large_and_nothing_to_write_are_refused(tmp_path):
    class Large(Bytes):
        vocab_size = 65537

    with pytest.raises(ValueError, match="65537"):
        tokenize_to_shards(TEXTS, Large(), tmp_path)
    with pytest.raises(ValueError, match="no documents"):
        tokenize_to_shards([], Bytes(), tmp_path)
    with pytest.raises(ValueError, match="no shards"):
        TokenStream.from_shards([], E)
    assert list(tmp_path.iterdir()) == []


def test_a_script_may_use_processes_and_one_without_a_guard_fails_loudly(tmp_path):
    # Workers of the bad script run main() too, and are killed: what they had made would stay.
    body = (
        "import tempfile\n"
        "from gpt2lib.data import tokenize_to_shards\n"
        "from tests.data.stand_in import Bytes\n"
        "real = tempfile.mkdtemp\n"
        "def tell(*args, **options):\n"
        "    print('made a folder', flush=True)\n"
        "    return real(*args, **options)\n"
        "tempfile.mkdtemp = tell\n"
        "def main():\n"
        "    paths = tokenize_to_shards(['a', 'b'] * 99, Bytes(), 'out', processes=2)\n"
        "    print(len(paths))\n"
    )
    root = str(Path(__file__).parents[2])
    running = {}
    for name, ending in (("good", "if __name__ == '__main__':\n    main()\n"), ("bad", "main()\n")):
        script = tmp_path / name / "script.py"
        script.parent.mkdir()
        path = f"import sys\nsys.path.insert(0, {json.dumps(root)})\n"
        script.write_text(path + body + ending, encoding="utf-8")
        running[name] = subprocess.Popen(
            [sys.executable, str(script)],
            cwd=script.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
    out, _ = running["good"].communicate(timeout=100)
    assert (out.splitlines(), running["good"].returncode) == (["made a folder", "1"], 0)
    out, error = running["bad"].communicate(timeout=100)
    assert out.splitlines() == ["made a folder"]  # the script's own, none of a worker
    assert running["bad"].returncode != 0
    assert "__main__" in error
    assert list((tmp_path / "bad" / "out").iterdir()) == []


# With the library's own tokenizer --------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny():
    from gpt2lib.tokenizer import BPE

    return BPE.train(load_corpus("stories", documents=3000, seed=0).train, 512)


def test_every_story_fits_the_context_of_tiny(tiny):
    """The longest text that the grammar can tell, and not only the longest of a sample.

    Tokens never reach across words, so the longest story is made of the longest choices. Some
    that it joins exclude one another: the bound is from above.
    """
    from gpt2lib.data.grammar import By, parse
    from gpt2lib.data.stories import RULES, WORDS

    longest = {}

    def text_of(parts):
        return "".join(p if isinstance(p, str) else text_for(p.name) for p in parts)

    def text_for(name):
        if name not in longest:
            slot = RULES.get(name) or WORDS[name]
            before = '"' if name == "sound" else " "
            options = [o for s in slot.table.values() for o in s] if isinstance(slot, By) else slot
            texts = [text_of(parse(option)) for option in options]
            longest[name] = max(texts, key=lambda text: len(tiny.encode(before + text)))
        return longest[name]

    lengths = [
        len(tiny.encode(text_for("OPENING") + " " + text_of(parse(plot)))) for plot in RULES["PLOT"]
    ]
    assert max(lengths) <= 126


def test_stories_have_the_size_and_the_floor_that_they_were_made_for(tiny):
    data = Dataset.from_corpus(load_corpus("stories", documents=1500, validation=0.5), tiny)
    lengths = np.diff(data.train.starts) - 1
    assert 60 < lengths.mean() < 110
    assert lengths.max() <= 126
    assert 0.45 < data.floor < 0.9
    assert data.floor == pytest.approx(STORIES.entropy() / (lengths.mean() + 1), rel=0.02)
    names = ["Lily", "Mia", "Sue", "Anna", "Tom", "Ben", "Max", "Jack"]
    assert all(len(tiny.encode(" " + name)) == 1 for name in names)


def test_the_library_s_tokenizer_goes_to_workers(tmp_path, tiny):
    texts = load_corpus("stories", documents=200).train
    tokenize_to_shards(texts, tiny, tmp_path / "1")
    tokenize_to_shards(texts, tiny, tmp_path / "2", processes=2)
    assert shards_of(tmp_path / "1") == shards_of(tmp_path / "2")
    stream = TokenStream.from_shards(tmp_path / "1" / "train_000000.bin", tiny.end_of_text)
    assert [tiny.decode(stream.document(i)) for i in (0, 99, 179)] == [
        texts[i] for i in (0, 99, 179)
    ]
