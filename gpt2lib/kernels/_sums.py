"""Adding up what chunks left behind, in the order of the chunks."""

from __future__ import annotations

from gpt2lib.kernels._compile import Real1, Real2, kernel


@kernel
def add_partials(lo: int, hi: int, partials: Real2, out: Real1) -> None:
    """Add the rows of ``partials`` to ``out``, first row first; a chunk is a range of columns."""
    total = out[lo:hi]
    for k in range(partials.shape[0]):
        row = partials[k, lo:hi]
        for c in range(total.size):
            total[c] += row[c]
