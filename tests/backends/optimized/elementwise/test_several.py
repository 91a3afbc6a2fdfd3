"""A loop with several results gives what a loop for each does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinytorch import ops
from tinytorch.backends.base import Slice
from tinytorch.backends.optimized.elementwise.several import one_by_one, specialize_several
from tinytorch.jit import threads
from tinytorch.program import Program, Step

STEPS = (
    Step(ops.sigmoid, ("x0",)),
    Step(ops.tanh, ("x1",)),
    Step(ops.mul, ("t0", "t1")),
    Step(ops.sin, ("t2",)),
    Step(ops.sub, ("x2", 0.25)),
)
PROGRAM = Program(3, STEPS, "t2", False, ("t3", "t4", "t0"))
SHAPE = (6, 32)
FIRST = Slice((6, 96), ((0, 6, 1), (0, 32, 1)))
LAST = Slice((6, 96), ((0, 6, 1), (64, 96, 1)))


def arrays(dtype: Any, *shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_of_arrays_and_of_slices(dtype: Any, order: Any) -> None:
    """Also of arrays in another order, which are copied first."""
    whole, x = arrays(dtype, (6, 96), SHAPE)
    shapes, slices = (SHAPE, SHAPE, SHAPE), {0: FIRST, 1: LAST}
    kind = np.dtype(dtype)
    apart = one_by_one(PROGRAM, kind, shapes, frozenset())(whole[:, :32], whole[:, 64:], x)
    together = specialize_several(PROGRAM, kind, shapes, frozenset(), {})
    cutting = specialize_several(PROGRAM, kind, shapes, frozenset(), slices)
    assert together is not None and cutting is not None
    base, x = np.array(whole, order=order), np.array(x, order=order)
    for found in (together(base[:, :32], base[:, 64:], x), cutting(base, base, x)):
        assert len(found) == len(PROGRAM.results)
        for out, wanted in zip(found, apart, strict=True):
            assert out.flags.c_contiguous and np.array_equal(out, wanted)
        assert not any(np.may_share_memory(a, b) for a in found for b in found if a is not b)


def test_short_rows_and_large_arrays_are_left_to_others() -> None:
    single = np.dtype(np.float32)
    short, long = ((4, 3), (4, 1), (4, 3)), ((threads.SERIAL_BELOW,),) * 3
    for shapes in (short, long):
        assert specialize_several(PROGRAM, single, shapes, frozenset(), {}) is None
    found = one_by_one(PROGRAM, single, short, frozenset())(*arrays(single, *short))
    assert [out.shape for out in found] == [(4, 3)] * 4


def test_idle_inputs_are_left_out() -> None:
    assert PROGRAM.reads() == (0, 1, 2)
    fewer = Program(3, STEPS, "t2", False, ("t0",))
    assert fewer.reads() == (0, 1)
    assert fewer.renumbered((0, 1)).results == ("t2", "t0")
    assert fewer != Program(3, STEPS, "t2", False)
