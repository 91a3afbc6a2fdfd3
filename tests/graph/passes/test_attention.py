"""What is recognised as attention, and what is not."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tinytorch import Tensor
from tinytorch.graph import PassManager, trace
from tinytorch.graph.passes.attention import FusedAttention
from tinytorch.jit.caches import core_caches


@pytest.fixture(autouse=True)
def _optimized():  # it keeps softmax whole
    with tinytorch.using_backend("optimized"):
        yield


def softmax_of(scores, v, dim=-1):
    return F.softmax(scores, dim) @ v


def with_mask(fill):
    def attend(q, k, v, mask):
        return softmax_of((q @ k.mT).masked_fill(mask, fill), v)

    return attend


def causal(q, k, v):
    hidden = tinytorch.tril(tinytorch.ones(5, 7)) == 0
    return softmax_of((q @ k.mT / 2.0).masked_fill(hidden, -math.inf), v)


def hidden_by(fill, q, k, v, first=0):
    """A constant mask: row i sees the keys 0 to i + first; of the first row's there may be none."""
    hidden = tinytorch.tril(tinytorch.ones(5, 7), first) == 0
    return softmax_of((q @ k.mT / 2.0).masked_fill(hidden, fill), v)


def arrays(rng, *masks):
    shapes = (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)
    return [Tensor(rng.standard_normal(s).astype(np.float32)) for s in shapes] + [*masks]


def fused(function, inputs):
    """The attention nodes after the pass, which the manager compares with the original."""
    traced = trace(function, *inputs, decompose=None)
    graph, report = PassManager(["fused-attention", "dce"], trials=1).run(traced.graph)
    assert not report.failures, report
    names = [getattr(n.target, "name", "") for n in graph.nodes]
    found = [n for n in graph.nodes if getattr(n.target, "name", "")[:6] == "scaled"]
    assert not found or "softmax" not in names
    return found


WIDE = tinytorch.ones(2, 3, 5, 7)
MASK = Tensor(np.tri(5, 7, 2, dtype=bool))


@pytest.mark.parametrize(
    ("function", "masks", "params"),
    [
        (lambda q, k, v: softmax_of(q @ k.mT, v), (), {"scale": 1.0}),
        (lambda q, k, v: softmax_of(q @ k.transpose(-2, -1) * 0.5, v), (), {"scale": 0.5}),
        (lambda q, k, v: softmax_of(0.5 * (q @ k.mT), v), (), {"scale": 0.5}),
        (lambda q, k, v: softmax_of(q @ k.mT / 4.0, v), (), {"scale": 0.25}),
        (lambda q, k, v: softmax_of(q @ k.reshape(2, 3, 4, 7), v), (), {}),
        (causal, (), {"scale": 0.5, "is_causal": True}),
        (with_mask(-math.inf), (Tensor(~MASK.numpy()),), {"is_causal": False}),
        (with_mask(-1e9), (Tensor(~MASK.numpy()),), {"is_causal": False}),
        (with_mask(float(np.finfo(np.float32).min)), (Tensor(~MASK.numpy()),), {}),
        (lambda q, k, v, m: softmax_of(tinytorch.where(m, q @ k.mT, -1e9), v), (MASK,), {}),
        (lambda q, k, v: hidden_by(-1e4, q, k, v), (), {"is_causal": True}),
        (lambda q, k, v: hidden_by(-1e4, q, k, v, first=1), (), {"is_causal": False}),
        (
            lambda q, k, v, m: softmax_of(tinytorch.where(m, q @ k.mT * 0.5, -math.inf), v),
            (MASK,), {"scale": 0.5},
        ),
        (lambda q, k, v, m: softmax_of(m + q @ k.mT * 0.5, v), (MASK.float(),), {"scale": 0.5}),
        (
            lambda q, k, v: F.dropout(F.softmax(q @ k.mT, -1), 0.3) @ v, (), {"dropout_p": 0.3},
        ),
    ],
)  # fmt: skip
def test_is_attention(rng, function, masks, params):
    (node,) = fused(function, arrays(rng, *masks))
    assert {key: node.kwargs[key] for key in params} == params


@pytest.mark.parametrize(
    ("function", "masks"),
    [
        (lambda q, k, v: (softmax_of(s := q @ k.mT, v), s), ()),  # the scores are a result
        (lambda q, k, v: ((w := F.softmax(q @ k.mT, -1)) @ v, w.sum()), ()),
        (lambda q, k, v: softmax_of(q @ k.mT, v, dim=-2), ()),
        (lambda q, k, v, m: (F.softmax(q @ k.mT, -1) * m) @ v, (MASK.float(),)),  # after softmax
        (lambda q, k, v: softmax_of((q @ k.mT).exp(), v), ()),
        (lambda q, k, v: softmax_of((q @ k.mT) ** 2, v), ()),
        (with_mask(-1e4), (Tensor(~MASK.numpy()),)),  # a row of it is the mean of all values
        (with_mask(1e9), (Tensor(~MASK.numpy()),)),
        (lambda q, k, v: hidden_by(-1e3, q, k, v), ()),
        (lambda q, k, v: hidden_by(-1e9, q, k, v, first=-1), ()),
        (lambda q, k, v: softmax_of(q @ k[:1, :1].mT, v), ()),  # keys that broadcast
        (lambda q, k, v, m: softmax_of(q[:, :1] @ k[:, :1].mT + m, v), (WIDE,)),
        (lambda q, k, v: F.dropout(F.softmax(q @ k.mT, -1), 0.3).relu() @ v, ()),
        (lambda q, k, v: F.dropout2d(F.softmax(q @ k.mT, -1), 0.3) @ v, ()),
    ],
)  # fmt: skip
def test_is_no_attention(rng, function, masks):
    assert fused(function, arrays(rng, *masks)) == []


def masked(q, k, v, m):
    return softmax_of(tinytorch.where(m, q @ k.mT * 0.5, -math.inf), v)


def step_of(attend, wanted="qkv"):
    def step(q, k, v, *masks):
        attend(q, k, v, *masks).square().sum().backward()
        return [x.grad for name, x in zip("qkv", (q, k, v), strict=True) if name in wanted]

    return step


@pytest.mark.parametrize("wanted", ["qkv", "q", "k", "v", "qk", "kv"])
@pytest.mark.parametrize(
    ("attend", "masks"),
    [
        (lambda q, k, v: softmax_of(q @ k.mT, v), ()),
        (lambda q, k, v: softmax_of(q @ k.mT / 2.0, v), ()),
        (masked, (MASK,)),
        (with_mask(-math.inf), (Tensor(~MASK.numpy()),)),
        (with_mask(-1e9), (Tensor(~MASK.numpy()),)),
        (causal, ()),
        (lambda q, k, v, m: softmax_of(q @ k.mT * 0.5 + m, v), (MASK.float(),)),
        (lambda q, k, v: F.dropout(F.softmax(q @ k.mT * 0.5, -1), 0.3) @ v, ()),
    ],
)
def test_the_backward_is_replaced_too(rng, attend, masks, wanted):
    inputs = arrays(rng, *masks)
    for name, x in zip("qkv", inputs[:3], strict=True):
        x.requires_grad_(name in wanted)
    names = [n.target.name for n in fused(step_of(attend, wanted), inputs)]
    assert names == ["scaled_dot_product_attention", "scaled_dot_product_attention_backward"]


@pytest.mark.parametrize("fill", [-math.inf, -1e9])
def test_heads_that_are_split_off(rng, fill):
    """Their permutations are merged with those that transpose the keys, before this pass."""

    def step(x, mask):
        q, k, v = (t.reshape(2, 5, 3, 4).transpose(1, 2) for t in x.split(12, dim=2))
        scores = (q @ k.transpose(-2, -1) * 0.5).masked_fill(mask, fill)
        out = softmax_of(scores, v).transpose(1, 2).reshape(2, 5, 12)
        out.square().sum().backward()
        return out, x.grad

    x = Tensor(rng.standard_normal((2, 5, 36)).astype(np.float32)).requires_grad_()
    mask = Tensor(~np.tri(5, dtype=bool))
    traced = trace(step, x, mask, decompose=None)
    passes = ["algebra", "layout", "cse", "dce", "fused-attention", "dce"]
    graph, report = PassManager(passes, trials=1).run(traced.graph)
    assert not report.failures
    names = [n.target.name for n in graph.nodes if n.op == "call_function"]
    assert names.count("scaled_dot_product_attention") == 1
    assert names.count("scaled_dot_product_attention_backward") == 1
    assert "softmax" not in names and "softmax_backward" not in names


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_heads_that_are_merged_but_for_the_mask(rng, dropout):
    def step(q, k, v, mask):
        x, y, z = (t.reshape(6, *t.shape[-2:]) for t in (q, k, v))
        scores = (x @ y.mT * 0.5).reshape(2, 3, 5, 7).masked_fill(mask, -math.inf)
        weights = F.dropout(F.softmax(scores, -1), dropout)
        (weights.reshape(6, 5, 7) @ z).square().sum().backward()
        return q.grad, k.grad, v.grad

    inputs = arrays(rng, Tensor(~MASK.numpy()))
    for x in inputs[:3]:
        x.requires_grad_()
    names = [n.target.name for n in fused(step, inputs)]
    assert names == ["scaled_dot_product_attention", "scaled_dot_product_attention_backward"]


def test_only_the_last_two_dimensions_exchanged_are_a_transposed_tensor():
    """All dimensions are of one size, so that a wrong order is of the right shape."""

    cube, pattern = tinytorch.zeros(4, 4, 4), FusedAttention()

    def are_transposed(first, second):
        traced = trace(lambda x: (x.permute(*first) + 0.0, x.permute(*second) + 0.0), cube)
        a, b = [n for n in traced.graph.nodes if getattr(n.target, "name", "") == "permute"]
        return pattern._are_transposed(a, b)

    assert are_transposed((1, 0, 2), (1, 2, 0)) and are_transposed((2, 0, 1), (2, 1, 0))
    assert not are_transposed((1, 0, 2), (0, 2, 1)) and not are_transposed((1, 0, 2), (2, 0, 1))


def returns_weights(q, k, v):
    weights = F.softmax(q @ k.mT, -1)
    (weights @ v).sum().backward()
    return q.grad, weights


def second_use_of_the_scores_gradient(q, k, v):
    scores = q @ k.mT
    bias = tinytorch.zeros(5, 7, requires_grad=True)
    (F.softmax(scores + bias, -1) @ v).sum().backward()
    return q.grad, bias.grad


def penalized_weights(q, k, v):
    weights = F.softmax(q @ k.mT, -1)
    ((weights @ v).sum() + weights.square().sum()).backward()
    return q.grad


@pytest.mark.parametrize(
    "step", [returns_weights, second_use_of_the_scores_gradient, penalized_weights]
)
def test_a_backward_that_uses_more_stays(rng, step):
    assert fused(step, [x.requires_grad_() for x in arrays(rng)]) == []


def test_one_attention_that_reads_another(rng):
    def step(q, k, v):
        first = softmax_of(q @ k.mT, v)
        softmax_of(first @ first.mT, first).square().sum().backward()
        return q.grad, k.grad, v.grad

    inputs = [tinytorch.tensor(rng.standard_normal((2, 5, 4), np.float32)) for _ in range(3)]
    assert len(fused(step, [x.requires_grad_() for x in inputs])) == 4


def test_compiled(rng):
    q, k, v = arrays(rng)
    compiled = tinytorch.compile(causal, passes=["fused-attention", "dce"])
    np.testing.assert_allclose(compiled(q, k, v).numpy(), causal(q, k, v).numpy(), atol=1e-6)
    assert "scaled_dot_product_attention_f32(" in str(compiled.explain())


@pytest.mark.parametrize("length", [16, 256])
def test_a_compiled_step_with_fast_math_uses_the_fused_op_for_scores_beyond_l1(length):
    grads, mask = [], Tensor(np.tri(length, dtype=bool))
    for fast_math in (False, True):
        rng = np.random.default_rng(0)
        inputs = [Tensor(rng.standard_normal((1, length, 4)).astype(np.float32)) for _ in range(3)]
        step = step_of(masked)
        for x in inputs:
            x.requires_grad_()
        if fast_math:
            step = tinytorch.compile(step, fast_math=True)
        grads.append([g.numpy() for g in step(*inputs, mask)])
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    is_fused = "scaled_dot_product_attention_backward_f32(" in str(step.explain())
    assert is_fused is (4 * length**2 > core_caches()[0].size)


def test_a_forward_alone_is_rewritten_at_any_length(rng):
    compiled = tinytorch.compile(causal, fast_math=True)
    compiled(*arrays(rng))
    assert "scaled_dot_product_attention_f32(" in str(compiled.explain())
