"""Arrays of int64 that tell a kernel the geometry of a convolution: the name of each position.

A plan writes `np.array(PositionsGeometry(...))`; a kernel reads `geometry[POSITIONS.pitch]`.
"""

from __future__ import annotations

from typing import NamedTuple


class PositionsGeometry(NamedTuple):
    """The numbers of a `plan.Positions` that kernels read: a padded image with its channels last,
    and what is between two of its positions."""

    origin: int
    pitch: int
    plane: int
    group: int  # bytes of the channels of a group
    read_rows: int  # bytes, from one row of positions to the next
    read_columns: int
    write_rows: int  # of the output
    write_columns: int
    together: int  # images that are one item of work; the last in every walk


class CorrelationGeometry(NamedTuple):
    """The numbers of a `plan.Correlation` that kernels read: a padded phase of an image, and how
    many phases there are."""

    origin: int
    pitch: int
    plane: int
    phases_height: int
    phases_width: int
    together: int


class BatchGeometry(NamedTuple):
    """The numbers of a `plan.Batch` that kernels read: the windows."""

    kernel_height: int
    kernel_width: int
    stride_height: int
    stride_width: int
    padding_height: int
    padding_width: int
    together: int


class ProductsGeometry(NamedTuple):
    """The numbers of a gradient to the weights that kernels read: a padded image with its channels
    last, and its positions."""

    origin: int
    pitch: int
    group: int  # bytes of the channels of a group
    step: int  # bytes from position to position
    next_row: int  # from row to row of positions
    positions: int  # in a row
    rows: int
    next_gradient: int  # bytes of a row of g


class PhaseRow(NamedTuple):
    """A row of the table of phases of `plan.Positions`: output positions with the same taps.

    The elements under `rows` rows of taps are as far apart as each other, and those of a row are
    adjacent, or there are several runs of them.
    """

    row: int  # of its first output position
    column: int
    start: int  # bytes from the image to the elements of the first tap
    rows: int
    down: int  # bytes from row to row of taps
    runs: int
    across: int  # bytes from run to run
    steps: int  # terms of a run
    weights: int  # steps of the phases before


class StoreEntry(NamedTuple):
    """An entry of `plan.Correlation.stores`, for a vector of output positions; its first part.

    Each further part adds another `target` and `mask`.
    """

    source: int  # byte offset of the vector in the image
    target: int  # byte offset of a part in the output
    mask: int  # of the lanes to store


# where each is in its array
POSITIONS = PositionsGeometry(*range(9))
CORRELATION = CorrelationGeometry(*range(6))
BATCH = BatchGeometry(*range(7))
PRODUCTS = ProductsGeometry(*range(8))
PHASE = PhaseRow(*range(9))
STORE = StoreEntry(*range(3))
STORE_PART = 2  # words of a part: target and mask
TOGETHER = -1
