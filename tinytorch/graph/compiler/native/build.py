"""Native code: a schedule as one function that numba compiles, over the kernel library's symbols.

The source is Python that can be read: a call of a C symbol for every heavy op, and a call of a
generated loop for elementwise ones. Compiled once, it is kept on disk for other processes.

    schedule = schedule_traced(traced, **native.ABILITIES)
    if not native.unsupported(schedule):
        run = native.build(schedule)
        results = run(values)
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

from tinytorch.collector import collector_paused
from tinytorch.graph.compiler.native import attention, groups, ops, passes  # noqa: F401
from tinytorch.graph.compiler.native.code import Code, Unsupported, comment_of
from tinytorch.graph.compiler.native.loops import Loop
from tinytorch.graph.compiler.native.phases import Phases
from tinytorch.graph.compiler.native.program import NativeProgram
from tinytorch.graph.compiler.schedule import Schedule
from tinytorch.graph.ir import Node
from tinytorch.graph.layout import StridedView
from tinytorch.jit.library import JIT
from tinytorch.jit.thread_pool import MOST_THREADS
from tinytorch.jit.threads import get_num_threads
from tinytorch.op import Op

PASSES = (
    "slices-together",
    "dce",
    "pool-before-relu",
    "native-fusion",
    "native-gelu-again",
    "native-early-update",
    "native-norm-gradients",
)
"""Passes to run after all others."""

MOST_TOGETHER = 4  # steps that are one call


def is_kept(node: Node) -> bool:
    """Whether native code runs a fused op as a whole."""
    body = groups.body_of(node.target)
    return body is not None or ops.knows(node.target.name)


def can_write(node: Node, *views: StridedView) -> bool:
    """Whether native code can write the value of a node to a view that is not in C order.

    Attention can write its gradients to three views. A concatenation is made of copies. A batch of
    products has strides for all dimensions of its result but one of the last two.
    """
    if node.target.name in attention.NAMES:
        return attention.can_write(node, *views)
    if len(views) != 1:
        return False
    (view,) = views
    if node.target.name == "cat":
        return True
    is_batch = node.target.name == "matmul" and all(
        len(a.meta["tensor_meta"].shape) > 2 for a in node.args
    )
    return is_batch and view.dtype.itemsize in view.strides[-2:]


def may_overwrite(node: Node) -> bool:
    """Whether native code for a node reads an element, or its row, before it writes there, though
    the table does not call it elementwise."""
    return node.target.name in ops.GELU or node.target.name in ops.IN_PLACE


ABILITIES: dict[str, Any] = {
    "is_kept": is_kept,
    "can_write": can_write,
    "may_overwrite": may_overwrite,
}
"""What a schedule for native code has to know of it."""


def unsupported(schedule: Schedule) -> list[tuple[Node, str]]:
    """The steps for which there is no native code, and why."""
    return write(schedule, count=1)[1]


def build(schedule: Schedule, may_call_library: bool = False) -> NativeProgram:
    """Compile a schedule.

    Args:
        may_call_library: as for `Code`.

    Raises:
        Unsupported: there are steps without native code; its `lacking` are `unsupported(schedule)`.
    """
    with collector_paused():
        count = min(get_num_threads(), MOST_THREADS) if JIT else 1
        return _build(schedule, count, may_call_library)


def _build(schedule: Schedule, count: int, may_call_library: bool) -> NativeProgram:
    code, lacking, phases = write(schedule, count, may_call_library)
    if lacking:
        reasons = "; ".join(f"{node.name}: {reason}" for node, reason in lacking)
        error = Unsupported(f"no native code for {len(lacking)} steps: {reasons}")
        error.lacking = lacking
        raise error
    if count > 1 and not phases:  # nothing in it is worth dividing
        code, _, _ = write(schedule, 1, may_call_library)
    return NativeProgram(code)


def write(
    schedule: Schedule, count: int, may_call_library: bool = False
) -> tuple[Code, list[tuple[Node, str]], int]:
    """The code of a schedule for so many threads, the steps that it lacks, the number of phases."""
    code, lacking = Code(schedule, count, may_call_library), []
    phases = Phases(code)
    pending: Loop | None = None
    steps = deque(schedule.steps)
    while steps:
        step = steps.popleft()
        try:
            loop = ops.loop_of(step)
            if loop is not None:
                loop.comments = [comment_of(step)]
                loop.nodes = [(step.node, step.output)]
                if pending is not None and pending.can_fuse(loop):
                    pending.fuse(loop)
                    continue
            _finish(phases, pending)
            pending = loop
            if loop is not None:
                code.name_output(step)
            elif count := phases.together([step, *islice(steps, MOST_TOGETHER - 1)]):
                for _ in range(count - 1):
                    steps.popleft()
            else:
                phases.step(step)
        except Unsupported as reason:
            lacking.append((step.node, str(reason)))
    _finish(phases, pending)
    phases.finish()
    return code, lacking, phases.number


def _finish(phases: Phases, loop: Loop | None) -> None:
    if loop is not None:
        loop.eliminate_dead_stores(_is_read_outside)
        phases.loop(loop)


def _is_read_outside(node: Node, inside: set[Node]) -> bool:
    """A node that is not of these reads the value, itself or through views.

    To be a result of the graph is not to be read: results are in memory that is always written.
    """
    for user in node.users:
        if isinstance(user.target, Op) and user.target.view:
            if _is_read_outside(user, inside):
                return True
        elif user.op != "output" and user not in inside:
            return True
    return False
