"""Slices that are never made: elementwise steps read the rows of what is sliced.

    t2 = add(t0, t1); t3 = t2[:, :n]; t4 = tanh(t3)     becomes     t4 = of t0, t1, cut -> (...)

The gates of an LSTM are four slices of a sum. To make and copy each of them takes longer than what
is computed with it. So a slice moves in front of the op whose result it is of, where nothing else
reads that; and a kernel that can (`ComputeBackend.specialize_slices`) is given what is sliced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from tinytorch import ops
from tinytorch.backends.base import ComputeBackend, Kernel, Slice
from tinytorch.dtypes import TensorMeta
from tinytorch.replay.fusion import can_fuse
from tinytorch.replay.joining import PART, part_of
from tinytorch.replay.trace import Slot, Step, Trace

Bounds = tuple[tuple[int, int, int], ...]

SHORTEST = 16  # elements of the rows of a slice that moves: shorter ones are copied by the backend


def slice_early(
    trace: Trace, steps: Sequence[Step], kept: Iterable[int], fusible: frozenset[str]
) -> list[Step]:
    """The steps, with slices of elementwise results as results of slices.

    Args:
        trace: gives new slots.
        steps: in their order.
        kept: slots that are read by something else than steps.
        fusible: see `fuse_steps`.
    """
    kept, before = set(kept), [*steps]
    while fusible:
        after = _moved(trace, before, kept, fusible)
        if after is None:
            break
        before = after
    return before


def _moved(
    trace: Trace, steps: Sequence[Step], kept: set[int], fusible: frozenset[str]
) -> list[Step] | None:
    """The steps, with slices one op earlier, and of a chain of ops several; None if none moves."""
    readers: dict[int, list[Step]] = {}
    for step in steps:
        for index in step.reads:
            readers.setdefault(index, []).append(step)
    instead: dict[int, list[Step]] = {}  # of a slice, by its slot
    gone: set[int] = set()
    for step in reversed(steps):
        cuts = readers.get(step.out, [])
        if not kept.isdisjoint([step.out, *(cut.out for cut in cuts)]):
            continue  # a result that is a slice views what it is of
        if not _is_only_cut(step, cuts) or not can_fuse(step, fusible):
            continue
        gone.add(step.out)
        for cut in cuts:
            instead[cut.out] = of_slices = _cut(trace, step, cut)
            for new in of_slices[:-1]:
                readers.setdefault(new.reads[0], []).append(new)
        for index in set(step.reads):
            readers[index] = [reader for reader in readers[index] if reader is not step]
    if not gone:
        return None
    found: list[Step] = []
    waiting = [*reversed(steps)]
    while waiting:
        step = waiting.pop()
        if step.out in instead:
            waiting += reversed(instead.pop(step.out))
        elif step.out not in gone:
            found.append(step)
    return found


def _is_only_cut(step: Step, readers: Sequence[Step]) -> bool:
    """Whether a result is only cut, into long rows that are not more than it has."""
    sizes = [r.plan.meta.size for r in readers]
    return (
        bool(readers)
        and all(_is_slice(r) and r.plan.meta.shape[-1:] >= (SHORTEST,) for r in readers)
        and sum(sizes) <= step.plan.meta.size
    )


def _is_slice(step: Step) -> bool:
    """Whether it takes some elements in their order."""
    return step.plan.op is ops.slice_ and all(by > 0 for _, _, by in step.params["bounds"])


def _cut(trace: Trace, step: Step, cut: Step) -> list[Step]:
    """A slice of the result of an elementwise step: slices of its operands, then the step."""
    slices, sizes = list[Step](), step.plan.meta.shape
    args, operands = [*step.args], [*step.plan.operands]
    for i, (arg, operand) in enumerate(zip(step.args, step.plan.operands, strict=True)):
        if type(arg) is not Slot:
            continue
        assert isinstance(operand, TensorMeta)
        new = len(sizes) - operand.ndim
        pairs = zip(operand.shape, sizes[new:], cut.params["bounds"][new:], strict=True)
        bounds = tuple([bound if n == size else (0, 1, 1) for n, size, bound in pairs])
        if bounds != tuple([(0, n, 1) for n in operand.shape]):
            plan, args[i] = ops.slice_.plan([operand], {"bounds": bounds}), Slot(trace)
            slices.append(Step(plan, (arg,), {"bounds": bounds}, args[i].index))
            operands[i] = plan.meta
    plan = step.plan.op.plan(operands, step.params)
    return [*slices, Step(plan, tuple(args), step.params, cut.out)]


# -- kernels that cut ------------------------------------------------------------------------------


def with_kernels(
    steps: Sequence[Step], backend: ComputeBackend
) -> tuple[list[Step], list[Kernel], set[int]]:
    """The steps, which read what slices are of where their kernels cut them; and the kernels.

    Returns:
        The steps, the kernels, and what no step makes of that which kernels cut: it is to be in C
        order.
    """
    made = {step.out: step for step in steps}
    cuts = [_cuts_of(step, made) for step in steps]
    lengths = Counter[int]()  # of all slices of a slot
    for cut in cuts:
        for origin, part in cut.values():
            lengths[origin.index] += prod(len(range(*b)) for b in part.bounds)
    found, kernels, given = [], list[Kernel](), set[int]()
    for step, cut in zip(steps, cuts, strict=True):
        cut = {i: c for i, c in cut.items() if _is_cut_from(c, made, lengths)}
        slices = {i: part for i, (_, part) in cut.items()}
        kernel = backend.specialize_slices(step.plan, slices) if slices else None
        if step.plan.op is PART:
            kernel = part_of
        elif kernel is None:
            kernel = backend.kernels.get(step.plan) or backend.add_kernel(step.plan)
        else:
            args = tuple([cut[i][0] if i in cut else arg for i, arg in enumerate(step.args)])
            step = Step(step.plan, args, step.params, step.out)
            given |= {origin.index for origin, _ in cut.values()} - made.keys()
        found.append(step)
        kernels.append(kernel)
    return found, kernels, given


def _cuts_of(step: Step, made: Mapping[int, Step]) -> dict[int, tuple[Slot, Slice]]:
    """The operands of an elementwise step that are slices, by position: what each is of."""
    if step.plan.op.kind != "elementwise":
        return {}
    slots = [(i, arg) for i, arg in enumerate(step.args) if type(arg) is Slot]
    return {i: _origin(a, made) for i, a in slots if a.index in made and _is_slice(made[a.index])}


def _is_cut_from(
    cut: tuple[Slot, Slice], made: Mapping[int, Step], lengths: Mapping[int, int]
) -> bool:
    """Whether what a slice is of may be handed over: it is in C order, or all of it is read, so
    that a copy in C order would be no more than copies of the slices."""
    origin, part = cut
    maker = made.get(origin.index)
    if maker is None:
        return lengths[origin.index] >= prod(part.shape)
    return not maker.plan.op.view or maker.plan.op is ops.reshape


def _origin(slot: Slot, made: Mapping[int, Step]) -> tuple[Slot, Slice]:
    """What a slice is of, through all slices of slices."""
    bounds: Bounds | None = None
    while (step := made.get(slot.index)) is not None and _is_slice(step):
        outer: Bounds = step.params["bounds"]
        bounds = outer if bounds is None else tuple(map(_composed, outer, bounds))
        (slot,), (operand,) = step.args, step.plan.operands
        assert isinstance(operand, TensorMeta)
        shape = operand.shape
    assert bounds is not None
    return slot, Slice(shape, bounds)


def _composed(outer: tuple[int, int, int], inner: tuple[int, int, int]) -> tuple[int, int, int]:
    """The bounds of a slice of a slice."""
    begin, _, by = outer
    return begin + inner[0] * by, begin + inner[1] * by, inner[2] * by
