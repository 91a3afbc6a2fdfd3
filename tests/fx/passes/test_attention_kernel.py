from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.fx.passes.layer_passes import FROZEN, randn, run_pass
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.optimize.optimizer import GraphOptimizer
from tinytorch.fx.optimize.verify import ForwardSemantics
from tinytorch.fx.passes import attention_kernel
from tinytorch.fx.passes.attention_kernel import AttentionKernel
from tinytorch.fx.passes.fused_attention import FusedAttention

B, H, L, S, E, V = 2, 4, 5, 7, 8, 6
OP = "aten.scaled_dot_product_attention.default"


class Attention(nn.Module):
    """The op with these options, perhaps with a constant mask."""

    def __init__(self, mask: Tensor | None = None, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.register_buffer("mask", mask)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = self.mask if mask is None else mask
        return functional.scaled_dot_product_attention(q, k, v, mask, **self.options)


class Heads(nn.Module):
    """Self-attention over the heads of one projection, as GPT-2 has it."""

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            each.view(batch, length, H, -1).transpose(1, 2) for each in x.split(width // 3, -1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(batch, length, -1)


def operands(dtype: torch.dtype = torch.float32, heads: int = H) -> tuple[Tensor, ...]:
    q, k, v = randn(B, H, L, E), randn(B, heads, S, E, seed=1), randn(B, heads, S, V, seed=2)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def run(model: nn.Module, *inputs: Tensor, semantics: Any = FROZEN) -> Counter[str]:
    """What the graph of a model calls; checks its result, with the layout."""
    return run_pass(AttentionKernel(semantics, only_if_faster=False), model, *inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_without_a_mask(options: dict[str, Any], dtype: torch.dtype) -> None:
    name = "fused_attention_causal" if "is_causal" in options else "fused_attention"
    assert run(Attention(**options), *operands(dtype)) == {name: 1}


@pytest.mark.parametrize("shape", [(L, S), (B, 1, L, S), (1, H, 1, S), (B, H, L, S), (L, 1)])
@pytest.mark.parametrize("is_bool", [True, False])
def test_masks(shape: tuple[int, ...], is_bool: bool) -> None:
    mask = randn(*shape, seed=3)
    found = run(Attention(), *operands(), mask > -0.5 if is_bool else mask)
    assert found == {"fused_attention": 1}


def test_a_query_that_sees_nothing() -> None:
    mask = torch.ones(L, S, dtype=torch.bool)
    mask[1] = False
    assert run(Attention(), *operands(), mask) == {"fused_attention": 1}


def test_the_layout_of_heads_is_kept() -> None:
    assert run(Heads(), randn(B, L, 3 * H * E))["fused_attention_causal"] == 1


def test_groups_of_queries_share_keys() -> None:
    assert run(Attention(enable_gqa=True), *operands(heads=2)) == {"fused_attention": 1}


def square(*_: Tensor) -> tuple[Tensor, ...]:
    return tuple(randn(B, H, L, E, seed=n) for n in range(3))


def test_a_constant_mask_that_is_causal_order() -> None:
    causal = torch.ones(1, 1, L, L, dtype=torch.bool).tril()
    assert run(Attention(causal), *square()) == {"fused_attention_causal": 1}
    assert run(Attention(), *square(), causal) == {"fused_attention": 1}  # may be another one
    for other in (causal.flip(-1), causal.tril(-1), causal[..., -1:, :].clone().tril()):
        assert run(Attention(other), *square()) == {"fused_attention": 1}


def test_causal_order_of_a_mask_that_is_broadcast_stays_a_mask() -> None:
    one = torch.ones(1, 1, dtype=torch.bool)
    row = torch.tensor([[True] + [False] * (L - 1)])  # the lower triangle of its own shape
    assert run(Attention(one), *square()) == {"fused_attention": 1}
    assert run(Attention(row), *square()) == {"fused_attention": 1}


def test_a_constant_mask_that_hides_nothing_is_dropped() -> None:
    pass_ = AttentionKernel(FROZEN, only_if_faster=False)
    model = Attention(torch.ones(L, L, dtype=torch.bool))
    assert run_pass(pass_, model, *square()) == {"fused_attention": 1}
    kernel = FusedAttention(0.5, False, False)
    torch.testing.assert_close(
        kernel(*square()), kernel(*square(), torch.ones(L, L, dtype=torch.bool))
    )


UNCHANGED: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
    "bfloat16": (Attention(), operands(torch.bfloat16)),
    "dropout": (Attention(dropout_p=0.5), operands()),
    "three dimensions": (Attention(), tuple(x[0] for x in operands())),
    "batches that are broadcast": (Attention(), (operands()[0], *(x[:1] for x in operands()[1:]))),
    "heads that are broadcast": (
        Attention(), (operands()[0], *(x[:, :1] for x in operands()[1:]))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNCHANGED)
def test_other_calls_stay(name: str) -> None:
    model, inputs = UNCHANGED[name]
    a_pass = AttentionKernel(FROZEN, only_if_faster=False)
    with torch.no_grad():
        graph = capture_forward(model.eval(), inputs).graph
    assert a_pass.analyze(graph) == []


def test_a_graph_that_may_be_differentiated_stays() -> None:
    assert run(Attention(), *operands(), semantics=ForwardSemantics(frozen=False)) == {OP: 1}


def test_nothing_changes_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_kernel, "find_spec", lambda name: None)
    assert run(Attention(), *operands()) == {OP: 1}


@pytest.mark.parametrize("answer", [True, False])
def test_it_must_be_faster(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    timed = []

    def is_faster(new: Any, old: Any) -> bool:
        torch.testing.assert_close(new(), old())  # on the same numbers
        timed.append(answer)
        return answer

    monkeypatch.setattr(attention_kernel, "is_faster", is_faster)

    class Twice(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            attend = functional.scaled_dot_product_attention
            return attend(q, k, v, mask) + attend(q * 2, k, v, mask)

    found = run_pass(AttentionKernel(FROZEN), Twice(), *operands(), randn(L, S) > 0)
    assert found["fused_attention"] == 2 * answer and found[OP] == 2 * (not answer)
    assert len(timed) == 1  # calls that take equally long are timed once


def test_open_sizes() -> None:
    optimizer = GraphOptimizer(
        Heads().eval(), randn(B, L, 3 * H * E),
        [AttentionKernel(FROZEN, only_if_faster=False)],
        device="cpu", dynamic_dims=(0,), keep_slower=True,
    )  # fmt: skip
    module = optimizer.optimize()
    assert not optimizer.report().undone
    assert any(isinstance(n.target, FusedAttention) for n in module.graphs["eval"].graph.nodes)
    x = randn(B + 3, L, 3 * H * E)
    torch.testing.assert_close(module(x), Heads()(x))


def test_it_takes_no_more_threads_than_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        "tinytorch.backends.optimized.attention.attention.scaled_dot_product_attention",
        lambda *args, most_threads, **options: seen.append(most_threads),
    )
    FusedAttention(1.0, False, True)(*operands())
    assert seen == [torch.get_num_threads()]
