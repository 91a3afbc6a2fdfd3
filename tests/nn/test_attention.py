from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tests.nn.twins import assert_twins_agree, make_twins
from tinytorch import nn
from tinytorch.errors import ShapeError

CAUSAL = np.triu(np.ones((3, 3), bool), 1)
PADDING = np.array([[False, False, True], [False, True, True]])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False, "batch_first": True},
        {"kdim": 5, "vdim": 3},
        {"add_bias_kv": True, "add_zero_attn": True},
    ],
)
@pytest.mark.parametrize("masks", [(), ("attn",), ("padding",), ("attn", "padding"), ("float",)])
def test_equals_pytorch(rng, options, masks):
    ours, theirs = make_twins("MultiheadAttention", 4, 2, **options)
    shapes = [(3, 2, w) for w in (4, options.get("kdim", 4), options.get("vdim", 4))]
    if options.get("batch_first"):
        shapes = [(2, 3, 4)] * 3
    x = [rng.standard_normal(shape) for shape in shapes]
    given = {}
    if "attn" in masks:
        given["attn_mask"] = CAUSAL
    if "float" in masks:
        given["attn_mask"] = np.where(CAUSAL, -1e4, 0.5)
    if "padding" in masks:
        given["key_padding_mask"] = PADDING
    assert_twins_agree(ours, theirs, *x, **given)
    assert_twins_agree(ours, theirs, *x, **given, average_attn_weights=False)


def test_self_attention_a_mask_for_each_head_and_one_sequence(rng):
    ours, theirs = make_twins("MultiheadAttention", 4, 2)
    x, mask = rng.standard_normal((3, 2, 4)), rng.random((4, 3, 3)) < 0.3
    mask[..., 0] = False
    assert_twins_agree(ours, theirs, x, x, x, attn_mask=mask)
    assert_twins_agree(ours, theirs, x[:, 0], x[:, 0], x[:, 0], attn_mask=CAUSAL)
    same = tinytorch.tensor(x)
    out, weights = ours(same, same, same, need_weights=False)
    assert weights is None
    other, _ = ours(same, tinytorch.tensor(x), tinytorch.tensor(x))
    np.testing.assert_allclose(out.detach().numpy(), other.detach().numpy(), rtol=1e-12)


def test_dropout_in_training_only():
    tinytorch.manual_seed(0)
    layer, x = nn.MultiheadAttention(4, 2, dropout=0.5), tinytorch.ones(6, 1, 4)
    _, weights = layer(x, x, x)
    assert (weights == 0).sum().item() > 0
    _, weights = layer.eval()(x, x, x)
    np.testing.assert_allclose(weights.detach().numpy(), 1 / 6, rtol=1e-6)


def test_initial_values():
    layer = nn.MultiheadAttention(64, 2, add_bias_kv=True)
    bound = (6 / (4 * 64)) ** 0.5
    assert 0.98 * bound < layer.in_proj_weight.abs().max().item() <= bound
    assert not layer.in_proj_bias.detach().numpy().any()
    assert not layer.out_proj.bias.detach().numpy().any()
    assert layer.bias_k.std().item() > 0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: nn.MultiheadAttention(5, 2), ValueError, "embed_dim 5 must be a multiple"),
        (lambda x: nn.MultiheadAttention(4, 2)(x, x, x, is_causal=True), ValueError, "pass attn_m"),
        (
            lambda x: nn.MultiheadAttention(8, 2)(x, x, x),
            ShapeError,
            "must have 8, 8 and",
        ),
        (
            lambda x: nn.MultiheadAttention(4, 2)(x, x, x, attn_mask=tinytorch.ones(2, 2)),
            ShapeError,
            r"attn_mask \(2, 2\) must be \(3, 3\) or \(4, 3, 3\)",
        ),
        (
            lambda x: nn.MultiheadAttention(4, 2)(x, x, x, tinytorch.ones(3, 2)),
            ShapeError,
            r"key_padding_mask \(3, 2\) must be \(2, 3\)",
        ),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call(tinytorch.ones(3, 2, 4))


def test_a_mask_of_integers_is_refused():
    layer, x = nn.MultiheadAttention(4, 2), tinytorch.ones(3, 2, 4)
    text = "must be bool, or floats to add, not int64; use mask.bool"
    with pytest.raises(tinytorch.DTypeError, match=f"attn_mask {text}"):
        layer(x, x, x, attn_mask=tinytorch.tensor(CAUSAL).long())
    with pytest.raises(tinytorch.DTypeError, match=f"key_padding_mask {text}"):
        layer(x, x, x, tinytorch.tensor(PADDING).long())
    with pytest.raises(tinytorch.DTypeError, match=f"attn_mask {text}"):
        nn.functional.scaled_dot_product_attention(x, x, x, tinytorch.ones(2, 2).long())
