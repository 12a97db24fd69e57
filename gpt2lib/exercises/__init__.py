"""Checkers of the book's exercises: ``chNN.check_…(answer)`` says what is right and what is not.

A checker never raises for a wrong answer. It prints one plain verdict and returns a bool:

* ``… not answered yet`` when the answer is still ``None`` or ``...``, so that an untouched
  notebook runs from top to bottom;
* ``✓`` and what is right;
* ``✗``, what was expected, and a hint.

``ch00`` is the example that goes with the chapter template.
"""

from __future__ import annotations

from typing import Any

__all__ = ["answered", "verdict"]


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
