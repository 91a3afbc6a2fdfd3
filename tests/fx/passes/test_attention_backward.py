"""Attention of a traced training step, with the backward that PyTorch has traced."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.fx.small import SEMANTICS
from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.capture.step import capture_step
from tinytorch.fx.optimize.step_optimizer import STEP_PASSES, optimize_step
from tinytorch.graph.memory import timeline
from tinytorch.graph.passes import PassManager

aten = torch.ops.aten
FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
B, H, L, S, E = 2, 4, 5, 7, 8
Attend = Callable[..., Tensor]


class Attention(nn.Module):
    """A function of self, q, k and v, which come as (B, L, heads E) from parameters.

    Args:
        groups: heads of k and v.
        heads_of: what `attend` gets is (B, heads, L, E); otherwise (B heads, L, E).
    """

    def __init__(
        self, attend: Attend, sizes: Any = (B, H, L, S, E), groups: int = 0, merged: bool = False
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.attend, self.merged = attend, merged
        b, h, t, s, e = self.sizes = sizes
        self.heads = (h, groups or h, groups or h)
        for name, length, heads in zip("qkv", (t, s, s), self.heads, strict=True):
            x = torch.randn(b, length, heads * e, generator=generator)
            self.register_parameter(name, nn.Parameter(x))
        self.register_buffer("hidden", torch.ones(t, s).tril(s - t) == 0)
        self.register_buffer(
            "padding", torch.arange(s) >= torch.arange(s + b - 1, s - 1, -1)[:, None]
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = []
        for each, heads in zip((self.q, self.k, self.v), self.heads, strict=True):
            part = (each * x).unflatten(-1, (heads, -1)).transpose(1, 2)
            parts.append(part.flatten(0, 1) if self.merged else part)
        return self.attend(self, *parts).cos().sum()


def passed(model: nn.Module, trials: int = 2) -> torch.fx.Graph:
    """The joint graph after the pass; results and gradients are compared by the manager."""
    joint = capture_joint(model, (torch.ones(()),), lambda m, batch: m(*batch))
    passes = ["algebra", "cse", "dce", "attention", "dce"]
    graph, report = PassManager(passes, SEMANTICS, trials=trials).run(joint.module.graph)
    assert not report.failures, report
    return graph


def calls(graph: torch.fx.Graph, target: Any) -> int:
    return len(graph.find_nodes(op="call_function", target=target))


def is_fused(model: nn.Module) -> bool:
    """Whether forward and backward became one op each, and nothing has the size of all scores."""
    graph = passed(model)
    found = calls(graph, FORWARD), calls(graph, BACKWARD)
    assert found in ((0, 0), (1, 1))
    b, h, t, s, _ = model.sizes
    values = [v for n in graph.nodes if isinstance(v := n.meta.get("val"), Tensor)]
    of_scores = [v for v in values if v.shape[-2:] == (t, s) and v.numel() == b * h * t * s > t * s]
    assert found == (0, 0) or not of_scores
    return found == (1, 1)


def product(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) * 0.3


def masked(mask: Callable[[Any, Tensor], Tensor]) -> Attend:
    """By what is made of the scores."""
    return lambda m, q, k, v: mask(m, product(q, k)).softmax(-1) @ v


def below(scores: Tensor, first: int) -> Tensor:
    """A constant: row i sees the keys 0 to i + first."""
    return torch.ones(scores.shape[-2:]).tril(first) == 0


def distances(m: Any, scores: Tensor) -> Tensor:
    """ALiBi's biases."""
    t, s = scores.shape[-2:]
    slopes = 2.0 ** -torch.arange(1, scores.shape[1] + 1)
    return scores + (torch.arange(s) - torch.arange(t)[:, None]) * slopes[:, None, None]


def window(m: Any, scores: Tensor) -> Tensor:
    t, s = scores.shape[-2:]
    far = (torch.arange(t)[:, None] - torch.arange(s)).abs() > 2
    return scores.masked_fill(far, -math.inf)


def in_groups(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(B, groups, heads of a group, L, E), with keys that are expanded."""
    q = q.unflatten(1, (k.shape[1], -1))
    return (product(q, k[:, :, None]).softmax(-1) @ v[:, :, None]).flatten(1, 2)


def as_batch(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Merged heads, and a mask that has them apart."""
    b, h, t, s, _ = m.sizes
    scores = torch.bmm(q, k.transpose(1, 2)).view(b, h, t, s)
    weights = scores.masked_fill(m.padding[:, None, None], -math.inf).softmax(-1)
    return torch.bmm(weights.view(b * h, t, s), v)


def in_float32(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.softmax(product(q, k), dim=-1, dtype=torch.float32).to(q.dtype) @ v


FOUND: dict[str, tuple[Attend, dict[str, Any]]] = {
    "plain": (lambda m, q, k, v: (q @ k.mT).softmax(-1) @ v, {}),
    "divided": (lambda m, q, k, v: (q @ k.mT / math.sqrt(3)).softmax(-1) @ v, {}),
    "scaled before": (lambda m, q, k, v: ((q * 0.3) @ (k * 0.3).mT).softmax(-1) @ v, {}),
    "buffer": (masked(lambda m, x: x.masked_fill(m.hidden, -math.inf)), {}),
    "padding": (masked(lambda m, x: x.masked_fill(m.padding[:, None, None], -math.inf)), {}),
    "constant": (masked(lambda m, x: x.masked_fill(below(x, 2), -math.inf)), {}),
    "causal": (masked(lambda m, x: x.masked_fill(below(x, 0), -math.inf)), {}),
    "low number": (masked(lambda m, x: x.masked_fill(below(x, 0), -1e9)), {}),
    "added": (masked(lambda m, x: x + below(x, 0) * -1e4), {}),
    "chosen": (masked(lambda m, x: torch.where(m.hidden, -math.inf, x)), {}),
    "chosen, or else": (masked(lambda m, x: torch.where(~below(x, 1), x, -1e9)), {}),
    "chosen, or a tensor": (
        masked(lambda m, x: torch.where(~m.hidden, x, torch.full([], -math.inf))), {}
    ),
    "biases": (masked(distances), {}),
    "window": (masked(window), {"sizes": (B, H, L, L, E)}),
    "float32": (in_float32, {}),
    "groups": (in_groups, {"groups": 2}),
    "merged": (lambda m, q, k, v: product(q, k).softmax(-1) @ v, {"merged": True}),
    "merged, mask not": (as_batch, {"merged": True}),
    "keys in columns": (
        lambda m, q, k, v: product(q, k.mT.contiguous().mT).softmax(-1) @ v.mT.contiguous().mT, {}
    ),
}  # fmt: skip


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    attend, options = FOUND[name]
    assert is_fused(Attention(attend, **options))


def weights_read(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = product(q, k).softmax(-1)
    return torch.cat([weights @ v, weights[..., :1]], -1)


def weights_twice(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = product(q, k).softmax(-1)
    return weights @ v + weights @ (v * 2)


def scores_twice(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = product(q, k)
    return scores.softmax(-1) @ v + scores.cos() @ v


def dropped(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.dropout(product(q, k).softmax(-1), 0.3, True) @ v


NOT_FOUND: dict[str, Attend] = {
    "weights are read": weights_read,
    "weights twice": weights_twice,
    "scores twice": scores_twice,
    "dropout": dropped,
    "a row is empty": masked(lambda m, x: x.masked_fill(below(x, -1), -math.inf)),
    "a row is hidden": masked(lambda m, x: x.masked_fill(below(x, -1), -1e9)),
    "a row is hidden by a sum": masked(lambda m, x: x + below(x, -1) * -1e9),
    "a row may be hidden": masked(lambda m, x: x.masked_fill(m.hidden, -1e9)),
    "a row may be hidden by a sum": masked(lambda m, x: x + m.hidden * -1e9),
    "hides too little": masked(lambda m, x: x.masked_fill(below(x, 0), -20.0)),
    "chosen from two": masked(lambda m, x: torch.where(m.hidden, m.q[:, :1, :1, None], x)),
    "a row may not be chosen": masked(lambda m, x: torch.where(m.hidden, -1e9, x)),
    "biases of the query": lambda m, q, k, v: (product(q, k) + q[..., :1]).softmax(-1) @ v,
    "softmax over queries": lambda m, q, k, v: product(q, k).softmax(-2) @ v,
    "capped": masked(lambda m, x: x.tanh()),
    "values of another size": lambda m, q, k, v: product(q, k).softmax(-1) @ v[..., 1:],
}  # fmt: skip


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize("name", NOT_FOUND)
def test_not_found(name: str) -> None:
    assert not is_fused(Attention(NOT_FOUND[name]))


@pytest.mark.slow(seconds=12)
@pytest.mark.parametrize("name", ["buffer", "low number", "biases", "merged, mask not", "groups"])
def test_sizes(name: str) -> None:
    attend, options = FOUND[name]
    for sizes in ((2, 2, 2, 3, 1), (3, 2, 33, 33, 3), (2, 4, 70, 90, 16), (2, 2, 9, 130, 64)):
        assert is_fused(Attention(attend, **{**options, "sizes": sizes}))


@pytest.mark.slow
def test_only_some_gradients() -> None:
    for frozen in ("q", "k", "v", "qk", "qv", "kv"):
        model = Attention(FOUND["buffer"][0])
        for name in frozen:
            getattr(model, name).requires_grad_(False)
        assert is_fused(model), frozen


def test_no_gradients_of_the_attention() -> None:
    class Model(Attention):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                attended = super().forward(x)
            return attended * self.q.sum()

    graph = passed(Model(FOUND["buffer"][0]))
    assert calls(graph, aten.scaled_dot_product_attention.default) == 1


def test_a_row_without_keys_is_still_nan() -> None:
    model = Attention(FOUND["buffer"][0])
    joint = capture_joint(model, (torch.ones(()),), lambda m, batch: m(*batch))
    graph, _ = PassManager(["attention", "dce"], SEMANTICS, trials=0).run(joint.module.graph)
    assert calls(graph, FORWARD) == 1
    model.hidden[2] = True
    results = graph.owning_module(*joint.flat_inputs(model, (torch.ones(()),)))
    assert results[0].isnan()


def test_what_is_kept_does_not_grow_with_the_square_of_the_length() -> None:
    peaks = {}
    for length in (64, 128):
        attend = FOUND["causal"][0]
        graph = passed(Attention(attend, (1, 2, length, length, 8)), trials=0)
        peaks[length] = timeline(graph, SEMANTICS).peak
    assert peaks[128] < 2.1 * peaks[64]


class Block(nn.Module):
    """Two layers with heads split off, and a buffer that says what is hidden."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inside = nn.ModuleList(nn.Linear(16, 48) for _ in range(2))
        self.outside = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.register_buffer("seen", torch.ones(6, 6).tril())

    def forward(self, x: Tensor) -> Tensor:
        for inside, outside in zip(self.inside, self.outside, strict=True):
            q, k, v = (t.view(2, 6, 4, 4).transpose(1, 2) for t in inside(x).split(16, -1))
            weights = product(q, k).masked_fill(self.seen == 0, -math.inf).softmax(-1)
            x = x + outside((weights @ v).transpose(1, 2).reshape(2, 6, 16))
        return x


@pytest.mark.slow(seconds=4)
def test_steps() -> None:
    model, batch = Block(), (torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(0)),)
    loss = lambda m, batch: (m(*batch) - 1).square().mean()  # noqa: E731
    step = capture_step(model, batch, "adamw", loss=loss, lr=1e-3, accumulate=True)
    new, report = optimize_step(step, ("attention", *STEP_PASSES))
    assert not report.failures, report
    assert new.accumulation is not None
    for each in (new, new.accumulation):
        assert calls(each.module.graph, FORWARD) == calls(each.module.graph, BACKWARD) == 2
        assert calls(each.module.graph, aten._softmax.default) == 0
    losses = []
    for each in (step, new):
        state = {r: {n: t.clone() for n, t in x.items()} for r, x in step.state_of(model).items()}
        for _ in range(3):
            _, state = each.accumulate(state, batch)
            found, state = each.run(state, batch)
        losses.append(found.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
