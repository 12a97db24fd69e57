"""Generation: from logits to a token, and token by token to a text.

The model gives a score for every token of the vocabulary. Sampling turns scores into probabilities,
sharpens or flattens them (temperature), cuts off what is unlikely (top-k, top-p), and draws. The
token drawn is appended, and the model is asked again.
"""

from __future__ import annotations

import math
import operator
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt2lib.ablation import HeadMask
from gpt2lib.model import GPT2
from gpt2lib.ops._shapes import Array, check_ids

if TYPE_CHECKING:
    from gpt2lib.tokenizer import Tokenizer

# Logits are float32: a sum of probabilities that ought to be p may miss it by so much.
_ROUNDING = 1e-6

# ------------------------------------------------------------------------- one token


def probabilities(
    logits: Any,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Array:
    r"""Return the probabilities that :func:`sample` draws from.

    .. math:: p_i \propto e^{z_i / \tau}

    and then, in this order: all but the ``top_k`` most probable tokens get 0; of what is left,
    scaled to sum to 1, the smallest set whose probabilities reach ``top_p`` stays (to within 1e-6:
    float32 logits are not finer), the token that crosses it included. At least one token always
    stays, and what stays is scaled to sum to 1 again. Among equally probable tokens those with the
    lower id come first.

    Parameters
    ----------
    logits
        (V,) scores z; -inf for a token that must not come.
    temperature
        :math:`\tau`. 1 leaves the model's probabilities as they are, less sharpens, more flattens;
        0 puts everything on the largest logit (of equal ones, that with the lowest id).
    top_k
        How many tokens may come; None for all.
    top_p
        In (0, 1]; None or 1 for all.

    Returns
    -------
    ndarray
        (V,) float64, whatever the type of the logits: in float32 the sum over a large vocabulary
        would not be 1.

    Raises
    ------
    ValueError
        For a temperature, ``top_k`` or ``top_p`` out of range, or logits with NaN or +inf, or with
        -inf only.

    Notes
    -----
    Top-k: Fan, Lewis and Dauphin (2018), section 5.2. Top-p, or nucleus sampling: Holtzman et al.
    (2020), section 3.1.

    Examples
    --------
    >>> probabilities(np.log([0.5, 0.3, 0.1, 0.1]), top_p=0.8)
    array([0.625, 0.375, 0.   , 0.   ])
    """
    check_sampling(temperature, top_k, top_p)
    z = _checked_logits(logits)
    if temperature == 0:
        p = np.zeros(z.size)
        p[int(np.argmax(z))] = 1.0
        return p
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the largest to -inf
        p = np.exp((z - z.max()) / temperature)
    if top_k is not None and top_k < p.size:
        p = _only(p, _most_probable(p, np.partition(p, -top_k)[-top_k])[:top_k])
    p /= p.sum()
    if top_p is not None and top_p < 1:
        # All tokens below this line together have less than 1 - top_p: no need to sort them.
        order = _most_probable(p, (1 - top_p) / p.size)
        reached = np.cumsum(p[order]) >= top_p - min(_ROUNDING, top_p / 2)
        p = _only(p, order[: int(np.argmax(reached)) + 1])  # argmax: the first that reaches it
        p /= p.sum()
    return p


def sample(
    logits: Any,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rng: np.random.Generator | int | None = None,
) -> int:
    """Draw one token.

    Parameters
    ----------
    logits, temperature, top_k, top_p
        As in :func:`probabilities`. At temperature 0 nothing random happens: ``rng`` is not used.
    rng
        A generator, or a seed for one.

    Returns
    -------
    int
        An id in [0, V) whose probability is not 0.

    Notes
    -----
    By the inverse of the cumulative distribution: a uniform number falls somewhere between 0 and
    1, the probabilities are laid end to end, and the token on which it falls is taken.
    """
    p = probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    if temperature == 0:
        return int(np.argmax(p))
    total = np.cumsum(p)
    # The last sum stands for 1, whatever rounding made of it. A token of probability 0 is as wide
    # as a point, and the first sum *above* the number is never at such a point.
    number = np.random.default_rng(rng).random() * total[-1]
    drawn = int(np.searchsorted(total, number, side="right"))
    last = int(np.searchsorted(total, total[-1], side="left"))  # the last token that may come
    return min(drawn, last)


def _most_probable(p: Array, least: float) -> Array:
    """Return the tokens with at least this probability, the most probable first.

    The sort is stable: of equally probable tokens the one with the lowest id comes first.
    """
    candidates = np.flatnonzero(p >= least)
    return candidates[np.argsort(-p[candidates], kind="stable")]


def _only(p: Array, kept: Array) -> Array:
    """Return ``p`` with 0 for all tokens but those that are kept."""
    out = np.zeros_like(p)
    out[kept] = p[kept]
    return out


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Refuse settings that sampling cannot follow.

    Raises
    ------
    ValueError
        Naming the setting, what it was and what it may be.
    """
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(
            f"the temperature must be a finite number, 0 (greedy) or more, got {temperature}."
        )
    if top_k is not None and (isinstance(top_k, bool) or _whole("top_k", top_k) < 1):
        raise ValueError(f"top_k must be at least 1, got {top_k}; leave it out for all tokens.")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}.")


def _checked_logits(logits: Any) -> Array:
    """Return one row of logits in float64, refusing what has no probabilities."""
    z = np.asarray(logits, np.float64)
    if z.ndim != 1 or z.size == 0:
        raise ValueError(f"sampling takes the logits (V,) of one position, got shape {z.shape}.")
    top = z.max()  # NaN where there is one
    if not math.isfinite(top):
        raise ValueError(
            f"the largest logit is {top}: there is nothing to draw from "
            "(has training diverged, or is every token forbidden?)."
        )
    return z


def _whole(name: str, value: Any) -> int:
    """Return ``value`` as a plain integer."""
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}.") from None


# ------------------------------------------------------------------------- token by token


def generate(
    model: GPT2,
    ids: Sequence[int] | Array,
    *,
    tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rng: np.random.Generator | int | None = None,
    stop: int | Iterable[int] | None = None,
    cache: bool = True,
    stride: int | None = None,
    vocab_size: int | None = None,
    head_mask: Any = None,
    ablation: str = "zero",
    head_means: Array | None = None,
) -> Iterator[int]:
    """Continue a text, one token at a time.

    The model sees at most ``context`` tokens. Once the text is longer, it sees a window at its end.
    Positions are counted from the window's start, so keys and values are of use only as long as
    that start stays where it is; therefore it moves rarely, by ``stride`` tokens at once, whenever
    the window is full, and only then is the window read anew.

    Parameters
    ----------
    model
        Any GPT-2.
    ids
        (T,) the prompt, at least one token: where there is none, begin with the tokenizer's
        ``end_of_text``. Of a prompt longer than the context, the window at its end counts.
    tokens
        How many tokens to generate at most.
    temperature, top_k, top_p
        How to draw: see :func:`probabilities`.
    rng
        A generator, or a seed for one: the same seed gives the same ids.
    stop
        An id, or several, that end the generation. They are not part of what is generated.
    cache
        Whether to keep keys and values, so that each step reads one token; or to read the whole
        window again for each. The ids are the same (up to draws that hang on a logit's last digit).
    stride
        By how many tokens the window's start moves; by default a quarter of the context. With 1
        the window is always the last ``context`` tokens, and the cache is of no use once it is
        full.
    vocab_size
        Only ids below it are drawn: for a model whose vocabulary is padded.
    head_mask, ablation, head_means
        Heads that are switched off while the text is read and continued: see
        :meth:`gpt2lib.GPT2.decode`.

    Returns
    -------
    iterator of int
        The new ids, each as soon as it is drawn.

    Raises
    ------
    ValueError
        Before the first token: for an empty prompt, ids outside the vocabulary, settings out of
        range.

    Examples
    --------
    >>> from gpt2lib import GPT2, GPT2Config
    >>> model = GPT2(GPT2Config.preset("tiny"), seed=0)
    >>> len(list(generate(model, [1, 2, 3], tokens=5, rng=0)))
    5
    """
    check_sampling(temperature, top_k, top_p)
    text = _prompt(model, ids)
    if _whole("tokens", tokens) < 0:
        raise ValueError(f"tokens must not be negative, got {tokens}.")
    context = model.config.context
    stride = max(1, context // 4) if stride is None else _whole("stride", stride)
    if not 1 <= stride <= context:
        raise ValueError(f"stride must be from 1 to the context of {context}, got {stride}.")
    if vocab_size is not None and not 1 <= vocab_size <= model.config.vocab_size:
        raise ValueError(
            f"vocab_size must be from 1 to {model.config.vocab_size}, got {vocab_size}."
        )
    ends = _stop_ids(stop)
    generator = np.random.default_rng(rng)
    heads = _heads(model, head_mask, ablation, head_means)
    reader = (_Cached if cache else _Recomputed)(model, stride, heads)

    def new_ids() -> Iterator[int]:
        for _ in range(tokens):
            logits = reader.next_logits(text)[:vocab_size]
            drawn = sample(logits, temperature=temperature, top_k=top_k, top_p=top_p, rng=generator)
            if drawn in ends:
                return
            text.append(drawn)
            yield drawn

    return new_ids()


def generate_text(
    model: GPT2,
    tokenizer: Tokenizer,
    prompt: str = "",
    *,
    tokens: int = 200,
    ignore_end: bool = False,
    drawn: list[int] | None = None,
    **settings: Any,
) -> Iterator[str]:
    """Continue a text, as text.

    Parameters
    ----------
    model, tokenizer
        As :func:`gpt2lib.load` returns them.
    prompt
        Ordinary text. Where it is empty, the model begins a document of its own: it is given
        ``end_of_text``, which stands between documents.
    tokens
        How many tokens to generate at most.
    ignore_end
        Whether to go on after the end of the text, into another.
    drawn
        A list, to which every new id is appended when it is drawn.
    **settings
        As in :func:`generate`.

    Returns
    -------
    iterator of str
        Pieces of the continuation, without the prompt, each as soon as it is known; none ends in
        the middle of a character. Joined, they are what the tokenizer decodes from all ids.

    Raises
    ------
    ValueError
        As in :func:`generate`, before the first piece.
    """
    settings.setdefault("vocab_size", min(tokenizer.vocab_size, model.config.vocab_size))
    if not ignore_end:
        settings.setdefault("stop", tokenizer.end_of_text)
    ids = tokenizer.encode(prompt) or [tokenizer.end_of_text]
    new_ids = generate(model, ids, tokens=tokens, **settings)
    return _decoded(new_ids, tokenizer, [] if drawn is None else drawn)


def _decoded(ids: Iterator[int], tokenizer: Tokenizer, drawn: list[int]) -> Iterator[str]:
    """Yield the text of ids as they come, never half a character; append them to ``drawn``."""
    decoder = tokenizer.stream_decoder()
    for token in ids:
        drawn.append(token)
        piece = decoder.push(token)
        if piece:
            yield piece
    rest = decoder.finish()
    if rest:
        yield rest


def _prompt(model: GPT2, ids: Any) -> list[int]:
    """Return the prompt as a list of its own, checked."""
    if np.ndim(ids) != 1:
        raise ValueError(f"generation continues one text, ids (T,); got shape {np.shape(ids)}.")
    if len(ids) == 0:
        raise ValueError(
            "the prompt is empty: begin with the tokenizer's end_of_text, the token between "
            "documents."
        )
    return [int(i) for i in check_ids(ids, model.config.vocab_size)]


def _heads(model: GPT2, head_mask: Any, ablation: str, head_means: Array | None) -> dict[str, Any]:
    """Return what the model is to be told of its heads, checked."""
    if head_mask is None and head_means is None and ablation == "zero":
        return {}
    mask = HeadMask.checked(model.config, model.parameters.dtype, head_mask, ablation, head_means)
    if mask is not None:
        mask.refuse_own_means()
    return {"head_mask": head_mask, "ablation": ablation, "head_means": head_means}


def _stop_ids(stop: int | Iterable[int] | None) -> frozenset[int]:
    if stop is None:
        return frozenset()
    several = stop if isinstance(stop, Iterable) else (stop,)
    return frozenset(_whole("stop", token) for token in several)


# ------------------------------------------------------------------------- the window


def window_start(length: int, context: int, stride: int) -> int:
    """Return where the window starts that the model sees of a text.

    Parameters
    ----------
    length
        How many tokens the text has.
    context
        How many of them fit the window.
    stride
        The start is a multiple of it: the smallest that leaves no more than ``context`` tokens.

    Examples
    --------
    >>> [window_start(n, context=8, stride=3) for n in (7, 8, 9, 11, 12)]
    [0, 0, 3, 3, 6]
    """
    excess = max(0, length - context)
    return -(-excess // stride) * stride  # rounded up


class _Recomputed:
    """Reads the whole window again for every token."""

    def __init__(self, model: GPT2, stride: int, heads: dict[str, Any]) -> None:
        self.model, self.stride, self.heads = model, stride, heads

    def next_logits(self, text: list[int]) -> Array:
        """Return the logits (V,) of the token that comes after ``text``."""
        start = window_start(len(text), self.model.config.context, self.stride)
        return self.model.forward(np.array(text[start:]), **self.heads)[-1]


class _Cached:
    """Reads what is new since last time; all of the window when its start has moved."""

    def __init__(self, model: GPT2, stride: int, heads: dict[str, Any]) -> None:
        self.model, self.stride, self.heads = model, stride, heads
        self.cache = model.new_cache()
        self.start = 0

    def next_logits(self, text: list[int]) -> Array:
        """Return the logits (V,) of the token that comes after ``text``."""
        start = window_start(len(text), self.model.config.context, self.stride)
        if start != self.start:
            self.start = start
            self.cache.clear()
        new = text[start + self.cache.length :]
        return self.model.decode(np.array([new]), self.cache, **self.heads)[0]


class _Callable(types.ModuleType):
    """A module that can be called.

    ``gpt2lib.generate`` names both the function and the module it lives in; which of the two a
    reader gets depends on what was imported before. Either can be called.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Iterator[int]:
        return generate(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
