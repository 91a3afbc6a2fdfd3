"""A trace follows the values of its example where most calls have such, and no call is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tinytorch
from tinytorch import Tensor
from tinytorch.graph import trace
from tinytorch.graph.value_guards import source_of
from tinytorch.nn import functional as F
from tinytorch.state import using_backend

IGNORED = -100
LOSSES = {"cross_entropy": F.cross_entropy, "nll_loss": F.nll_loss}
PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda y: y,
    "flat": lambda y: y.reshape(2, -1).flatten(),
    "without the first": lambda y: y[1:],
    "as int64": lambda y: y.int().long(),
    "computed": lambda y: y + 0,
}


def logits(rows: int, seed: int = 0) -> Tensor:
    values = np.random.default_rng(seed).standard_normal((rows, 5)).astype(np.float32)
    return tinytorch.tensor(values, requires_grad=True)


def labels(*ignored: int, rows: int = 6) -> Tensor:
    values = np.arange(rows) % 5
    values[list(ignored)] = IGNORED
    return tinytorch.tensor(values)


def gradient(loss: Callable[..., Tensor], part: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        value = loss(x, part(y))
        return value, tinytorch.autograd.grad(value, [x])[0]

    return step


def ops_of(function: Callable[..., Any], *examples: Tensor) -> set[str]:
    return {n.target.name for n in trace(function, *examples, decompose=False).graph.nodes
            if n.op == "call_function"}  # fmt: skip


@pytest.mark.slow_beyond(3)
@pytest.mark.parametrize("mode", ["auto", "python", "interpret"])
@pytest.mark.parametrize("backend", ["numpy", "optimized"])
@pytest.mark.parametrize("name", LOSSES)
def test_labels_that_come_to_be_ignored_are(name: str, backend: str, mode: str) -> None:
    step = gradient(LOSSES[name], PARTS["itself"])
    with using_backend(backend):
        compiled = tinytorch.compile(step, mode=mode)
        for ignored in ([], [], [2], [0, 5], [], [1]):
            x, y = logits(6), labels(*ignored)
            for ours, expected in zip(compiled(x, y), step(x, y), strict=True):
                np.testing.assert_allclose(ours.detach(), expected.detach(), 1e-6, 1e-7)
    again = ["y has values for which _none_is(-100) is not true"]
    assert compiled.reasons[1:] == (again if name == "cross_entropy" else [])


@given(
    calls=st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=4),
    part=st.sampled_from(sorted(PARTS)),
)
@settings(max_examples=25, deadline=None)
def test_compiled_losses_equal_eager_ones_whatever_is_ignored(
    calls: list[list[int]], part: str
) -> None:
    step = gradient(F.cross_entropy, PARTS[part])
    with using_backend("numpy"):
        compiled = tinytorch.compile(step, mode="python")
        for ignored in calls:
            y = labels(*ignored)
            x = logits(len(PARTS[part](y)))
            for ours, expected in zip(compiled(x, y), step(x, y), strict=True):
                np.testing.assert_allclose(ours.detach(), expected.detach(), 1e-6, 1e-7)
        assert len(compiled.reasons) <= 2


def test_the_fused_op_is_traced_where_the_labels_are_those_of_an_input() -> None:
    for name, part in PARTS.items():
        step = gradient(F.cross_entropy, part)
        y = labels()
        is_fused = "cross_entropy" in ops_of(step, logits(len(part(y))), y)
        assert is_fused is (name not in ("computed", "as int64")), name  # int() may cut a label off
        y = labels(3)
        assert "cross_entropy" not in ops_of(step, logits(len(part(y))), y), name


@pytest.mark.parametrize("loss", LOSSES.values())
def test_labels_outside_of_the_trace_are_looked_at_in_every_call(loss: Any) -> None:
    y = labels()
    compiled = tinytorch.compile(lambda x: loss(x, y), mode="python")
    x = logits(6).detach()
    compiled(x)
    y[2] = IGNORED
    np.testing.assert_allclose(compiled(x).item(), loss(x, y).item(), 1e-6)


def test_slices_of_one_batch_are_looked_at_together_and_a_corpus_is_not() -> None:
    def step(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(x, y[:6]) + F.cross_entropy(x, y[6:12])

    assert len(trace(step, logits(6), labels(rows=12)).signature.value_guards) == 1
    assert len(trace(step, logits(6), labels(rows=6 * 16)).signature.value_guards) == 1
    assert not trace(step, logits(6), labels(rows=6 * 16 + 1)).signature.value_guards


def test_a_label_that_no_part_holds_changes_nothing_but_the_code() -> None:
    step = gradient(F.cross_entropy, PARTS["without the first"])
    compiled = tinytorch.compile(step, mode="python")
    x = logits(5)
    assert compiled(x, labels())[0].item() == pytest.approx(compiled(x, labels(0))[0].item())


@pytest.mark.parametrize("wrong", [5, -1, -101])
def test_a_label_out_of_range_is_an_error_in_either_code(wrong: int) -> None:
    compiled = tinytorch.compile(gradient(F.cross_entropy, PARTS["itself"]), mode="python")
    for ignored in ([], [2]):
        good = labels(*ignored)
        compiled(logits(6), good)
        bad = good.clone()
        bad[4] = wrong
        with pytest.raises(IndexError, match="out of range"):
            compiled(logits(6), bad)


def test_a_trace_within_a_trace_hands_its_conditions_on() -> None:
    inner = trace(F.cross_entropy, logits(6), labels())
    outer = trace(lambda x, y: inner(x, y) * 2, logits(6), labels())
    assert [guard.args for guard in outer.signature.value_guards] == [(IGNORED,)]
    with pytest.raises(tinytorch.graph.GraphError, match="y has values"):
        outer(logits(6), labels(1))


def test_source_of_follows_views_and_wider_integers_alone() -> None:
    def chain(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.reshape(-1)[1:].long(), x.long().int(), x.float()

    y = tinytorch.tensor([[1, 2], [3, 4]], dtype=tinytorch.int32)
    (x, *_, output) = trace(chain, y).graph.nodes
    wider, narrower, real = output.args[0]
    assert source_of(wider) is x
    assert source_of(narrower) is narrower
    assert source_of(real) is real


@pytest.mark.parametrize("wrong", [2.0, -0.5, float("nan")])
@pytest.mark.parametrize("compiled_on", ["right", "wrong"])
def test_a_target_that_is_no_probability_is_refused_in_a_compiled_function(
    wrong: float, compiled_on: str
) -> None:
    compiled = tinytorch.compile(lambda x, y: F.binary_cross_entropy(x.sigmoid(), y))
    x, y = tinytorch.zeros(3), tinytorch.tensor([0.0, 1.0, 0.5])
    bad = y.clone()
    bad[1] = wrong
    if compiled_on == "right":
        assert compiled(x, y).item() == pytest.approx(0.6931, abs=1e-4)
    with pytest.raises(ValueError, match=f"target must be from 0 to 1, not {wrong}"):
        compiled(x, bad)
    assert compiled(x, y).item() == pytest.approx(0.6931, abs=1e-4)


def test_what_a_view_leaves_out_may_be_no_probability() -> None:
    compiled = tinytorch.compile(lambda y: F.binary_cross_entropy(y[1:], y[1:]))
    for values in ([3.0, 0.5], [0.5, 0.5], [-1.0, 0.5]):
        assert compiled(tinytorch.tensor(values)).item() == pytest.approx(0.6931, abs=1e-4)
