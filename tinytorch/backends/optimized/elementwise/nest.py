"""Which loops operands that broadcast need: a letter for each (`loop_text`), and how they step."""

from __future__ import annotations

import numpy as np

Shape = tuple[int, ...]

LOOPS = 3  # nested loops of a broadcasting kernel


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
                geometry += [0, 0]
                continue
            rows, columns = (length if here[array] else 1 for length, here in groups[1:])
            geometry += [rows * columns * groups[0][1][array], columns * groups[1][1][array]]
            self.kinds += "v" if groups[2][1][array] else "r"
            array += 1
        self.geometry = np.array(geometry, np.int64)
