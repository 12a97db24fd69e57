"""What happens when two threads add to one number: a race, played move by move.

``x += g`` is three moves: load x, add g to it, store the sum. Two threads may take their moves in
any order, and in most orders one of the two gradients is lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["MOVES", "Move", "orders", "play"]

#: The moves of ``x += g``.
MOVES = ("load", "add", "store")


class Move(NamedTuple):
    """One move, and what it leaves behind.

    Attributes
    ----------
    thread
        Whose move it is.
    what
        ``"load"``, ``"add"`` or ``"store"``.
    register
        What the thread then has in hand.
    memory
        What then lies in memory, for all to see.
    """

    thread: int
    what: str
    register: float
    memory: float


def play(order: Sequence[int], gradients: Sequence[float], start: float = 0.0) -> list[Move]:
    """Let threads add their gradients to one number, in a given order of moves.

    Parameters
    ----------
    order
        Whose turn it is, move by move; each thread has three.
    gradients
        What each thread adds.
    start
        What lies in memory before.

    Raises
    ------
    ValueError
        When the order does not give each thread three moves.

    Examples
    --------
    One after the other; and both load before either stores:

    >>> play([0, 0, 0, 1, 1, 1], [2.0, 3.0])[-1].memory
    5.0
    >>> play([0, 1, 0, 1, 0, 1], [2.0, 3.0])[-1].memory
    3.0
    """
    if sorted(order) != sorted([*range(len(gradients))] * len(MOVES)):
        raise ValueError(f"each of {len(gradients)} threads has {len(MOVES)} moves, got {order!r}.")
    memory, registers = start, [0.0] * len(gradients)
    done = [0] * len(gradients)
    moves = []
    for thread in order:
        what = MOVES[done[thread]]
        done[thread] += 1
        if what == "load":
            registers[thread] = memory
        elif what == "add":
            registers[thread] += gradients[thread]
        else:
            memory = registers[thread]
        moves.append(Move(thread, what, registers[thread], memory))
    return moves


def orders() -> list[tuple[int, ...]]:
    """Return every order in which two threads can take their three moves each: 20.

    Examples
    --------
    >>> len(orders())
    20
    """
    places = range(2 * len(MOVES))
    return [
        tuple(int(place not in first) for place in places)
        for first in itertools.combinations(places, len(MOVES))
    ]
