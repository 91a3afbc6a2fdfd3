"""A weight that several products of a program have in common is packed once.

    t3 = linear(t0, w, b); t6 = linear(t4, w, b)      becomes
    p = packed(w, b); t3 = linear(t0, p); t6 = linear(t4, p)

A recurrent layer multiplies a few rows by one weight at each step. To bring the weight into the
order in which a kernel reads it takes a third of the time of such a product, or half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tinytorch import ops
from tinytorch.backends.base import ComputeBackend, Kernel
from tinytorch.op import Plan
from tinytorch.replay.trace import Slot, Step, Trace

Key = tuple[Plan, tuple[int, ...]]


def pack_weights(
    trace: Trace, steps: Sequence[Step], kernels: Sequence[Kernel], backend: ComputeBackend
) -> tuple[list[Step], list[Kernel]]:
    """The steps and their kernels, with a step that packs before the first product of each weight.

    Args:
        trace: gives new slots.
        steps, kernels: in their order, one kernel for each step.
    """
    uses = Counter(_key(step) for step in steps)
    found, chosen = list[Step](), list[Kernel]()
    packed: dict[Key, tuple[Slot, Kernel]] = {}
    for step, kernel in zip(steps, kernels, strict=True):
        key = _key(step)
        if key is not None and uses[key] > 1:
            if key not in packed and (both := backend.specialize_packed(step.plan)) is not None:
                pack, product = both
                packed[key] = Slot(trace), product
                found.append(Step(step.plan, step.args[1:], {}, packed[key][0].index))
                chosen.append(pack)
            if key in packed:
                weight, kernel = packed[key]
                step = Step(step.plan, (step.args[0], weight), {}, step.out)
        found.append(step)
        chosen.append(kernel)
    return found, chosen


def _key(step: Step) -> Key | None:
    """What products by one weight have in common."""
    if step.plan.op is not ops.linear:
        return None
    return step.plan, tuple([slot.index for slot in step.args[1:]])
