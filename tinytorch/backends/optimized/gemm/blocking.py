"""How a matrix product is cut into blocks, and which operands are copied first.

Nothing here is tuned to a processor: sizes follow from the caches that `jit.caches` reads and from
the register tile.

    KC  steps of k that a tile sums up before it is added to others. A panel of B, KC x (columns of
        a tile), takes half of L1, if that is `LEAST_STEPS` or more: with fewer a tile of C would go
        to memory and back too often. Then the panel comes from L2, and where tiles ask ahead
        (`ASKS_AHEAD`), it may as well take a sixteenth of that.
    DC  steps of k that are packed together, and MC rows of A: a block of A, MC x DC, takes half of
        L2, as it is read again for each panel of B. Each tile of C is read and written once for DC
        steps, each panel of B read once for MC rows, both beyond L2. Together that is least where
        DC = 2 MC. Where tiles ask ahead, both are there in time: then DC is KC, so that no sums
        wait in memory for the next KC steps, and a block of A takes a quarter of L2, as what is
        asked for goes there, too. So it is where a panel of KC steps takes no more than three
        quarters of L1 and stays there: a longer one would come from L2 for every tile.
    NC  columns of B: a packed block, DC x NC, is read again for each block of A, from L3. Where
        there is one block of A alone, it takes half of L2.

A tile of r rows and v vectors takes r v / 2 cycles for a step of k on a core with two units, and
brings v vectors of B from L2 where the panel does not stay in L1: 2 / r of a vector in a cycle.
Tiles with half of the vectors have twice the rows (24 sums in both), so that half as much comes
from L2; but A is read twice as often, and B in shorter rows. That pays where A is small and B is in
L2 (`comes_from_l2`): the first layers of a network, at a batch of some ten rows. Where all of B
stays in L1 and C does not stay in L2, the rows of C are written one after another instead of panel
by panel, as most of them share lines and pages with the next panel's, and each tile asks for its
own as it begins: with few steps of k it is done before they come by themselves. Tiles that do not
ask ahead do so wherever the operands are beyond L2: else they end by waiting for C, from L3, for as
long as a tenth of their sums took.

A copy costs a read and a write of every element, so it must save more than that. What it saves are
the misses of a walk along k that takes a few bytes of each of many rows:

    pages   each row is in a page of its own: more of them than the core translates without delay
            (`jit.caches.L1_PAGES`) make every step wait. Where few rows of C would read the copy,
            k is cut into blocks of as many steps as there are pages instead, unless panels of so
            few steps come from L2, too, and are copied for the sake of their lines.
    sets    rows that are a multiple of 4 KiB apart fall into the same set of L1, which then holds
            8 or 12 lines and not 512. They are gone before the next tile asks for them. So do, a
            few at a time, rows that are almost a fraction of 4 KiB apart: of 513 or 341 floats.
    lines   a vector that is not aligned is in two lines of the cache. While both are in L1 that
            costs little; a panel that is larger than half of L1 comes from L2 with a line more for
            each row, and each access takes two turns. (NumPy aligns large arrays to 16 bytes.)

Source: Low et al., Analytical modeling is enough for high-performance BLIS, ACM TOMS 43 (2016),
sections 4.1 to 4.4; Goto and van de Geijn (2008), section 4, on pages.
"""

from __future__ import annotations

import math

from tinytorch.jit.caches import L1_PAGES, PAGE_BYTES, core_caches
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.library import kernel

_UNIT = host_vector_unit()
_REGISTER_BYTES = _UNIT.register_bytes
_L1, _L2 = core_caches()
_L1_SIZE, _L1_WAY, _L1_WAYS, LINE_BYTES = _L1.size, _L1.way_bytes, _L1.ways, _L1.line
_L2_WAY, _L2_WAYS = _L2.way_bytes, _L2.ways
_ROW_BYTES = _UNIT.tile_vectors[-1] * _UNIT.register_bytes

LEAST_STEPS = 384
MOST_STEPS = 512
ASKS_AHEAD = _UNIT.registers > 16
"""Whether a tile asks for its rows of C and for rows of the next panel of B while it sums up. That
takes some 20 cycles, and a tile that has 12 sums and not 24 is done too soon to gain them back."""

_STEPS = max(_L1.size // 2, _L2.size // 16 if ASKS_AHEAD else 0) // _ROW_BYTES
KC_BYTES = 4 * min(max(_STEPS, LEAST_STEPS), MOST_STEPS)
"""Bytes of a row of A in a block: KC elements of four bytes, or half as many of eight."""

DOT_ROW_BYTES = KC_BYTES * (_UNIT.register_bytes // 4)
"""Bytes of a row of A in a dot product: about KC terms for each lane."""

_TILE_ROWS = _UNIT.tile_rows(_UNIT.tile_vectors[-1])

LEAST_PHASE = 512
"""Multiply-adds between two requests, on average over a tile's rows: with fewer, the ends of the
loops cost more than what is saved. (In each of `rows` phases there are k / rows * rows * vectors.)
"""

_IS_SHORT = ASKS_AHEAD or 3 * _L1.size // 4 >= KC_BYTES // 4 * _ROW_BYTES
DC_BYTES = KC_BYTES if _IS_SHORT else max(4 * math.isqrt(_L2.size // 4) // 64 * 64, KC_BYTES)
MC = max(_L2.size // (4 if _IS_SHORT else 2) // DC_BYTES // _TILE_ROWS, 1) * _TILE_ROWS
NC = 2048
L1_BYTES, L2_BYTES = _L1.size, _L2.size

COPY_ROWS, BLOCK_STEPS = 12, 4 if ASKS_AHEAD else 16
"""What a copy of an operand beyond L1 costs: as this many rows of a product with it (or columns).
What a block of k costs: each tile as much as so many steps, since C is read and written again. A
tile of 12 sums takes half the time for a step of one of 24, and waits for part of its C."""

TILES_THAT_PAY, NARROW_COPY = 6, 3
"""Packing pays for itself when this many tiles read what was packed. Where panels can be narrow,
so many times as many, if it is not for the sake of pages."""

PANELS_THAT_PAY = 3 if ASKS_AHEAD else TILES_THAT_PAY
"""A transposed A of many rows that is walked along badly is copied for more panels of B than this:
each would miss L1 at every step, and rows of a few elements are copied without a transposition. A
panel for tiles of 12 sums is a third as wide, and pays for less."""

ALIGNED_PANELS = 16
"""A first panel of less than a vector pays for itself where it aligns the vectors of so many."""


@kernel(inner=True)
def balanced(size: int, most: int) -> int:
    """The length of the parts, if `size` is cut into equal parts of at most `most`."""
    parts = (size + most - 1) // most
    return (size + parts - 1) // max(parts, 1)


@kernel(inner=True)
def crosses_pages(steps: int, stride: int) -> bool:
    """Whether a walk of so many steps goes through more pages than are translated at once."""
    return steps * min(abs(stride), PAGE_BYTES) > L1_PAGES * PAGE_BYTES


@kernel(inner=True)
def steps_in_pages(steps: int, stride: int, readers: int) -> int:
    """Steps of k in a block, so that its rows are in pages that are all translated at once.

    Where more rows (or columns) of C read the operand, `readers`, a copy costs less than blocks of
    so few steps.
    """
    if not crosses_pages(steps, stride):
        return steps
    most = L1_PAGES * PAGE_BYTES // min(abs(stride), PAGE_BYTES)
    return most if readers * BLOCK_STEPS < COPY_ROWS * most else steps


@kernel(inner=True)
def rows_in_a_set(steps: int, stride: int) -> int:
    """How many of so many rows begin in L1's set of the first, where that begins a line; or where
    it ends one, if these are more."""
    step, offset, after, before = stride % _L1_WAY, 0, 0, 0
    for _ in range(steps):
        after += 1 if offset < LINE_BYTES else 0
        before += 1 if offset == 0 or offset > _L1_WAY - LINE_BYTES else 0
        offset += step
        offset -= _L1_WAY if offset >= _L1_WAY else 0
    return max(after, before)


@kernel(inner=True)
def walks_badly(steps: int, stride: int) -> bool:
    """Whether a walk of so many steps goes through too many pages, or through more lines of a set
    than half of those that it holds."""
    if crosses_pages(steps, stride):
        return True
    is_long = steps * abs(stride) > _L1_SIZE // 2
    return is_long and rows_in_a_set(steps, stride) > _L1_WAYS // 2


@kernel(inner=True)
def rows_collide(rows: int, size: int, stride: int) -> bool:
    """Whether so many rows of `size` bytes fall into so few sets of L2 that half of these do not
    hold them."""
    distance = abs(stride)
    pitch = max(min(distance & -distance, _L2_WAY), LINE_BYTES)
    return size < pitch and rows > _L2_WAY // pitch * _L2_WAYS // 2


@kernel(inner=True)
def comes_from_l2(panel: int, b: int, a: int) -> bool:
    """Whether each tile brings its panel of B from L2, and A is so small that it may be read twice
    as often. All are in bytes."""
    return panel >= _L1_SIZE // 2 and b <= L2_BYTES // 2 and a < L2_BYTES // 8


@kernel(inner=True)
def panels_walk_badly(steps: int, address: int, stride: int) -> bool:
    """Whether so many rows of B are better copied: a panel that stays in L1 for the sake of its
    sets, one that comes from L2 if its vectors lie in two lines each; any for too many pages."""
    if crosses_pages(steps, stride):
        return True
    if steps * _ROW_BYTES >= _L1_SIZE // 2:
        return (address | stride) % _REGISTER_BYTES != 0
    return walks_badly(steps, stride)
