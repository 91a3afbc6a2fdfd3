"""How far the model of the caches and this processor are apart, and what no system says of it.

Whether an operand of a product is copied first, `gemm.blocking` decides by sets, lines and pages.
Here each walk is timed both ways, as it is and with its copy, the time of copying shared by as many
tiles as read it in a product: "loss" is what the model's choice takes beyond the better one.

The number of pages that a core translates without delay is written nowhere: it is where a walk with
a page for each step becomes slower than one through packed memory.
"""

import thread_count  # noqa: F401, I001 - before NumPy

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from tinytorch.backends.optimized.gemm import blocking
from tinytorch.backends.optimized.gemm.blocking import KC_BYTES, TILES_THAT_PAY
from tinytorch.backends.optimized.gemm.micro_kernel import gemm_tile_f32
from tinytorch.backends.optimized.gemm.packing import pack_f32
from tinytorch.bench import format_table, time_callables
from tinytorch.jit.buffers import workspace
from tinytorch.jit.caches import L1_PAGES, PAGE_BYTES, core_caches
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.library import kernel
from tinytorch.jit.operands import NOTHING, NOWHERE, Matrix, Rows

UNIT = host_vector_unit()
VECTORS = UNIT.tile_vectors[-1]
ROWS, COLUMNS = UNIT.tile_rows(VECTORS), VECTORS * UNIT.register_bytes // 4
ROW_BYTES = COLUMNS * 4
READERS = 4 * TILES_THAT_PAY  # tiles that read a panel
ITEM = 4
SLOWER = 1.1
"""A walk that takes so many times as long as another is slower, and not only disturbed."""


@dataclass(frozen=True)
class Walk:
    """A panel that a tile walks along.

    Attributes:
        operand: "A", transposed, of which a step of k is a few elements, or "B", with a row.
        steps: of k.
        stride: bytes from step to step.
        offset: of the first from a cache line.
    """

    operand: str
    steps: int
    stride: int
    offset: int = 0

    @property
    def is_copied(self) -> bool:
        """What the model says."""
        if self.operand == "A":
            return bool(_walks_badly(self.steps, self.stride))
        return bool(_panels_walk_badly(self.steps, self.offset, self.stride))


@dataclass(frozen=True)
class Measurement:
    """Seconds of the tiles that read a panel: as it is, from its copy, and of the copying."""

    walk: Walk
    direct: float
    packed: float
    copying: float

    @property
    def loss(self) -> float:
        """What the model's choice takes beyond the better one, as a part of that."""
        both = self.direct, self.packed + self.copying
        return both[self.walk.is_copied] / min(both) - 1


@kernel
def _walks_badly(steps: int, stride: int) -> bool:
    return blocking.walks_badly(steps, stride)


@kernel
def _panels_walk_badly(steps: int, address: int, stride: int) -> bool:
    return blocking.panels_walk_badly(steps, address, stride)


@kernel
def _tiles(
    passes: int,
    count: int,
    steps: int,
    a: int,
    a_column: int,
    next_a: int,
    b: int,
    b_row: int,
    c: int,
) -> None:
    """Pass after pass over tiles with one panel of B; elements of a step of A are adjacent."""
    for _ in range(passes):
        for i in range(count):
            of_a, of_b = Matrix(a + i * next_a, ITEM, a_column), Rows(b, b_row)
            target = Rows(c, ROW_BYTES)
            gemm_tile_f32(ROWS, COLUMNS, steps, of_a, of_b, NOWHERE, target, 0, NOTHING, 0)


@kernel
def _copy(count: int, width: int, steps: int, source: int, stride: int, target: int) -> None:
    for i in range(count):
        panel = Matrix(source + i * width * ITEM, ITEM, stride)
        pack_f32(width, steps, panel, Rows(target + i * width * steps * ITEM, width * ITEM))


def walks() -> Iterator[Walk]:
    """Strides of matrices whose sizes are powers of two, near them, and neither."""
    most, way = KC_BYTES // ITEM, core_caches()[0].way_bytes
    for steps in (most // 8, most // 2, most):
        for stride in (1024, 2048, way, way + 64, 3 * way, 3 * 1024 + 64):
            yield Walk("A", steps, stride)
            for offset in (0, 16):
                yield Walk("B", steps, stride, offset)


def measure(walk: Walk, rounds: int, neighbours: int = 8) -> Measurement:
    """Time a walk both ways.

    Args:
        neighbours: tiles of a transposed A that take turns, as they do for each panel of B; they
            share the lines of its steps. A panel of B has no such company.
    """
    is_b = walk.operand == "B"
    width, count = (COLUMNS, 1) if is_b else (ROWS, neighbours)
    sizes = (
        walk.steps * walk.stride + count * width * ITEM + PAGE_BYTES,
        walk.steps * count * width * ITEM,
        walk.steps * ROW_BYTES,
        ROWS * ROW_BYTES,
    )
    blocks = [workspace((size,), np.dtype(np.uint8)) for size in sizes]
    for block in blocks:
        block.fill(0)
    start, to, beside, result = (block.ctypes.data for block in blocks)
    start += walk.offset
    run: dict[str, Callable[[], object]] = {
        "copying": partial(_copy, count, width, walk.steps, start, walk.stride, to)
    }
    strides = {"direct": (start, walk.stride, ROWS * ITEM)}
    strides["packed"] = (to, width * ITEM, ROWS * walk.steps * ITEM)
    for name, (panel, stride, following) in strides.items():
        operands = (panel, stride, following, beside, ROW_BYTES)
        if is_b:
            operands = (beside, ROWS * ITEM, 0, panel, stride)
        run[name] = partial(_tiles, READERS, count, walk.steps, *operands, result)
    timings = time_callables(run, rounds=rounds, sample_seconds=0.001)
    return Measurement(walk, **{name: timing.fastest for name, timing in timings.items()})


def pages_without_delay(rounds: int) -> int:
    """The longest walk, a page and a line for each step, that is no slower than a packed one."""
    found = 0
    for steps in (16, 32, 48, 64, 80, 96, 128, 160, 192, 256):
        one = measure(Walk("A", steps, PAGE_BYTES + core_caches()[0].line), rounds, 1)
        if one.direct > SLOWER * one.packed:
            break
        found = steps
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    pages = pages_without_delay(options.rounds)
    found = [measure(walk, options.rounds) for walk in walks()]
    losses = [each.loss for each in found]
    if options.json:
        rows = [
            {**asdict(each), "copied": each.walk.is_copied, "loss": each.loss} for each in found
        ]
        print(json.dumps({"pages": pages, "model_pages": L1_PAGES, "walks": rows}, indent=2))
        return
    head = ["operand", "steps", "stride", "offset", "model", "as it is", "copied", "loss"]
    print(f"pages translated without delay: {pages} measured, {L1_PAGES} in the model")
    print(f"{READERS} tiles of {ROWS} x {COLUMNS} read a panel; seconds, those of copying included")
    print(format_table(head, [_row(each) for each in found]))
    print(f"the model's choices take {np.mean(losses):.1%} more than the best, "
          f"{max(losses):.1%} at most")  # fmt: skip


def _row(found: Measurement) -> list[str]:
    walk = found.walk
    return [
        walk.operand, str(walk.steps), str(walk.stride), str(walk.offset),
        "copied" if walk.is_copied else "as it is", f"{found.direct * 1e6:.1f} us",
        f"{(found.packed + found.copying) * 1e6:.1f} us", f"{found.loss:.1%}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
