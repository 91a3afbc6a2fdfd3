"""Sums of the gradients of one weight are one product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import tinytorch
import tinytorch.nn.functional as F
from tinytorch import ops
from tinytorch.autograd import grad
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.dispatch import apply
from tinytorch.replay import function as replaying, products, replayed
from tinytorch.replay.trace import Trace, Tracing
from tinytorch.state import current_backend
from tinytorch.tensor import Tensor


@pytest.fixture(autouse=True)
def _on_optimized() -> Any:
    with tinytorch.using_backend(OptimizedBackend()):  # which has `linear_weight`
        yield


@replayed
def in_a_row(xs: Sequence[Tensor], w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """A layer after itself, with an input of each step."""
    h = xs[0]
    for x in xs:
        h = F.linear(h + x, w, b)
    return h, h * h


@replayed
def added_to(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(F.linear(x, w), w) * 1.0 + w.sum() + F.linear(x, w)


def joined_in(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each product has that others are joined to from now on."""
    rows: list[int] = []
    join = products.join_products

    def watched(trace: Any, steps: Any, kept: Any) -> Any:
        found = join(trace, steps, kept)
        rows.extend(
            step.plan.operands[0].shape[0]  # type: ignore[union-attr]
            for step in found
            if step.plan.op is ops.linear_weight and step not in steps
        )
        return found

    monkeypatch.setattr("tinytorch.replay.program.join_products", watched)
    monkeypatch.setattr(replaying, "HOT", 1)
    return rows


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_gradient_of_a_weight_is_one_product(
    steps: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = joined_in(monkeypatch)
    w = tinytorch.arange(36.0).reshape(6, 6).fmod(2.0).requires_grad_()  # whole: sums are exact
    b = tinytorch.ones(6, requires_grad=True)
    xs = [tinytorch.full((rows, 6), i - 2.0) for i in range(steps)]
    results = [grad(sum(t.sum() for t in in_a_row(xs, w, b)), [w, b]) for _ in range(4)]
    assert made == [rows * steps] * (steps > 1)
    for again in results[1:]:
        assert all(bool((g == g_).all()) for g, g_ in zip(again, results[0], strict=True))


def test_products_of_many_rows_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """To copy them would take longer than to add up what they give."""
    made = joined_in(monkeypatch)
    w, b = (tinytorch.ones(*shape, requires_grad=True) for shape in ((4, 4), (4,)))
    xs = [tinytorch.ones(3, 4)] * 2
    for _ in range(3):
        grad(in_a_row(xs, w, b)[0].sum(), [w, b])
    assert made == []


def test_what_else_is_added_is_added_to_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    made = joined_in(monkeypatch)
    w = tinytorch.arange(16.0).reshape(4, 4).requires_grad_()
    x = tinytorch.ones(1, 4)
    first, *others = [grad(added_to(x, w).sum(), [w])[0].tolist() for _ in range(4)]
    assert others == [first] * 3
    assert made == [2]  # of the third, the sum of the weight comes between


def test_a_sum_that_is_asked_for_besides_is_kept() -> None:
    """Steps are joined by what reads them: nothing is left out that something else needs."""
    trace = Trace()
    g, x = (trace.input(tinytorch.ones(1, 4).meta, False) for _ in range(2))
    with Tracing(trace, current_backend()):
        parts = [apply(ops.linear_weight, g * float(i), x) for i in range(3)]
        inner = parts[0] + parts[1]
        whole = inner + parts[2]
        index = {name: t._data.index for name, t in (("inner", inner), ("whole", whole))}
    steps = trace.needed(index.values())
    kinds = [
        [s.plan.op.name for s in products.join_products(trace, steps, kept)].count("linear_weight")
        for kept in (index.values(), [index["whole"]])
    ]
    assert kinds == [2, 1]
    trace.clear()
