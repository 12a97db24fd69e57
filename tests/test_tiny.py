"""The trained model in the package: near the best possible loss, and its stories hold together."""

import json
import math
from itertools import islice

import numpy as np
import pytest

import gpt2lib
from gpt2lib.check import one_blas_thread
from gpt2lib.data import TokenStream, tokenize, validation_rows
from gpt2lib.data.consistency import check_story, rates
from gpt2lib.data.stories import WORDS, stories
from gpt2lib.pretrained import PACKAGED_MODEL, PACKAGED_TOKENIZER
from gpt2lib.train import evaluate
from gpt2lib.weights import read_model_metadata

NAMES = WORDS["name"].table  # "girl" and "boy" to their names
FOREIGN = 20_240_501  # a seed of stories that no training has seen


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    with one_blas_thread():
        yield


@pytest.fixture(scope="module")
def tiny():
    return gpt2lib.load("tiny")


@pytest.fixture(scope="module")
def fresh():
    return list(islice(stories(FOREIGN), 160))


def test_the_files_are_small():
    assert PACKAGED_MODEL.stat().st_size + PACKAGED_TOKENIZER.stat().st_size <= 4_000_000


def test_the_readme_has_the_command_with_the_settings_in_the_file(tiny):
    trained = json.loads(read_model_metadata(PACKAGED_MODEL)["trained"])
    settings, corpus = trained["settings"], trained["corpus"]
    readme = (PACKAGED_MODEL.parent / "README.md").read_text(encoding="utf-8")
    last = readme.split("gpt2lib train ")[-1].split("\n\n")[0].split("```")[0].split("\ncp ")[0]
    command = last.replace("\\\n", " ").split()
    given = dict(zip(command[::2], command[1::2], strict=True))
    assert given.pop("--corpus") == corpus["name"] == "stories"
    assert int(given.pop("--documents")) == corpus["documents"]
    assert float(given.pop("--validation")) == corpus["validation"]
    for option in ("--tokenizer", "--init", "--out", "--backend", "--threads"):
        given.pop(option, None)  # not settings of the training itself
    for option, value in given.items():
        assert settings[option[2:].replace("-", "_")] == pytest.approx(float(value)), option
    assert trained["last"]["step"] == settings["steps"]


def test_the_loss_is_within_ten_percent_of_the_best_possible(tiny, fresh):
    """Measured on stories that it never saw; the floor is of these very stories."""
    model, tokenizer = tiny
    stream: TokenStream = tokenize([story.text for story in fresh], tokenizer)
    floor = -math.fsum(story.log_probability for story in fresh) / (len(stream) - 1)
    loss = evaluate(model, *validation_rows(stream, model.config.context), batch=16)
    assert floor < loss < 1.10 * floor


@pytest.fixture(scope="module")
def told(tiny):
    """Stories that the model tells, drawn from its own probabilities, unaltered."""
    return sample(*tiny, count=64, seed=0)


def sample(model, tokenizer, count, seed):
    """Draw stories side by side, by the plain definition of sampling."""
    rng = np.random.default_rng(seed)
    cache = model.new_cache(count)
    ids = np.full((count, 1), tokenizer.end_of_text)
    texts = [[] for _ in range(count)]
    running = set(range(count))
    while running and cache.length < model.config.context:
        logits = model.decode(ids, cache).astype(np.float64)
        noise = rng.gumbel(size=logits.shape)  # argmax(logits + Gumbel noise) is a draw
        ids = (logits + noise).argmax(axis=-1)[:, None]
        for row in list(running):
            if ids[row, 0] == tokenizer.end_of_text:
                running.discard(row)
            else:
                texts[row].append(int(ids[row, 0]))
    assert not running, "a story has no end"
    return [tokenizer.decode(text) for text in texts]


def test_its_stories_hold_together(told):
    found = rates(told)
    assert found["name"] >= 0.75, found  # a chance reader of names would be near 0.06
    assert found["pronoun"] >= 0.9, found
    assert found["animal"] >= 0.95, found
    assert found["grammatical"] >= 0.35, found  # every word of a story is one of the grammar
    assert len(set(told)) == len(told)


def test_the_checker_passes_true_stories_and_fails_spoilt_ones(fresh):
    texts = [story.text for story in fresh]
    assert set(rates(texts).values()) == {1.0}
    girl = next(t for t in texts if " girl named" in t and " She " in t)
    assert not check_story(girl.replace(" She ", " He ")).pronoun
    name = girl.split(" named ")[1].split()[0].strip(".,")
    others = [n for n in ("Tom", "Mia", "Zoe") if n not in girl][:2]
    spoilt = girl + "".join(f" {other} cried." for other in others)
    assert not check_story(spoilt).name
    assert not check_story(girl.replace(f"named {name}", "named Nobody")).name
    cow = 'Once there was a shy boy named Tom. "Woof!" said the cow.'
    assert not check_story(cow).animal
    assert not check_story(girl[:-1]).grammatical
    with pytest.raises(ValueError, match="no stories"):
        rates([])


def name_positions(tokenizer, texts):
    """Yield (ids, t, earlier): the name at t + 1 stands at the positions ``earlier`` before it."""
    names = {tokenizer.encode(f" {name}")[0] for names in NAMES.values() for name in names}
    for text in texts:
        ids = np.array([tokenizer.end_of_text, *tokenizer.encode(text)])
        for t in range(1, len(ids) - 1):
            earlier = np.flatnonzero(ids[: t + 1] == ids[t + 1])
            if ids[t + 1] in names and len(earlier):
                yield ids, t, earlier


def test_a_head_tracks_the_name(tiny, fresh):
    """Where a name is about to be repeated, one head looks at where it stood before."""
    model, tokenizer = tiny
    on_name, by_chance = [], []
    for ids, t, earlier in name_positions(tokenizer, [story.text for story in fresh[:40]]):
        with model.record("h.*.attn.probabilities") as seen:
            model.forward(ids[: t + 1])
        attention = np.stack([p[0, :, t] for p in seen.values()])  # (L, NH, t + 1)
        on_name.append(attention[..., earlier].sum(axis=-1))
        by_chance.append(len(earlier) / (t + 1))
    mean = np.mean(on_name, axis=0)  # (L, NH)
    assert len(on_name) >= 60
    assert mean.max() > 0.5
    assert mean.max() > 10 * np.mean(by_chance)
    assert np.sort(mean.ravel())[-2] < mean.max() / 2  # the others look elsewhere


def test_without_that_head_the_name_is_lost(tiny, fresh):
    model, tokenizer = tiny
    cases = list(name_positions(tokenizer, [story.text for story in fresh[:20]]))
    shape = (model.config.layers, model.config.heads)

    def loss(mask):
        total = 0.0
        for ids, t, _ in cases:
            logits = model.forward(ids[: t + 1], head_mask=mask)[-1].astype(np.float64)
            total += np.logaddexp.reduce(logits) - logits[ids[t + 1]]
        return total / len(cases)

    whole = loss(None)
    lost = {}
    for head in np.ndindex(shape):
        mask = np.ones(shape)
        mask[head] = 0
        lost[head] = loss(mask) - whole
    assert max(lost.values()) > 1.0  # nats: the name is then one of several
