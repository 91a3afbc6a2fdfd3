"""The gradients of a weight by several products as one product, of the rows of all.

    t3 = linear_weight(g1, x1); t6 = linear_weight(g2, x2); t7 = add(t3, t6)      becomes
    t7 = linear_weight(cat(g1, g2), cat(x1, x2))

A layer that is applied at each step of a sequence has a sum of as many products. Where each has few
rows, the time goes into adding up matrices as large as the weight; of all rows it is one product.
The gradient of its bias, a sum of as many sums of the rows of g, is one sum of the same rows.

Source: J. Appleyard, T. Kočiský, P. Blunsom, "Optimizing performance of recurrent neural networks
on GPUs", 2016, section 3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from tinytorch import ops
from tinytorch.dtypes import TensorMeta
from tinytorch.replay.trace import Slot, Step, Trace

ROWS = {"dims": (0,), "keepdim": False}  # what a sum of rows is along


def join_products(trace: Trace, steps: Sequence[Step], kept: Iterable[int]) -> list[Step]:
    """The steps, with each sum of weight gradients as one product, and of a bias as one sum.

    Args:
        trace: gives new slots.
        steps: in their order.
        kept: slots that are read by something else than steps.
    """
    kept = set(kept)
    made = {step.out: step for step in steps}
    products = _sums(steps, kept, _is_product)
    joined = {_slots(made, terms, 0) for terms in products.values()}
    sums = _sums(steps, kept, _is_sum_of_rows)
    sums = {n: terms for n, terms in sums.items() if _slots(made, terms, 0) in joined}
    sums |= products
    replaced = {n for terms in sums.values() for n in terms}
    rows: dict[tuple[int, ...], Slot] = {}
    found: list[Step] = []
    for step in steps:
        terms = sums.get(step.out)
        if terms is not None:
            found += _joined(trace, [made[n] for n in terms], step.out, rows)
        elif step.out not in replaced:
            found.append(step)
    return found


def _sums(
    steps: Sequence[Step], kept: set[int], is_term: Callable[[Step], bool]
) -> dict[int, list[int]]:
    """For the last addition of each sum, what it stands for: terms, and other additions."""
    readers = Counter(n for step in steps for n in step.reads)
    sums: dict[int, list[int]] = {}
    inner: set[int] = set()
    for step in steps:
        if is_term(step):
            sums[step.out] = [step.out]
            continue
        terms = set(step.reads) - kept if step.plan.op is ops.add else set()
        if len(terms) == 2 and all(n in sums and readers[n] == 1 for n in terms):
            sums[step.out] = [step.out, *(n for t in step.reads for n in sums[t])]
            inner |= terms
    return {n: parts for n, parts in sums.items() if len(parts) > 1 and n not in inner}


def _is_product(step: Step) -> bool:
    """Whether a step is the gradient of a weight, and to copy the rows is less than to add up what
    they give."""
    if step.plan.op is not ops.linear_weight:
        return False
    g, x = step.plan.operands
    assert isinstance(g, TensorMeta) and isinstance(x, TensorMeta)
    out = step.plan.meta
    return g.ndim == 2 == x.ndim and g.shape[0] * sum(out.shape) <= out.size


def _is_sum_of_rows(step: Step) -> bool:
    if step.plan.op is not ops.sum or step.params != ROWS:
        return False
    (x,) = step.plan.operands
    assert isinstance(x, TensorMeta)
    return x.ndim == 2


def _slots(made: Mapping[int, Step], terms: Iterable[int], i: int) -> tuple[int, ...]:
    """The slots of operand `i` of the terms that are no additions."""
    return tuple([made[n].args[i].index for n in terms if made[n].plan.op is not ops.add])


def _joined(
    trace: Trace, terms: Sequence[Step], out: int, known: dict[tuple[int, ...], Slot]
) -> list[Step]:
    """The one product or sum that a sum is, behind its operands, where these are not known yet."""
    parts = [step for step in terms if step.plan.op is not ops.add]
    steps, metas, args = list[Step](), list[TensorMeta](), list[Slot]()
    for i, operands in enumerate(zip(*(part.plan.operands for part in parts), strict=True)):
        plan = ops.cat.plan(operands, {"dim": 0})
        slots = tuple([part.args[i] for part in parts])
        key = tuple([slot.index for slot in slots])
        if key not in known:
            known[key] = Slot(trace)
            steps.append(Step(plan, slots, {"dim": 0}, known[key].index))
        args.append(known[key])
        metas.append(plan.meta)
    first = parts[0]
    return [*steps, Step(first.plan.op.plan(metas, first.params), tuple(args), first.params, out)]
