"""Native code: a schedule as one function that numba compiles, over the kernel library's symbols.

The source is Python that can be read: a call of a C symbol for every heavy op, and a call of a
generated loop for elementwise ones. Compiled once, it is kept on disk for other processes.

    schedule = schedule_traced(traced, keeps=native.keeps)
    if not native.unsupported(schedule):
        run = native.build(schedule)
        results = run(values)
"""

from __future__ import annotations

from collections import deque

from tinytorch.backends.optimized.threads import get_num_threads
from tinytorch.graph.compiler import native_groups, native_ops, native_passes  # noqa: F401
from tinytorch.graph.compiler.native_code import Code, Unsupported, comment_of
from tinytorch.graph.compiler.native_loops import Loop, emit
from tinytorch.graph.compiler.native_program import NativeProgram
from tinytorch.graph.compiler.schedule import Schedule
from tinytorch.graph.ir import Node
from tinytorch.op import Op

PASSES = ("slices_together", "dce", "pool_before_relu", "native_fusion", "early_updates")
"""Passes to run after all others."""


def keeps(node: Node) -> bool:
    """Whether native code runs a fused op as a whole."""
    body = native_groups.body_of(node.target)
    return body is not None or native_ops.knows(node.target.name)


def unsupported(schedule: Schedule) -> list[tuple[Node, str]]:
    """The steps for which there is no native code, and why."""
    return _write(schedule, parallel=False)[1]


def build(schedule: Schedule) -> NativeProgram:
    """Compile a schedule.

    Raises:
        Unsupported: `unsupported(schedule)` is not empty.
    """
    count = get_num_threads()
    code, lacking = _write(schedule, parallel=count > 1)
    if lacking:
        reasons = "; ".join(f"{node.name}: {reason}" for node, reason in lacking)
        raise Unsupported(f"no native code for {len(lacking)} steps: {reasons}")
    return NativeProgram(code, count)


def _write(schedule: Schedule, parallel: bool) -> tuple[Code, list[tuple[Node, str]]]:
    """The code of a schedule, and the steps that it lacks."""
    code, lacking = Code(schedule, parallel), []
    pending: Loop | None = None
    steps = deque(schedule.steps)
    while steps:
        step = steps.popleft()
        try:
            loop = native_ops.loop_of(step)
            if loop is not None:
                loop.comments = [comment_of(step)]
                loop.nodes = [(step.node, step.output)]
                if pending is not None and pending.takes(loop):
                    pending.append(loop)
                    continue
            _finish(code, pending)
            pending = loop
            if loop is not None:
                code.name_output(step)
                continue
            code.begin(step)
            if steps and native_ops.write_both(code, step, steps[0]):
                steps.popleft()
            else:
                native_ops.write(code, step)
        except Unsupported as reason:
            lacking.append((step.node, str(reason)))
    _finish(code, pending)
    return code, lacking


def _finish(code: Code, loop: Loop | None) -> None:
    if loop is not None:
        loop.forget(_is_needed)
        emit(code, loop)


def _is_needed(node: Node, inside: set[Node]) -> bool:
    """Something outside of these nodes uses the value, perhaps through a view."""
    for user in node.users:
        is_view = isinstance(user.target, Op) and user.target.view
        if user.op == "output" or (user not in inside and not is_view):
            return True
        if is_view and _is_needed(user, inside):
            return True
    return False
