"""How an output is cut into chunks: by the problem's size alone, never by the number of threads.

A fixed cut, with partial sums added in the order of the chunks, gives the same bits on any number
of threads and under every runtime. So a cut must suit one thread and many: a few more chunks than
most machines have cores, each large enough that its start costs nothing.
"""

from __future__ import annotations

from gpt2lib.kernels._compile import part

ELEMENTS = 1 << 15  # of an element-by-element pass: 128 KiB of float32 an array
FEW = 4  # rows up to which a matrix product streams the weight instead of calling BLAS


def pieces(extent: int, count: int, multiple: int, least: int) -> int:
    """Return a chunk size that cuts ``extent`` into about ``count`` equal chunks.

    Sizes are multiples of ``multiple`` and at least ``least``, except where ``extent`` is smaller.
    """
    count = max(1, min(count, extent // least))
    size = -(-extent // count)
    return max(1, min(extent, -(-size // multiple) * multiple))


def tile_shape(rows: int, columns: int) -> tuple[int, int]:
    """Return height and width of the tiles in which a matrix product's output is computed.

    Columns are cut first: each chunk then reads and packs its own columns of the weights, which are
    the large operand, once. Rows are cut where that gives too few chunks.
    """
    width = pieces(columns, max(16, columns // 1024), 16, 192)
    across = -(-columns // width)
    height = pieces(rows, max(1, 16 // across), 8, 256)
    return height, width


def tile_count(rows: int, columns: int, tile: tuple[int, int]) -> int:
    """Return the number of tiles."""
    height, width = tile
    return -(-rows // height) * -(-columns // width)


@part
def tile(number, rows, columns, height, width):
    """Return (row_lo, row_hi, column_lo, column_hi) of one tile; tiles are numbered row by row."""
    across = -(-columns // width)
    top, left = (number // across) * height, (number % across) * width
    return top, min(top + height, rows), left, min(left + width, columns)
