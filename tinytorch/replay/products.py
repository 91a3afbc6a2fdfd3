"""The gradients of a weight by several products as one product, of the rows of all.

    t3 = linear_weight(g1, x1); t6 = linear_weight(g2, x2); t7 = add(t3, t6)      becomes
    t7 = linear_weight(cat(g1, g2), cat(x1, x2))

A layer that is applied at each step of a sequence has a sum of as many products. Where each has few
rows, the time goes into adding up matrices as large as the weight; of all rows it is one product.

Source: J. Appleyard, T. Kočiský, P. Blunsom, "Optimizing performance of recurrent neural networks
on GPUs", 2016, section 3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tinytorch import ops
from tinytorch.dtypes import TensorMeta
from tinytorch.replay.trace import Slot, Step, Trace


def join_products(trace: Trace, steps: Sequence[Step], kept: Iterable[int]) -> list[Step]:
    """The steps, with each sum of weight gradients as one product.

    Args:
        trace: gives new slots.
        steps: in their order.
        kept: slots that are read by something else than steps.
    """
    sums = _sums(steps, set(kept))
    replaced = {n for terms in sums.values() for n in terms}
    made = {step.out: step for step in steps}
    joined: list[Step] = []
    for step in steps:
        terms = sums.get(step.out)
        if terms is not None:
            joined += _joined(trace, [made[n] for n in terms], step.out)
        elif step.out not in replaced:
            joined.append(step)
    return joined


def _sums(steps: Sequence[Step], kept: set[int]) -> dict[int, list[int]]:
    """For the last addition of each sum, what it stands for: products, and other additions."""
    readers = Counter(n for step in steps for n in step.reads)
    sums: dict[int, list[int]] = {}
    inner: set[int] = set()
    for step in steps:
        if step.plan.op is ops.linear_weight and _has_few_rows(step):
            sums[step.out] = [step.out]
            continue
        terms = set(step.reads) - kept if step.plan.op is ops.add else set()
        if len(terms) == 2 and all(n in sums and readers[n] == 1 for n in terms):
            sums[step.out] = [step.out, *(n for t in step.reads for n in sums[t])]
            inner |= terms
    return {n: parts for n, parts in sums.items() if len(parts) > 1 and n not in inner}


def _has_few_rows(step: Step) -> bool:
    """Whether to copy the rows is less than to add up what they give."""
    g, x = step.plan.operands
    assert isinstance(g, TensorMeta) and isinstance(x, TensorMeta)
    out = step.plan.meta
    return g.ndim == 2 == x.ndim and g.shape[0] * sum(out.shape) <= out.size


def _joined(trace: Trace, terms: Sequence[Step], out: int) -> list[Step]:
    """The product that a sum is, behind its operands."""
    products = [step for step in terms if step.plan.op is ops.linear_weight]
    cats = [_rows_of(trace, products, i) for i in range(2)]
    plan = ops.linear_weight.plan([cat.plan.meta for cat, _ in cats], {})
    return [*(cat for cat, _ in cats), Step(plan, tuple(rows for _, rows in cats), {}, out)]


def _rows_of(trace: Trace, products: Sequence[Step], i: int) -> tuple[Step, Slot]:
    """The rows of operand `i` of all products, as one matrix."""
    plan = ops.cat.plan([step.plan.operands[i] for step in products], {"dim": 0})
    rows = Slot(trace)
    return Step(plan, tuple(step.args[i] for step in products), {"dim": 0}, rows.index), rows
