"""From a trace to a function of arrays that calls the kernels of a backend and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinytorch.backends.base import ComputeBackend
from tinytorch.replay.fusion import fuse_steps
from tinytorch.replay.trace import Guard, NotReplayable, Slot, Trace

CONSTANTS = 2**18  # bytes that a program may keep


def compile_trace(
    trace: Trace,
    inputs: Sequence[int],
    outputs: Sequence[int],
    guards: Sequence[Guard],
    backend: ComputeBackend,
) -> Callable[..., Any]:
    """A function of the arrays of `inputs` that returns that of the output, or a tuple of several.

    It returns None where a guard does not hold. Creation ops run once, here; an output that is
    their result is a copy of it.
    """
    arrays = [*outputs, *(g.slot for g in guards)]
    steps = fuse_steps(trace.needed(arrays), arrays, backend.fusible)
    names: dict[str, Any] = {"copy": np.array}
    names |= {f"t{index}": array for index, array in trace.constants.items()}
    created = [s for s in steps if s.plan.op.kind == "creation"]
    constants = {*trace.constants, *(s.out for s in created)}
    kept = [a.nbytes for a in trace.constants.values()] + [s.plan.meta.nbytes for s in created]
    if sum(kept) > CONSTANTS:
        raise NotReplayable("large arrays that are the same at each call would be kept")
    body = []
    asked: dict[int, list[str]] = {}
    for i, (index, condition, args) in enumerate(guards):
        names[f"g{i}"], names[f"a{i}"] = condition, args
        asked.setdefault(index, []).append(f"if not g{i}(t{index}, *a{i}): return None")
    body += [line for index in inputs for line in asked.pop(index, ())]
    last = {index: i for i, step in enumerate(steps) for index in step.reads}
    for i, step in enumerate(steps):
        kernel = backend.kernels.get(step.plan) or backend.add_kernel(step.plan)
        if step.out in constants:
            names[f"t{step.out}"] = kernel(**step.params)
            continue
        names[f"k{i}"] = kernel
        values = [_argument(a, names) for a in step.args]
        for name, value in step.params.items():
            names[f"p{i}_{name}"] = value
            values.append(f"{name}=p{i}_{name}")
        body.append(f"t{step.out} = k{i}({', '.join(values)})")
        body += asked.pop(step.out, [])
        dead = {n for n in step.reads if last[n] == i} - {*constants, *outputs}
        if dead and i < len(steps) - 1:
            body.append(f"del {', '.join(f't{n}' for n in sorted(dead))}")
    body += [line for lines in asked.values() for line in lines]  # of constants
    results = [f"copy(t{n})" if trace.root(n) in constants else f"t{n}" for n in outputs]
    body.append(f"return {results[0] if len(results) == 1 else '(' + ', '.join(results) + ',)'}")
    parameters = ", ".join(f"t{n}" for n in inputs)
    source = f"def program({parameters}):\n" + "".join(f"    {line}\n" for line in body)
    exec(compile(source, "<tinytorch program>", "exec"), names)
    program: Callable[..., Any] = names.pop("program")  # a function refers to its globals
    return program


def _argument(value: Any, names: dict[str, Any]) -> str:
    if type(value) is Slot:
        return f"t{value.index}"
    name = f"c{len(names)}"
    names[name] = value
    return name
