"""Checkers of the book's exercises: ``chNN.check_…(answer)`` says what is right and what is not.

A checker never raises for a wrong answer. It prints one plain verdict and returns a bool:

* ``… not answered yet`` when the answer is still ``None`` or ``...``, so that an untouched
  notebook runs from top to bottom;
* ``✓`` and what is right;
* ``✗``, what was expected, and a hint.

``ch00`` is the example that goes with the chapter template.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["answered", "checker", "verdict"]

Check = TypeVar("Check", bound=Callable[..., bool])


class _TroubleError(Exception):
    """What went wrong in the reader's own function, in words."""


def checker(check: Check) -> Check:
    """Let a checker say in words what goes wrong in a reader's function (decorator).

    An error inside the function is a verdict, not a traceback through this library; so is something
    else where a function is asked for (an argument that the checker annotates as a ``Callable``).
    """
    parameters = inspect.signature(check).parameters
    asked = {name for name, p in parameters.items() if str(p.annotation).startswith("Callable")}

    @functools.wraps(check)
    def checked(*arguments: Any, **options: Any) -> bool:
        given = dict(zip(parameters, arguments, strict=False)) | options
        for name in asked & given.keys():
            if given[name] is None or given[name] is ...:
                return answered(given[name])
            if not callable(given[name]):
                kind = type(given[name]).__name__
                return verdict(
                    False, "", f"Here a function is asked for, not something of type {kind}."
                )
        try:
            return check(
                *(_guarded(value) for value in arguments),
                **{name: _guarded(value) for name, value in options.items()},
            )
        except _TroubleError as trouble:
            return verdict(False, "", str(trouble))

    return checked  # type: ignore[return-value]


def _guarded(value: Any) -> Any:
    """Return a function whose errors are told apart from the checker's own; others as they are."""
    if not inspect.isroutine(value):
        return value

    @functools.wraps(value)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return value(*arguments, **options)
        except Exception as error:
            kind = type(error).__name__
            raise _TroubleError(f"Your function raised {kind}: {error}") from error

    return call


def answered(answer: Any) -> bool:
    """Return whether there is anything to check, and say so if there is not."""
    if answer is None or answer is ...:
        print("… not answered yet: replace the dots, then run this cell again.")
        return False
    return True


def verdict(right: bool, praise: str, hint: str) -> bool:
    """Print ``✓ praise`` or ``✗ hint`` and return ``right`` as a plain bool."""
    print(f"✓ {praise}" if right else f"✗ {hint}")
    return bool(right)
