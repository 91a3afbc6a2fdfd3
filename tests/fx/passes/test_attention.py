from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tinytorch.fx import passes as _registered  # noqa: F401
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.optimize.optimizer import GraphOptimizer
from tinytorch.fx.optimize.verify import ForwardSemantics
from tinytorch.graph.passes import PassManager

B, H, L, E = 2, 3, 5, 4
LOW = torch.finfo(torch.float32).min
Scores = Callable[[Tensor, Tensor], Tensor]


class Attention(nn.Module):
    """What comes between q, k and v is a function of q and k."""

    def __init__(self, scores: Scores, dropout: float = 0.0) -> None:
        super().__init__()
        self.scores, self.dropout = scores, dropout
        self.register_buffer("causal", torch.ones(L, L).tril() == 0)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = functional.softmax(self.scores(q, k), dim=-1)
        return functional.dropout(weights, self.dropout, self.training) @ v


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(B, H, L, E, generator=generator).to(dtype) for _ in range(3))


def fused(model: nn.Module, frozen: bool = False, dtype: torch.dtype = torch.float32) -> int:
    """How many fused ops the pass makes; results and gradients are checked by the manager."""
    semantics = ForwardSemantics(frozen)
    graph = capture_forward(model, inputs(dtype)).graph
    graph, report = PassManager(["no-ops", "attention", "dce"], semantics).run(graph)
    assert not report.failures, report
    target = torch.ops.aten.scaled_dot_product_attention.default
    return len(graph.find_nodes(op="call_function", target=target))


def product(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1)


MASK = torch.randn(L, L, generator=torch.Generator().manual_seed(1))
CAUSAL = torch.ones(L, L).tril() == 0
FOUND: dict[str, Scores] = {
    "plain": product,
    "divided": lambda q, k: product(q, k) / math.sqrt(E),
    "multiplied": lambda q, k: 0.3 * product(q, k),
    "query scaled before": lambda q, k: product(q * 0.3, k),
    "keys permuted": lambda q, k: q @ k.permute(0, 1, 3, 2),
    "added mask": lambda q, k: product(q, k) / 2 + MASK,
    "mask first": lambda q, k: MASK + product(q, k),
    "filled with a low number": lambda q, k: product(q, k).masked_fill(q[..., :1] > 0, LOW),
    "filled with -inf": lambda q, k: (product(q, k) / 2).masked_fill(CAUSAL, -math.inf),
    "chosen": lambda q, k: torch.where(CAUSAL, -math.inf, product(q, k) / 2),
    "chosen, or a tensor": lambda q, k: torch.where(~CAUSAL, product(q, k), torch.full([], LOW)),
    "filled with -inf, unknown where": lambda q, k: product(q, k).masked_fill(
        CAUSAL & (q[..., :1] == q[..., :1]), -math.inf
    ),
}
NOT_FOUND: dict[str, Scores] = {
    "mask of another shape": lambda q, k: (
        product(q, k)[:, :1] + MASK[None, None].expand(B, H, L, L)
    ),
    "filled with a number that hides too little": lambda q, k: product(q, k).masked_fill(
        CAUSAL, -20.0
    ),
    "a row is empty": lambda q, k: product(q, k).masked_fill(~CAUSAL, -math.inf),
    "two products": lambda q, k: product(q, k) + product(k, q),
    "cosine": lambda q, k: product(q, k).cos(),
}


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("frozen", [True, False])
def test_found(name: str, frozen: bool) -> None:
    found = fused(Attention(FOUND[name]).eval(), frozen)
    assert found == (frozen or name != "filled with a low number")


@pytest.mark.parametrize("name", NOT_FOUND)
def test_not_found(name: str) -> None:
    if name == "two products":
        assert fused(Attention(NOT_FOUND[name]).eval()) == 1  # one of them is the mask
    else:
        assert fused(Attention(NOT_FOUND[name]).eval(), frozen=True) == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_rounding_is_that_of_the_dtype(dtype: torch.dtype) -> None:
    """Of bfloat16 too, which NumPy compares as float32."""
    assert fused(Attention(lambda q, k: product(q, k) / 2), dtype=dtype) == 1


def test_dropout_draws_its_own_numbers() -> None:
    assert fused(Attention(product, dropout=0.5).train()) == 0
    assert fused(Attention(product, dropout=0.5).eval()) == 1


def test_weights_that_are_returned() -> None:
    class Model(Attention):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            weights = functional.softmax(self.scores(q, k), dim=-1)
            return weights @ v, weights

    assert fused(Model(product)) == 0


def test_softmax_over_another_dimension() -> None:
    class Model(Attention):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return functional.softmax(self.scores(q, k), dim=-2) @ v

    assert fused(Model(product)) == 0


def test_causal_buffer_of_a_frozen_model() -> None:
    class Model(Attention):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scores = product(q, k).masked_fill(self.causal, -math.inf)
            return functional.softmax(scores, dim=-1) @ v

    assert fused(Model(product).eval(), frozen=True) == 1
    assert fused(Model(product).eval(), frozen=False) == 1


def test_what_attends_to_nothing_stays_nan() -> None:
    scores = lambda q, k: product(q, k).masked_fill(q[..., :1] > 0, -math.inf)  # noqa: E731
    assert fused(Attention(scores).eval(), frozen=True) == 1  # the manager compares NaN, too


@pytest.mark.slow
def test_bert_written_out() -> None:
    """transformers' eager attention, in every layer; values and gradients of the real model."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=16, attn_implementation="eager",
    )  # fmt: skip
    bert = transformers.BertModel(config, add_pooling_layer=False).eval()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert

        def forward(self, tokens: Tensor) -> Tensor:
            return self.bert(tokens).last_hidden_state

    model, tokens = Model(), torch.randint(0, 50, (2, 12))
    captured = capture_forward(model, (tokens,))
    passes = PassManager(["no-ops", "attention", "dce"], ForwardSemantics(False))
    graph, report = passes.run(captured.graph)
    assert not report.failures, report
    target = torch.ops.aten.scaled_dot_product_attention.default
    assert len(graph.find_nodes(op="call_function", target=target)) == 3
    rewritten = torch.fx.GraphModule(captured, graph)
    found, expected = rewritten(tokens), model(tokens)
    found = found[0] if isinstance(found, (tuple, list)) else found
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    wanted = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
    given = torch.autograd.grad(found.square().sum(), list(rewritten.parameters()))
    assert len(given) == len(wanted)
    sizes, expected_sizes = (
        sorted(float(g.square().sum()) for g in each) for each in (given, wanted)
    )
    assert sizes == pytest.approx(expected_sizes, rel=1e-3, abs=1e-6)


def test_a_result_of_the_model_has_the_layout_of_the_model() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in x.split(8, -1))
            return functional.softmax(product(q, k), dim=-1) @ v

    x = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(0))
    optimizer = GraphOptimizer(Model().eval(), x, passes=["attention", "dce"], keep_slower=True)
    graph = optimizer.optimize().graph_module.graph
    assert not optimizer.report().undone
    target = torch.ops.aten.scaled_dot_product_attention.default
    assert len(graph.find_nodes(op="call_function", target=target)) == 1
