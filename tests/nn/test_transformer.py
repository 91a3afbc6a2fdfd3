from __future__ import annotations

import numpy as np
import pytest
import torch

import tinytorch
import tinytorch.nn.functional as F
from tests.nn.twins import assert_twins_agree, make_twins
from tinytorch import nn

SMALL = {"d_model": 4, "nhead": 2, "dim_feedforward": 6, "dropout": 0.0}
MASK = np.triu(np.ones((3, 3), bool), 1)
PADDING = np.array([[False, False, True], [False, False, False]])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation": "gelu", "norm_first": True},
        {"bias": False, "batch_first": True, "layer_norm_eps": 1e-3},
    ],
)
def test_layers_equal_pytorch(rng, options):
    shape = (2, 3, 4) if options.get("batch_first") else (3, 2, 4)
    x, memory = rng.standard_normal(shape), rng.standard_normal(shape)
    twins = make_twins("TransformerEncoderLayer", **SMALL, **options)
    assert_twins_agree(*twins, x)
    assert_twins_agree(*twins, x, src_mask=MASK, src_key_padding_mask=PADDING)
    twins = make_twins("TransformerDecoderLayer", **SMALL, **options)
    assert_twins_agree(*twins, x, memory)
    masks = {"tgt_mask": MASK, "memory_key_padding_mask": PADDING, "tgt_key_padding_mask": PADDING}
    assert_twins_agree(*twins, x, memory, **masks)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # PyTorch's
def test_the_whole_equals_pytorch(rng):
    options = {**SMALL, "num_encoder_layers": 2, "num_decoder_layers": 2}
    ours, theirs = make_twins("Transformer", **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    src, tgt = rng.standard_normal((3, 2, 4)), rng.standard_normal((3, 2, 4))
    assert_twins_agree(ours, theirs, src, tgt)
    assert_twins_agree(
        ours, theirs, src, tgt, tgt_mask=MASK, src_key_padding_mask=PADDING,
        memory_key_padding_mask=PADDING,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # PyTorch's
def test_stacks_equal_pytorch(rng):
    x, memory = rng.standard_normal((3, 2, 4)), rng.standard_normal((3, 2, 4))
    for kind, inputs in (("TransformerEncoder", (x,)), ("TransformerDecoder", (x, memory))):
        made = []
        for library in (nn, torch.nn):
            layer = getattr(library, f"{kind}Layer")(**SMALL)
            made.append(getattr(library, kind)(layer, 2, norm=library.LayerNorm(4)).double())
        ours, theirs = made
        ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
        assert_twins_agree(ours, theirs, *inputs)


def test_copies_are_independent_and_start_equal():
    layer = nn.TransformerEncoderLayer(**SMALL)
    stack = nn.TransformerEncoder(layer, 2)
    first, second = (m.linear1.weight for m in stack.layers)
    assert first is not second is not layer.linear1.weight
    assert first.tolist() == second.tolist() == layer.linear1.weight.tolist()


def test_causal_masks(rng):
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    expected = torch.nn.Transformer.generate_square_subsequent_mask(3)
    np.testing.assert_array_equal(mask.numpy(), expected)
    layer = nn.TransformerEncoderLayer(**SMALL).eval()
    x = tinytorch.tensor(rng.standard_normal((3, 1, 4)).astype(np.float32))
    out = layer(x, mask, is_causal=True)
    x[2] = 100.0  # the future
    np.testing.assert_allclose(
        layer(x, mask)[:2].detach().numpy(), out[:2].detach().numpy(), rtol=1e-5
    )


def test_dropout_and_activation():
    tinytorch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(4, 2, 8, 0.5, activation=F.silu)
    x = tinytorch.ones(3, 2, 4)
    assert layer(x, x).tolist() != layer(x, x).tolist()
    layer.eval()
    assert layer(x, x).tolist() == layer(x, x).tolist()
    with pytest.raises(ValueError, match="activation must be 'relu', 'gelu' or a function, not 't"):
        nn.TransformerEncoderLayer(4, 2, activation="tanh")
    with pytest.raises(tinytorch.ShapeError, match="must have 8 features"):
        nn.Transformer(8, 2, 1, 1, 8)(x, x)
