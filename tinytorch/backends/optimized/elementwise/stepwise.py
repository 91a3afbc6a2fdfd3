"""A program as one kernel after another, where the definition of one of its ops is not compiled.

The definition may be a student's: `try` and `except` are right in an exercise, and numba has none.
Then the op itself runs as a loop in Python (`blocked.elementwise.looped`), and so must it where
`silu` or the gates of an LSTM use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.base import Kernel
from tinytorch.dtypes import Array
from tinytorch.op import Plan
from tinytorch.program import ALIASES, Program


def step_by_step(program: Program, plan: Plan, kernel_of: Callable[[Plan], Kernel]) -> Kernel:
    """The kernel of a program's ops, which computes all numbers of one before the next begins.

    Args:
        plan: of the program; a sum over `dims` is left to the caller.
        kernel_of: the kernel of one op.
    """
    operands: dict[Any, Any] = {f"x{i}": operand for i, operand in enumerate(plan.operands)}
    steps: list[tuple[str, Any, tuple[Any, ...], dict[str, Any]]] = []
    for i, step in enumerate(program.steps):
        name, params, run = f"t{i}", dict(step.params), step.op.scalar
        given = [operands[o] if isinstance(o, str) else type(o) for o in step.operands]
        if step.op.name in ALIASES:
            operands[name], run, params = given[0], _itself, {}
        elif all(isinstance(operand, type) for operand in given):
            operands[name] = float
        else:
            made = step.op.plan(given, params)
            operands[name], run = made.meta, kernel_of(made)
        steps.append((name, run, step.operands, params))
    shape = np.broadcast_shapes(*(o.shape for o in plan.operands if not isinstance(o, type)))

    def run_steps(*arrays: Any) -> Any:
        values = {f"x{i}": x for i, x in enumerate(arrays)}
        for name, kernel, read, params in steps:
            given = [values[o] if isinstance(o, str) else o for o in read]
            values[name] = kernel(*given, **params)
        results = tuple([_whole(values[name], shape) for name in program.results])
        return results if program.others else results[0]

    return run_steps


def _itself(x: Any) -> Any:
    return x


def _whole(result: Any, shape: tuple[int, ...]) -> Array:
    """A result in memory of its own, also where it does not depend on all operands."""
    return np.array(np.broadcast_to(result, shape), order="C")
