"""What the reader turns in the attention chapter: heads, scores, switches, the number of heads.

Each function computes what it needs once and hands a drawing function to
:func:`gpt2lib.widgets.controls`; in a rendered page it is a figure of the first setting.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import ipywidgets
import numpy as np
import traitlets

from gpt2lib import ops
from gpt2lib.check import one_blas_thread
from gpt2lib.config import GPT2Config, divisors_of
from gpt2lib.figures import attention as drawings
from gpt2lib.ops.attention import split_heads
from gpt2lib.widgets._controls import controls

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpt2lib.model import GPT2

Array = np.ndarray[Any, Any]

TOKENS_UP_TO = drawings.TOKENS_UP_TO


def encode(model: GPT2, tokenizer: Any, text: str) -> tuple[Array, list[str]]:
    """Return a text's ids, end-of-text first, and their labels.

    Parameters
    ----------
    model, tokenizer
        As :func:`gpt2lib.load` returns them.
    text
        What to read.

    Raises
    ------
    ValueError
        When the text is empty, or longer than the model's context or than a map can show.
    """
    ids = np.array([tokenizer.end_of_text, *tokenizer.encode(text)])
    limit = min(model.config.context, TOKENS_UP_TO)
    if len(ids) < 3:
        raise ValueError("the text needs at least two tokens: nobody can look at anybody here.")
    if len(ids) > limit:
        raise ValueError(f"the text has {len(ids)} tokens; take at most {limit}.")
    return ids, [tokenizer.token_label(int(i)) for i in ids]


def maps(model: GPT2, tokenizer: Any, text: str, *, layer: int = 0, head: int = 0) -> None:
    """Show one head's attention map; the reader chooses layer and head.

    Parameters
    ----------
    model, tokenizer, text
        The model, and what it reads.
    layer, head
        The first choice.
    """
    ids, labels = encode(model, tokenizer, text)
    with model.record("h.*.attn.probabilities") as recorded:
        model.forward(ids)

    def draw(layer: int, head: int) -> Figure:
        p = recorded[f"h.{layer}.attn.probabilities"][0, head]
        return drawings.head_map(p, labels, title=f"layer {layer}, head {head}")

    def alt(layer: int, head: int) -> str:
        p = recorded[f"h.{layer}.attn.probabilities"][0, head]
        return (
            f"Attention map of layer {layer}, head {head} over {len(labels)} tokens: a lower "
            f"triangle. {_habit(p, labels)}"
        )

    controls(
        draw,
        alt=alt,
        caption="Row: the token that reads. Column: the token that it reads from.",
        layer=_slider("layer", layer, model.config.layers),
        head=_slider("head", head, model.config.heads),
    )


def terms(
    model: GPT2,
    tokenizer: Any,
    text: str,
    *,
    layer: int = 0,
    head: int = 0,
    query: int = -1,
    key: int | None = None,
) -> None:
    """Show one score term by term; the reader chooses layer, head, query and key.

    Parameters
    ----------
    model, tokenizer, text
        The model, and what it reads.
    layer, head
        The first choice.
    query
        Position that asks; negative numbers count from the end.
    key
        Position that answers; by default the one that is read most.
    """
    ids, labels = encode(model, tokenizer, text)
    with model.record("h.*.attn.qkv") as recorded:
        model.forward(ids)

    def vectors(layer: int, head: int, query: int, key: int) -> tuple[Array, Array]:
        q, k, _ = split_heads(recorded[f"h.{layer}.attn.qkv"], 3, model.config.heads)
        if key > query:
            raise ValueError("the key lies in the future of the query: the mask hides it")
        return q[0, head, query], k[0, head, key]

    def draw(layer: int, head: int, query: int, key: int) -> Figure:
        q, k = vectors(layer, head, query, key)
        place = f"(layer {layer}, head {head})"
        return drawings.score_terms(q, k, query=labels[query], key=labels[key], place=place)

    def alt(layer: int, head: int, query: int, key: int) -> str:
        q, k = vectors(layer, head, query, key)
        return (
            f"{len(q)} bars, one for each channel of layer {layer}, head {head}: the products of "
            f"the query of {labels[query]} and the key of {labels[key]}. They add up to "
            f"{float(q @ k):.2f}."
        )

    query = query % len(ids)
    if key is None:
        q, k, _ = split_heads(recorded[f"h.{layer}.attn.qkv"], 3, model.config.heads)
        key = int(np.argmax(k[0, head, : query + 1] @ q[0, head, query]))
    places = [(f"{position}: {label}", position) for position, label in enumerate(labels)]
    controls(
        draw,
        alt=alt,
        caption="Each bar is one product; the line adds them up from left to right.",
        layer=_slider("layer", layer, model.config.layers),
        head=_slider("head", head, model.config.heads),
        query=ipywidgets.Dropdown(options=places, value=query, description="query of"),
        key=ipywidgets.Dropdown(options=places, value=key, description="key of"),
    )


class HeadSwitches(ipywidgets.VBox, ipywidgets.ValueWidget):
    """A check box for each head; ``value`` is a tuple of L tuples of NH booleans.

    Parameters
    ----------
    layers, heads
        L and NH.
    off
        (layer, head) pairs that are off at first.
    """

    value = traitlets.Tuple()

    def __init__(self, layers: int, heads: int, *, off: tuple[tuple[int, int], ...] = ()) -> None:
        self.description = "heads"
        self._boxes = [
            [_check_box(layer, head, (layer, head) not in off) for head in range(heads)]
            for layer in range(layers)
        ]
        self._buttons = {on: _button(f"all {word}") for on, word in ((True, "on"), (False, "off"))}
        rows = [ipywidgets.HBox(row) for row in self._boxes]
        super().__init__([*rows, ipywidgets.HBox(list(self._buttons.values()))])
        self._read()
        for box in self._all():
            box.observe(self._read, names="value")
        for on, button in self._buttons.items():
            button.on_click(lambda _, on=on: self.set_all(on))

    def _all(self) -> list[ipywidgets.Checkbox]:
        return [box for row in self._boxes for box in row]

    def _read(self, change: Any = None) -> None:
        self.value = tuple(tuple(box.value for box in row) for row in self._boxes)

    def set_all(self, on: bool) -> None:
        """Switch every head on or off, as one change."""
        for box in self._all():
            box.unobserve(self._read, names="value")
            box.value = on
            box.observe(self._read, names="value")
        self._read()

    def close(self) -> None:
        """Close the check boxes and buttons too."""
        for child in (*self._all(), *self._buttons.values(), *self.children):
            for part in (child.layout, getattr(child, "style", None), child):
                if part is not None:
                    part.close()
        super().close()


def switches(
    model: GPT2, tokenizer: Any, text: str, *, off: tuple[tuple[int, int], ...] = ()
) -> None:
    """Show what a text costs with some heads off; the reader switches them.

    Parameters
    ----------
    model, tokenizer, text
        The model, and what it reads.
    off
        (layer, head) pairs that are off at first.
    """
    ids, labels = encode(model, tokenizer, text)
    before, guesses = _losses(model, ids)

    @functools.lru_cache(maxsize=256)  # the alt text asks for the same, and readers come back
    def run(heads: tuple[tuple[bool, ...], ...], instead: str) -> tuple[Array, Array, list[Any]]:
        mask = np.array(heads, dtype=model.parameters.dtype)
        after, now = _losses(model, ids, head_mask=mask, ablation=instead)
        changed = [
            (position, tokenizer.token_label(int(old)), tokenizer.token_label(int(new)))
            for position, (old, new) in enumerate(zip(guesses, now, strict=True))
            if old != new
        ]
        return mask, after, changed

    def draw(heads: tuple[tuple[bool, ...], ...], instead: str) -> Figure:
        mask, after, changed = run(heads, instead)
        return drawings.switched(labels[1:], before, after, mask, changed)

    def alt(heads: tuple[tuple[bool, ...], ...], instead: str) -> str:
        mask, after, changed = run(heads, instead)
        return (
            f"Loss of each of {len(after)} tokens with {int(mask.size - mask.sum())} of "
            f"{mask.size} heads off: the mean goes from {before.mean():.2f} to "
            f"{after.mean():.2f} nats a token, and {len(changed)} first guesses change."
        )

    controls(
        draw,
        alt=alt,
        caption="Blue: the loss with all heads on. Orange: what is lost. A dash: the loss now.",
        heads=HeadSwitches(model.config.layers, model.config.heads, off=off),
        instead=ipywidgets.Dropdown(
            options=[("nothing (zero)", "zero"), ("its mean", "mean")], description="in its place"
        ),
    )


def head_counts(qkv: Array, labels: list[str], *, heads: int = 4) -> None:
    """Show the maps of one attention layer; the reader chooses the number of heads.

    Parameters
    ----------
    qkv
        (1, T, 3C) queries, keys and values, which are the same whatever the number of heads.
    labels
        T tokens.
    heads
        The first choice, a divisor of C.
    """
    T, C = qkv.shape[1], qkv.shape[2] // 3

    def weights(heads: int) -> Array:
        p = np.zeros((1, heads, T, T), qkv.dtype)
        ops.attention_forward(qkv, heads, probabilities=p)
        return p[0]

    def draw(heads: int) -> Figure:
        size = GPT2Config(channels=C, heads=heads).head_size
        return drawings.cut(weights(heads), title=f"NH = {heads}, hs = {size}")

    def alt(heads: int) -> str:
        p = weights(heads)
        entropy = -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=-1).mean()
        return (
            f"The maps of up to 16 of {heads} heads with {C // heads} channels each over "
            f"{len(labels)} tokens; their mean entropy is {entropy:.2f} nats."
        )

    controls(
        draw,
        alt=alt,
        caption="One layer with the same weights, cut into NH heads.",
        heads=ipywidgets.SelectionSlider(
            options=divisors_of(C), value=heads, description="heads NH"
        ),
    )


def _losses(model: GPT2, ids: Array, **mask: Any) -> tuple[Array, Array]:
    """Return the loss (T - 1,) of each next token, and the model's first guess for it."""
    small = model.config.channels < 512  # BLAS's threads would only wait for each other
    with one_blas_thread() if small else contextlib.nullcontext():
        logits = model.forward(ids[:-1], **mask)  # (T - 1, V)
    _, losses, _ = ops.cross_entropy_forward(logits, ids[1:])
    return np.asarray(losses).reshape(-1), logits.argmax(axis=-1)


def _habit(p: Array, labels: list[str]) -> str:
    """Say in a sentence where a head mostly reads."""
    T = len(labels)
    rows = np.arange(1, T)
    shares = {
        "the first token": float(p[1:, 0].mean()),
        "the token before": float(p[rows, rows - 1].mean()),
        "the token itself": float(p[rows, rows].mean()),
    }
    where, share = max(shares.items(), key=lambda item: item[1])
    most = int(p[1:].sum(axis=0).argmax())
    return f"It gives {where} {share:.0%} of its weight; most read in all is {labels[most]}."


def _slider(name: str, value: int, count: int) -> ipywidgets.IntSlider:
    return ipywidgets.IntSlider(value=value, min=0, max=count - 1, description=name)


def _check_box(layer: int, head: int, on: bool) -> ipywidgets.Checkbox:
    layout = ipywidgets.Layout(width="auto", margin="0 8px 0 0")
    return ipywidgets.Checkbox(value=on, description=f"{layer}.{head}", indent=False, layout=layout)


def _button(text: str) -> ipywidgets.Button:
    return ipywidgets.Button(description=text, layout=ipywidgets.Layout(width="auto"))
