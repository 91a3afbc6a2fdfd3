"""Which loops operands that broadcast need: a letter for each (`loop_text`), and how they step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tinytorch.backends.base import Slice
from tinytorch.dtypes import Array

Shape = tuple[int, ...]

LOOPS = 3  # nested loops of a broadcasting kernel
LEAST_COLUMNS = 16  # of the innermost: shorter ones cost more than a copy


def kind_of(shape: Shape | None, out: Shape) -> str:
    """Which letter an operand has, as far as its own shape tells."""
    if shape is None:
        return "s"
    return "v" if shape == out else "b" if len(out) == 2 and shape == out[1:] else "r"


class Nest:
    """How three nested loops run over C-contiguous operands that broadcast.

    Args:
        out: shape of the result.
        shapes: of the operands; None for a Python scalar.

    Attributes:
        kinds: a letter for each operand; None if three loops do not suffice.
        length: of the outermost loop.
        geometry: see `nested_source`.
    """

    def __init__(self, out: Shape, shapes: tuple[Shape | None, ...]) -> None:
        arrays = [(1,) * (len(out) - len(s)) + s for s in shapes if s is not None]
        groups: list[tuple[int, tuple[bool, ...]]] = []  # length, and which arrays have it
        for size, *theirs in zip(out, *arrays, strict=True):
            present = tuple(length == size for length in theirs)
            if groups and groups[-1][1] == present:
                groups[-1] = (groups[-1][0] * size, present)
            elif size != 1:
                groups.append((size, present))
        self.kinds: str | None = None
        if len(groups) > LOOPS:
            return
        everywhere = tuple(True for _ in arrays)
        missing = LOOPS - len(groups)
        # a single outer loop becomes the outermost, the one that threads share
        groups[len(groups) - 1 : 0] = [(1, everywhere)] * missing if groups else []
        groups = groups or [(1, everywhere)] * LOOPS
        self.length = groups[0][0]
        self.kinds, geometry, array = "", [groups[1][0], groups[2][0]], 0
        for shape in shapes:
            if shape is None:
                self.kinds += "s"
                geometry += [0, 0, 0]
                continue
            rows, columns = (length if here[array] else 1 for length, here in groups[1:])
            geometry += [0, rows * columns * groups[0][1][array], columns * groups[1][1][array]]
            self.kinds += "v" if groups[2][1][array] else "r"
            array += 1
        self.geometry = np.array(geometry, np.int64)


def without_repeats(operands: Sequence[Any], out: Shape) -> list[Any] | None:
    """The operands without the repeats of those that are expanded, as they still broadcast to `out`
    and need no copy; None where none is expanded, or the repeats make the shape."""
    cuts = _cuts(out, tuple([(x.shape, x.strides) for x in operands if isinstance(x, np.ndarray)]))
    if cuts is None:
        return None
    left = iter(cuts)
    return [x[next(left)] if isinstance(x, np.ndarray) else x for x in operands]


@lru_cache(1024)
def _cuts(out: Shape, arrays: tuple[tuple[Shape, Shape], ...]) -> list[tuple[slice, ...]] | None:
    """What takes from an array, given as its shape and strides, the first of what it repeats."""
    repeats = [[n > 1 and not step for n, step in zip(*x, strict=True)] for x in arrays]
    once = [np.where(which, 1, x[0]) for which, x in zip(repeats, arrays, strict=True)]
    if not any(map(any, repeats)) or np.broadcast_shapes(*map(tuple, once)) != out:
        return None
    return [tuple([slice(1) if is_repeated else slice(None) for is_repeated in x]) for x in repeats]


def collapse(shape: Shape, strides: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """The same walk through several arrays with as few dimensions as possible, at least one."""
    groups: list[tuple[int, Shape]] = []  # length, and the step of each array
    for d, n in enumerate(shape):
        steps = tuple([walk[d] for walk in strides])
        if groups and groups[-1][1] == tuple([n * step for step in steps]):
            groups[-1] = (groups[-1][0] * n, steps)
        elif n != 1:
            groups.append((n, steps))
    groups = groups or [(1, (0,) * len(strides))]
    return tuple(n for n, _ in groups), [*zip(*(steps for _, steps in groups), strict=True)]


def steps_of_rows(
    shape: Shape, arrays: Sequence[Array], places: Sequence[int], arity: int
) -> tuple[int, Array] | None:
    """How three nested loops run over arrays of one shape whose rows are not next to each other.

    Such are slices of larger arrays, `x[:, 1:]`: they need no copy, since the innermost loop walks
    along memory in each.

    Args:
        arrays: the operands at the positions `places`, of `arity` operands; the others are numbers.

    Returns:
        The length of the outermost loop, and the geometry (see `nested_source`); None if three
        loops do not suffice, or memory is not walked along.
    """
    if not all(x.flags.aligned for x in arrays):  # others are other types
        return None
    sizes, walks = collapse(shape, [x.strides for x in arrays])
    pairs = [*zip(arrays, walks, strict=True)]
    if len(sizes) < 2 or any(step % x.itemsize for x, walk in pairs for step in walk):
        return None
    steps = [tuple([step // x.itemsize for step in walk]) for x, walk in pairs]
    if any(walk[-1] != 1 for walk in steps):
        return None
    return _geometry(sizes, steps, [0] * len(steps), places, arity)


def steps_of_slices(
    shape: Shape, shapes: Sequence[Shape | None], slices: Mapping[int, Slice]
) -> tuple[str, int, Array] | None:
    """As `steps_of_rows`, for slices of arrays in C order, beside other such arrays that broadcast.

    Args:
        shapes: of the operands; None for a Python scalar.
        slices: those operands that are one, by position.

    Returns:
        The kinds of the operands, too.
    """
    places = [i for i, s in enumerate(shapes) if s is not None]
    walks, begins = list[Shape](), list[int]()
    for i in places:
        theirs = shapes[i] or ()
        cut = slices.get(i) or Slice(theirs, tuple([(0, n, 1) for n in theirs]))
        missing = (0,) * (len(shape) - len(theirs))
        steps = [0 if n == 1 else step for n, step in zip(theirs, cut.strides, strict=True)]
        walks.append((*missing, *steps))
        begins.append(cut.begin)
    sizes, walks = collapse(shape, walks)
    found = _geometry(sizes, walks, begins, places, len(shapes))
    if found is None:
        return None
    kinds = ["s"] * len(shapes)
    for i, walk in zip(places, walks, strict=True):
        kinds[i] = "v" if walk[-1] else "r"
    return "".join(kinds), *found


def _geometry(
    sizes: Shape,
    steps: Sequence[Shape],
    begins: Sequence[int],
    places: Sequence[int],
    arity: int,
) -> tuple[int, Array] | None:
    """The length of the outermost loop, and the geometry, of walks by elements, collapsed."""
    if len(sizes) > LOOPS or sizes[-1] < LEAST_COLUMNS:
        return None
    if any(walk[-1] > 1 or min(walk) < 0 for walk in steps):
        return None
    # a single outer loop is the one that threads share
    *outer, columns = sizes
    length, rows = (*outer, 1, 1)[:2]
    geometry = np.zeros(2 + 3 * arity, np.int64)
    geometry[:2] = rows, columns
    for place, walk, begin in zip(places, steps, begins, strict=True):
        geometry[2 + 3 * place : 5 + 3 * place] = begin, *(*walk[:-1], 0, 0)[:2]
    return length, geometry
