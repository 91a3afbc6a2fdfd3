"""Loops over the same elements as one loop with several results.

    t3 = sigmoid(t0); t4 = tanh(t1); t5 = mul(t2, t3); t6 = mul(t5, t4); t7 = mul(t5, t2)
                                    becomes
    s = of t0, t1, t2 -> (t5, t6, t7); t5 = s[0]; t6 = s[1]; t7 = s[2]

A run of `fusion` has one result. What several runs read is read by each of them, and what they
have in common is written, and read again: the gradients of the gates of an LSTM are five runs, of
what five others compute. Of a few thousand elements the calls take longer than the work. Loops
join where they read the same or one reads another; all run where the last of them was, so nothing
else may read a result before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tinytorch import shapes
from tinytorch.dtypes import TensorMeta, float32, float64
from tinytorch.op import Op, Plan
from tinytorch.program import Program
from tinytorch.replay.fusion import MOST_INPUTS, can_fuse, no_rule, one_loop
from tinytorch.replay.trace import Slot, Step, Trace

LEAST_LOOPS = 3  # two save one call, for machine code that nothing else has; as a run has anyway
LARGEST = 2**20  # bytes of a result: threads share what is larger

PART = Op("part", "results", "part", shapes.broadcast, no_rule, no_rule)  # `part_of`, in a program


def part_of(results: tuple[Any, ...], *, i: int) -> Any:
    """One of the results of a loop."""
    return results[i]


class _Group:
    """Loops that may become one, by their places in a program.

    Attributes:
        made: the slots of their results.
        read: the slots that they read, some of their own among them.
    """

    def __init__(self, meta: TensorMeta, steps: dict[int, Step]) -> None:
        self.meta, self.steps = meta, steps
        self.made = {step.out for step in steps.values()}
        self.read = {n for step in steps.values() for n in step.reads}

    def __or__(self, other: _Group) -> _Group:
        return _Group(self.meta, self.steps | other.steps)

    def pays(self) -> bool:
        """Whether there are enough loops, or two that are runs of their own."""
        runs = [step for step in self.steps.values() if isinstance(step.plan.op.scalar, Program)]
        return len(self.steps) >= LEAST_LOOPS or len(runs) > 1

    def fits(self, other: _Group) -> bool:
        """Whether these and others have something in common, and not too much else."""
        if self.meta is not other.meta or (self.made | self.read).isdisjoint(other.read):
            return False
        both = self | other
        return len(both.read - both.made) <= MOST_INPUTS


def join_loops(
    trace: Trace, steps: Sequence[Step], kept: Iterable[int], fusible: frozenset[str]
) -> list[Step]:
    """The steps, with groups of loops as one.

    Args:
        trace: gives new slots.
        steps: in their order.
        kept: slots that are read by something else than steps.
        fusible: see `fuse_steps`.
    """
    if not fusible:  # casts are in any loop, and here there is none
        return [*steps]
    groups = [group for group in _groups(steps, fusible) if group.pays()]
    group_of = {n: group for group in groups for n in group.made}
    wanted = set(kept)
    for step in steps:
        mine = group_of.get(step.out)
        wanted.update(n for n in step.reads if mine is None or n not in mine.made)
    found: list[Step] = []
    for place, step in enumerate(steps):
        group = group_of.get(step.out)
        if group is None:
            found.append(step)
        elif place == max(group.steps):
            found += _as_one(trace, group, wanted)
    return found


def _groups(steps: Sequence[Step], fusible: frozenset[str]) -> list[_Group]:
    """Loops that can run where the last of each group was."""
    found, growing = list[_Group](), list[_Group]()
    for place, step in enumerate(steps):
        mine = _Group(step.plan.meta, {place: step}) if _is_loop(step, fusible) else None
        others = []
        for group in growing:
            if mine is not None and group.fits(mine):
                mine = group | mine
            elif group.made.isdisjoint(step.reads):
                others.append(group)
            else:  # which is to have run by now
                found.append(group)
        growing = others if mine is None else [*others, mine]
    return found + growing


def _is_loop(step: Step, fusible: frozenset[str]) -> bool:
    """Whether a step is a loop over elements, with one result for each."""
    op, meta = step.plan.op, step.plan.meta
    if isinstance(op.scalar, Program):
        is_here = not step.params  # or it sums up what the loop gives
    else:
        is_here = op.kind == "elementwise" and can_fuse(step, fusible)
    return is_here and meta.dtype in (float32, float64) and meta.ndim > 0 and meta.nbytes <= LARGEST


def _as_one(trace: Trace, group: _Group, wanted: set[int]) -> list[Step]:
    """A step that runs them all, and one for each result that others read."""
    steps, meta = [group.steps[place] for place in sorted(group.steps)], group.meta
    results = [step.out for step in steps if step.out in wanted]
    if len(results) == 1:
        loop = one_loop(steps, results, meta, meta, {}, results[0])
        return steps if loop is None else [loop]
    slot = Slot(trace)
    loop = one_loop(steps, results, meta, meta, {}, slot.index)
    if loop is None:
        return steps
    parts = []
    for i, out in enumerate(results):
        plan = Plan(PART, (meta,), {"i": i}, meta, None)
        parts.append(Step(plan, (slot,), plan.params, out))
    return [loop, *parts]
