"""Controls in a running notebook, a figure with a line of text in the rendered page."""

from __future__ import annotations

import contextlib
import gc
import html
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from matplotlib import pyplot as plt

from gpt2lib.figures import Picture, picture

if TYPE_CHECKING:
    import ipywidgets
    from matplotlib.figure import Figure

_VIEW = "application/vnd.jupyter.widget-view+json"
_Key = tuple[Any, ...]

# One live instance for each place in the notebook: running the cell again closes the former one.
_live: dict[_Key, Controls] = {}
_counts: dict[_Key, int] = {}
_cell: list[Any] = [None]  # the execution that the counts belong to


def controls(
    draw: Callable[..., Figure],
    *,
    alt: str | Callable[..., str],
    caption: str = "",
    **widgets: Any,
) -> None:
    """Display a figure that follows its controls.

    In a running notebook ``draw`` is called again whenever a control changes. A rendered page
    has no kernel, so it gets the figure of the initial state and a line that names the controls.

    Parameters
    ----------
    draw : callable
        ``draw(**values)`` returns a new matplotlib figure. It should take less than 0.1 s.
    alt : str or callable
        Alt text of the figure, or ``alt(**values)`` that returns it for a setting.
    caption : str, optional
        As in :func:`gpt2lib.figures.show`.
    **widgets
        One ipywidgets control for each argument of ``draw``, or what ``interact`` takes in its
        place: ``True``, ``(low, high)``, ``(low, high, step)``, a list of choices.

    Raises
    ------
    ValueError
        If there is no control, a control has no value, or ``alt`` is blank.

    Notes
    -----
    An error in the first drawing is raised, so that a book with a broken figure does not build.
    A later one is shown as a sentence in place of the figure, and the next change goes on.
    """
    from IPython.display import display

    display(_replace(Controls(draw, alt=alt, caption=caption, widgets=widgets)))


class Controls:
    """The object that :func:`controls` displays."""

    def __init__(
        self,
        draw: Callable[..., Figure],
        *,
        alt: str | Callable[..., str],
        caption: str,
        widgets: dict[str, Any],
    ) -> None:
        import ipywidgets

        if not widgets:
            raise ValueError("controls need at least one control: controls(draw, alt=…, k=slider)")
        self.draw = draw
        self.alt = alt
        self.caption = caption
        self.widgets = {name: _as_widget(name, value) for name, value in widgets.items()}
        self.closed = False
        first = self._picture()  # raises if the initial state cannot be drawn
        self.static = Picture(_with_note(first.html, self.names), first.alt)

        self.output = ipywidgets.Output()
        self.output.layout.min_height = f"{_height(first.html) + 48}px"
        row = ipywidgets.Box(list(self.widgets.values()))
        row.layout.flex_flow = "row wrap"
        self.row = row
        self.box = ipywidgets.VBox([row, self.output])
        self.box.add_class("g2-controls")
        for widget in self.widgets.values():
            widget.observe(self._changed, names="value")
        self._display(first)

    @property
    def names(self) -> list[str]:
        """What the controls are called, as the reader sees it."""
        return [
            getattr(widget, "description", "").strip(" :") or name.replace("_", " ")
            for name, widget in self.widgets.items()
        ]

    @property
    def values(self) -> dict[str, Any]:
        """The present setting."""
        return {name: widget.value for name, widget in self.widgets.items()}

    def close(self, keep: tuple[Any, ...] = ()) -> None:
        """Stop following the controls and free every widget except those in ``keep``."""
        if self.closed:
            return
        self.closed = True
        kept = {id(widget) for widget in keep}
        for widget in self.widgets.values():
            widget.unobserve(self._changed, names="value")
        for widget in (self.box, self.row, self.output, *self.widgets.values()):
            if id(widget) not in kept:
                for part in ("layout", "style"):  # models of their own in the kernel's registry
                    model = getattr(widget, part, None)
                    if model is not None and hasattr(model, "close"):
                        model.close()
                widget.close()

    def _picture(self) -> Picture:
        values = self.values
        before = set(plt.get_fignums())
        try:
            fig = self.draw(**values)
            if not hasattr(fig, "savefig"):
                raise ValueError(f"draw must return a figure, not {type(fig).__name__}")
            alt = self.alt(**values) if callable(self.alt) else self.alt
            return picture(fig, alt=alt, caption=self.caption)
        finally:
            for number in set(plt.get_fignums()) - before:  # nothing that draw opened stays open
                plt.close(number)

    def _changed(self, change: Any) -> None:
        with _collect_later():
            try:
                shown: Any = self._picture()
            except Exception as error:
                reason = html.escape(" ".join(str(error).split()) or type(error).__name__)
                sentence = f"This setting cannot be drawn: {reason.rstrip('.')}."
                shown = Picture(f'<p class="g2-error" role="alert">{sentence}</p>', sentence)
            self._display(shown)

    def _display(self, shown: Picture) -> None:
        # As the widget's state, in one message: the old figure stays until the new one is there.
        # (`with self.output` would have whoever executes the notebook for a page write back to the
        # kernel in the middle of the cell; nbclient then sometimes misses that the cell has ended.)
        data = {"text/html": shown.html, "text/plain": shown.alt}
        self.output.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/html": self.static.html, "text/plain": self.static.alt}
        view = self.box._repr_mimebundle_() if not self.closed else None
        if view and _VIEW in view:
            bundle[_VIEW] = view[_VIEW]
        return bundle

    def __repr__(self) -> str:
        return self.static.alt


@contextlib.contextmanager
def _collect_later() -> Iterator[None]:
    """Put off garbage collection: a full one takes longer than a drawing, and may come after it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _as_widget(name: str, value: Any) -> ipywidgets.ValueWidget:
    import ipywidgets

    widget = ipywidgets.interactive.widget_from_abbrev(value)
    if widget is None or not hasattr(widget, "value"):
        raise ValueError(f"control {name!r}: {value!r} is neither a widget nor stands for one")
    if not getattr(widget, "description", "x"):
        widget.description = name.replace("_", " ")
    return widget


def _with_note(markup: str, names: list[str]) -> str:
    listed = ", ".join(f"<b>{html.escape(name)}</b>" for name in names)
    note = (
        f'<p class="g2-note">This figure has controls in the notebook: {listed}. '
        '<a href="../book/how-to-read.html">How to run it</a></p>'
    )
    return markup.removesuffix("</figure>") + note + "</figure>"


def _height(markup: str) -> int:
    """Height of a picture in CSS pixels, so that the page does not jump while it is redrawn."""
    match = re.search(r'<svg [^>]*?height="(\d+)"', markup)
    return int(match.group(1)) if match else 300


def _replace(new: Controls) -> Controls:
    """Register an instance and close the one that an earlier run of the same cell made."""
    cell, execution = _where()
    if execution != _cell[0]:
        _cell[0] = execution
        _counts.clear()
    name = getattr(new.draw, "__qualname__", type(new.draw).__name__)
    place = (cell, getattr(new.draw, "__module__", ""), name, tuple(new.widgets))
    _counts[place] = _counts.get(place, 0) + 1
    key = (*place, _counts[place])  # the same call twice in a cell is two instances
    former = _live.pop(key, None)
    if former is not None:
        former.close(keep=tuple(new.widgets.values()))
    _live[key] = new
    return new


def _where() -> tuple[Any, Any]:
    """Return the cell's id, where the front end tells it, and the number of this execution."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None:
        return None, object()
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    metadata = (parent or {}).get("metadata") or {}
    return metadata.get("cellId"), getattr(shell, "execution_count", None)
