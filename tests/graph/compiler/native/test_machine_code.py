"""Machine code from the text of a native function does what Python does with the same text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.graph.compiler.native.test_build import schedule_of
from tinytorch import ones
from tinytorch.graph.compiler import native
from tinytorch.graph.compiler.native.machine_code import MachineCode
from tinytorch.jit.library import kernel
from tinytorch.jit.thread_pool import runner
from tinytorch.jit.views import view
from tinytorch.state import using_backend
from tinytorch.tensor import Tensor


@kernel
def _write(out: int, position: int, value: int) -> None:
    view(np.int64, out, position + 1)[position] = value


@kernel
def _half(value: int) -> int:
    return value // 2


FUNCTIONS = {"write": _write, "half": _half}


def run(source: str, *words: int) -> tuple[int, list[int]]:
    """What is returned, and eight numbers that may be written."""
    out = np.zeros(8, np.int64)
    table = np.array([out.ctypes.data, *words], np.int64)
    code = MachineCode(source, FUNCTIONS)
    return runner()(code.address, table.ctypes.data), out.tolist()


def test_calls_in_order():
    source = (
        "def step(table):\n"
        "    (out, a,) = words(table, 2)\n"
        "    write(out, 0, a)\n"
        "    write(out, 1, -3)\n"
        "    write(out, 0, half(a))\n"
        "    return 7\n"
    )
    assert run(source, 40) == (7, [20, -3, 0, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(("a", "expected"), [(0, 1), (1, 2), (2, 3)])
def test_branches(a: int, expected: int):
    source = (
        "def step(table):\n"
        "    (out, a,) = words(table, 2)\n"
        "    if a == 0:\n"
        "        write(out, 0, 1)\n"
        "    elif a == 1:\n"
        "        write(out, 0, 2)\n"
        "    else:\n"
        "        write(out, 0, 3)\n"
        "    if half(a):\n"
        "        return 5\n"
        "    return 0\n"
    )
    assert run(source, a) == (5 if a >= 2 else 0, [expected] + [0] * 7)


@given(st.integers(-1, 100))
def test_while(a: int):
    source = (
        "def step(table):\n"
        "    (out, a, n,) = words(table, 3)\n"
        "    i = half(a)\n"
        "    while i >= 1:\n"
        "        write(out, 1, i)\n"
        "        i = half(i)\n"
        "    write(out, 0, i)\n"
        "    return 0\n"
    )
    last = min(a // 2, 0)
    assert run(source, a, 0) == (0, [last, int(a >= 2)] + [0] * 6)


def test_what_it_does_not_know_is_an_error():
    for line in ("x = out + 1", "del out", "write(out, 0, 0.5)"):
        with pytest.raises(NotImplementedError, match="no code for"):
            run(f"def step(table):\n    (out,) = words(table, 1)\n    {line}\n    return 0\n")


def test_copies_are_calls_of_one_symbol(rng):
    """Of any strides, up to five dimensions."""
    x = rng.standard_normal((2, 3, 4, 2, 3)).astype(np.float32)
    orders: list[tuple[int, ...]] = [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (1, 0, 2, 4, 3)]

    def function(x: Tensor) -> Any:
        return [x.permute(*order).reshape(-1) for order in orders]

    with using_backend("optimized"):
        program = native.build(schedule_of(function, ones(*x.shape)))
    assert "copy_f32(" in program.source
    assert "def loop" not in program.source
    for got, order in zip(program([x]), orders, strict=True):
        np.testing.assert_array_equal(got, x.transpose(order).reshape(-1))
