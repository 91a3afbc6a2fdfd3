"""Every layer against PyTorch's of the same name, with the same parameters by the same names."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tests.nn.test_losses import LOSSES
from tests.nn.twins import make_twins
from tests.torch_compare import assert_like_torch
from tinytorch import nn

LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("Linear", (3, 4), {}, (5, 3)),
    ("Linear", (3, 4), {"bias": False}, (2, 5, 3)),
    ("Conv2d", (2, 4, 3), {}, (2, 2, 6, 5)),
    (
        "Conv2d",
        (2, 4, (3, 2)),
        {"stride": (2, 1), "padding": (1, 0), "dilation": 2, "groups": 2, "bias": False},
        (2, 2, 9, 6),
    ),
    ("Conv2d", (2, 3, 3), {"padding": "same"}, (2, 2, 5, 5)),
    ("Conv1d", (2, 4, 3), {"stride": 2, "padding": 1, "groups": 2}, (3, 2, 8)),
    ("MaxPool2d", (2,), {}, (2, 2, 5, 5)),
    ("MaxPool2d", ((3, 2),), {"stride": 1, "padding": 1, "dilation": 2}, (2, 2, 7, 7)),
    ("AvgPool2d", (2,), {}, (2, 2, 5, 5)),
    ("AvgPool2d", (3, 2, 1), {}, (2, 2, 5, 5)),
    ("AdaptiveAvgPool2d", (1,), {}, (2, 3, 5, 4)),
    ("AdaptiveAvgPool2d", ((2, None),), {}, (2, 3, 5, 4)),
    ("BatchNorm1d", (3,), {}, (4, 3)),
    ("BatchNorm1d", (3,), {"momentum": None, "eps": 1e-3}, (4, 3, 2)),
    ("BatchNorm2d", (3,), {"momentum": 0.3}, (2, 3, 4, 4)),
    ("BatchNorm2d", (3,), {"affine": False}, (2, 3, 4, 4)),
    ("BatchNorm2d", (3,), {"track_running_stats": False}, (2, 3, 4, 4)),
    ("LayerNorm", (5,), {}, (2, 3, 5)),
    ("LayerNorm", ((3, 5),), {"bias": False, "eps": 1e-3}, (2, 3, 5)),
    ("LayerNorm", (5,), {"elementwise_affine": False}, (2, 3, 5)),
    ("RMSNorm", (5,), {}, (2, 3, 5)),
    ("RMSNorm", ((3, 5),), {"eps": 0.1, "elementwise_affine": False}, (2, 3, 5)),
    ("GroupNorm", (2, 4), {}, (2, 4, 3, 3)),
    ("GroupNorm", (2, 4), {"affine": False}, (2, 4, 3)),
    ("Flatten", (), {}, (2, 3, 4)),
    ("Flatten", (0, 1), {}, (2, 3, 4)),
    ("Identity", (), {}, (2, 3)),
    ("ReLU", (), {}, (3, 4)),
    ("ReLU6", (), {}, (3, 4)),
    ("LeakyReLU", (0.2,), {}, (3, 4)),
    ("PReLU", (), {}, (3, 4)),
    ("PReLU", (4,), {"init": 0.1}, (3, 4)),
    ("ELU", (0.5,), {}, (3, 4)),
    ("SELU", (), {}, (3, 4)),
    ("GELU", (), {}, (3, 4)),
    ("GELU", ("tanh",), {}, (3, 4)),
    ("SiLU", (), {}, (3, 4)),
    ("Mish", (), {}, (3, 4)),
    ("Sigmoid", (), {}, (3, 4)),
    ("LogSigmoid", (), {}, (3, 4)),
    ("Tanh", (), {}, (3, 4)),
    ("Hardtanh", (-0.5, 0.7), {}, (3, 4)),
    ("Softplus", (2.0, 1.0), {}, (3, 4)),
    ("Softsign", (), {}, (3, 4)),
    ("Softmax", (1,), {}, (3, 4)),
    ("LogSoftmax", (0,), {}, (3, 4)),
    ("Softmin", (1,), {}, (3, 4)),
    ("Softmax2d", (), {}, (2, 3, 2, 2)),
    ("CELU", (0.7,), {}, (3, 4)),
    ("Hardsigmoid", (), {}, (3, 4)),
    ("Hardswish", (), {}, (3, 4)),
    ("Hardshrink", (0.3,), {}, (3, 4)),
    ("Softshrink", (0.3,), {}, (3, 4)),
    ("Tanhshrink", (), {}, (3, 4)),
    ("Threshold", (0.1, 20.0), {}, (3, 4)),
    ("GLU", (1,), {}, (3, 4)),
    ("Unflatten", (1, (2, 3)), {}, (2, 6, 2)),
    ("Conv2d", (2, 4, 3, 1, 1, 1, 1, True, "reflect"), {}, (2, 2, 5, 6)),
    ("Conv2d", (2, 4, (3, 2)), {"padding": "same", "padding_mode": "circular"}, (2, 2, 5, 6)),
    ("Conv1d", (2, 4, 3), {"padding": 1, "padding_mode": "replicate"}, (2, 2, 5)),
    ("ConvTranspose2d", (2, 3, 3), {}, (2, 2, 4, 5)),
    ("ConvTranspose2d", (4, 6, 4, 2, 1), {"bias": False}, (2, 4, 3, 3)),
    (
        "ConvTranspose2d",
        (4, 6, (3, 2), (2, 3), (1, 0), (1, 2), 2, True, (2, 1)),
        {},
        (2, 4, 3, 4),
    ),
    ("ConvTranspose1d", (2, 4, 3), {"stride": 2, "padding": 1, "output_padding": 1}, (3, 2, 5)),
    ("MaxPool1d", (2,), {}, (2, 3, 7)),
    ("MaxPool1d", (3, 2, 1), {"ceil_mode": True}, (2, 3, 8)),
    ("MaxPool2d", (3, 2), {"ceil_mode": True}, (2, 2, 6, 7)),
    ("MaxPool2d", (2, 3, 1), {"ceil_mode": True, "dilation": 2}, (2, 2, 8, 9)),
    ("AvgPool1d", (3, 2, 1), {}, (2, 3, 7)),
    ("AvgPool1d", (3, 2, 1, True, False), {}, (2, 3, 8)),
    ("AvgPool2d", (3, 2, 1), {"ceil_mode": True}, (2, 2, 6, 7)),
    ("AvgPool2d", (3, 2, 1), {"ceil_mode": True, "count_include_pad": False}, (2, 2, 6, 7)),
    ("AvgPool2d", ((2, 3), 1, 1), {"count_include_pad": False}, (2, 2, 6, 7)),
    ("AvgPool2d", (3,), {"divisor_override": 5}, (2, 2, 6, 7)),
    ("AdaptiveAvgPool1d", (3,), {}, (2, 3, 7)),
    ("AdaptiveMaxPool1d", (3,), {}, (2, 3, 7)),
    ("AdaptiveMaxPool2d", ((2, 3),), {}, (2, 2, 5, 6)),
    ("BatchNorm3d", (3,), {}, (2, 3, 2, 2, 2)),
    ("InstanceNorm1d", (3,), {"affine": True}, (2, 3, 4)),
    ("InstanceNorm2d", (3,), {}, (2, 3, 4, 4)),
    ("InstanceNorm2d", (3,), {"track_running_stats": True, "momentum": 0.3}, (2, 3, 4, 4)),
    ("InstanceNorm2d", (3,), {}, (3, 4, 4)),
    ("InstanceNorm3d", (3,), {}, (2, 3, 2, 2, 2)),
    ("LocalResponseNorm", (3, 1e-2, 0.6, 1.5), {}, (2, 5, 3, 3)),
    ("LocalResponseNorm", (2,), {}, (2, 5, 3)),
    ("ConstantPad1d", ((2, 1), 3.5), {}, (2, 3, 4)),
    ("ConstantPad2d", ((2, -1, 0, 1), -1.0), {}, (2, 3, 4, 4)),
    ("ZeroPad1d", (2,), {}, (2, 3, 4)),
    ("ZeroPad2d", ((1, 2, 3, 0),), {}, (2, 3, 4, 4)),
    ("ReflectionPad1d", ((3, 1),), {}, (2, 3, 4)),
    ("ReflectionPad2d", (2,), {}, (2, 3, 4, 5)),
    ("ReflectionPad2d", ((1, 2, 0, 3),), {}, (2, 4, 5)),
    ("ReplicationPad1d", ((6, 1),), {}, (2, 3, 4)),
    ("ReplicationPad2d", ((1, 2, 0, 3),), {}, (2, 3, 4, 5)),
    ("CircularPad1d", ((3, 1),), {}, (2, 3, 4)),
    ("CircularPad2d", ((1, 2, 0, 3),), {}, (2, 3, 4, 5)),
    ("Upsample", (), {"scale_factor": 2}, (2, 2, 3, 4)),
    ("Upsample", ((5, 3),), {"mode": "nearest-exact"}, (2, 2, 3, 4)),
    ("Upsample", (None, (1.5, 2.5), "bilinear"), {}, (2, 2, 3, 4)),
    ("Upsample", (7, None, "linear", True), {}, (2, 2, 3)),
    ("UpsamplingNearest2d", ((5, 8),), {}, (2, 2, 3, 4)),
    ("UpsamplingBilinear2d", (), {"scale_factor": 2}, (2, 2, 3, 4)),
    ("PixelShuffle", (2,), {}, (2, 8, 3, 4)),
    ("PixelUnshuffle", (2,), {}, (2, 2, 4, 6)),
    ("ChannelShuffle", (2,), {}, (2, 6, 2)),
    ("Unfold", ((2, 3),), {"dilation": (1, 2), "padding": 1, "stride": 2}, (2, 3, 5, 6)),
    ("Fold", ((5, 6), (2, 3), (1, 2), 1, 2), {}, (2, 18, 6)),
    ("Fold", (4, 2), {}, (12, 9)),
]


IDS = [f"{name}{i}" for i, (name, *_) in enumerate(LAYERS)]


# Losses and measures of several inputs: name, options, shapes of the inputs, the last one's kind
OF_SEVERAL: list[tuple[str, dict[str, Any], list[tuple[int, ...]], str]] = [
    ("CosineSimilarity", {"dim": -1}, [(5, 4), (5, 4)], "numbers"),
    ("CosineSimilarity", {"dim": 0}, [(5, 4), (1, 4)], "numbers"),
    ("CosineSimilarity", {"dim": 1}, [(3, 5, 4), (4,)], "numbers"),
    ("PairwiseDistance", {"p": 2, "keepdim": True}, [(5, 4), (5, 4)], "numbers"),
    ("PairwiseDistance", {"p": 1}, [(5, 4), (5, 4)], "numbers"),
    ("Bilinear", {"in1_features": 3, "in2_features": 4, "out_features": 2}, [(5, 3), (5, 4)], ""),
    ("MarginRankingLoss", {"margin": 0.3}, [(5,), (5,), (5,)], "signs"),
    ("CosineEmbeddingLoss", {"margin": 0.1}, [(5, 4), (5, 4), (5,)], "signs"),
    ("TripletMarginLoss", {"margin": 0.5, "swap": True}, [(5, 4)] * 3, "numbers"),
    ("TripletMarginLoss", {"p": 1, "reduction": "none"}, [(5, 4)] * 3, "numbers"),
    ("TripletMarginWithDistanceLoss", {"margin": 2.0}, [(5, 4)] * 3, "numbers"),
    ("GaussianNLLLoss", {"full": True}, [(5, 4), (5, 4), (5, 4)], "probabilities"),
    ("GaussianNLLLoss", {"reduction": "sum"}, [(5, 4), (5, 4), (5, 1)], "probabilities"),
]


# Layers whose tests are not by these tables: in which file each is named
ELSEWHERE = {
    "test_containers.py": {
        "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict",
    },
    "test_rnn.py": {"RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"},
    "test_attention.py": {"MultiheadAttention"},
    "test_lazy.py": {
        "LazyLinear", "LazyConv1d", "LazyConv2d", "LazyConvTranspose1d", "LazyConvTranspose2d",
        "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyInstanceNorm1d",
        "LazyInstanceNorm2d", "LazyInstanceNorm3d",
    },
    "test_transformer.py": {
        "TransformerEncoderLayer", "TransformerDecoderLayer", "TransformerEncoder",
        "TransformerDecoder", "Transformer",
    },
    "test_module.py": {"Module"},
    "test_dropout.py": {
        "AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "RReLU",
    },
    "test_embedding.py": {"Embedding", "EmbeddingBag"},
    "test_layer_behaviour.py": {"MaxUnpool2d"},
    "test_losses.py": {"CTCLoss"},
}  # fmt: skip


# What PyTorch computes with float32 constants in float64 too
ROUNDED = {"CELU": 1e-6, "Hardsigmoid": 1e-6}


@pytest.mark.parametrize(("name", "args", "options", "shape"), LAYERS, ids=IDS)
def test_equals_pytorch(rng, name, args, options, shape):
    ours, theirs = make_twins(name, *args, **options)
    agree = partial(assert_like_torch, rtol=ROUNDED.get(name, 1e-9))
    for train in (True, True, False):  # twice, as running statistics move
        x = rng.standard_normal(shape)
        ours.train(train)
        theirs.train(train)
        agree(ours, theirs, x)
        ours.zero_grad()
        theirs.zero_grad()
        (ours(tinytorch.tensor(x, requires_grad=True)) ** 3).sum().backward()
        (theirs(torch.tensor(x, requires_grad=True)) ** 3).sum().backward()
        parameters = dict(theirs.named_parameters())
        assert [n for n, _ in ours.named_parameters()] == list(parameters)
        for key, parameter in ours.named_parameters():
            expected = parameters[key].grad
            np.testing.assert_allclose(parameter.grad.numpy(), expected, rtol=1e-9, atol=1e-9)
        for key, value in theirs.state_dict().items():
            np.testing.assert_allclose(ours.state_dict()[key].numpy(), value, rtol=1e-9)


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (nn.Linear(2, 3, bias=False), "in_features=2, out_features=3, bias=False"),
        (
            nn.Conv2d(2, 4, 3, 2, 1, dilation=2, groups=2, bias=False),
            "2, 4, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), dilation=(2, 2), groups=2, "
            "bias=False",
        ),
        (nn.Conv1d(2, 4, 3, padding="same"), "2, 4, kernel_size=(3,), stride=(1,), padding='same'"),
        (nn.AvgPool2d(3, padding=1), "kernel_size=3, stride=3, padding=1"),
        (nn.AdaptiveAvgPool2d((2, None)), "output_size=(2, None)"),
        (nn.LayerNorm(3), "(3,), eps=1e-05, elementwise_affine=True, bias=True"),
        (nn.RMSNorm((2, 3)), "(2, 3), eps=None, elementwise_affine=True"),
        (nn.GroupNorm(2, 4, affine=False), "2, 4, eps=1e-05, affine=False"),
        (nn.Embedding(5, 2, -1), "5, 2, padding_idx=4"),
        (nn.LeakyReLU(), "negative_slope=0.01"),
        (nn.PReLU(3), "num_parameters=3"),
        (nn.ELU(), "alpha=1.0"),
        (nn.GELU(), "approximate='none'"),
        (nn.Hardtanh(), "min_val=-1.0, max_val=1.0"),
        (nn.Softplus(), "beta=1.0, threshold=20.0"),
        (nn.Softmax(-1), "dim=-1"),
        (nn.LogSoftmax(1), "dim=1"),
    ],
)
def test_text(layer, text):
    assert repr(layer).partition("  #")[0] == f"{type(layer).__name__}({text})"


@pytest.mark.parametrize("name", ["Linear", "Conv2d", "Conv1d"])
def test_initial_values_are_distributed_as_pytorchs(name):
    torch.manual_seed(0)
    args = (100, 500) if name == "Linear" else (20, 500, 3)
    bound = {"Linear": 100, "Conv2d": 20 * 9, "Conv1d": 20 * 3}[name] ** -0.5
    for layer in (getattr(nn, name)(*args), getattr(torch.nn, name)(*args)):
        for parameter in layer.parameters():
            values = parameter.detach().numpy()
            assert values.dtype == np.float32
            assert 0.98 * bound < np.abs(values).max() <= bound
            assert abs(values.mean()) < 0.1 * bound
            # of 500 evenly distributed numbers the deviation is known to some 2 %
            assert values.std() == pytest.approx(bound / np.sqrt(3), rel=0.1)


@pytest.mark.parametrize(("name", "options", "shapes", "kind"), OF_SEVERAL)
def test_layers_of_several_inputs_equal_pytorch(agree, rng, name, options, shapes, kind):
    ours, theirs = make_twins(name, **options)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    if kind in ("signs", "probabilities"):
        arrays[-1] = np.sign(arrays[-1]) if kind == "signs" else rng.random(shapes[-1]) + 0.1
    agree(ours, theirs, *arrays)


def test_every_layer_is_in_a_table():
    tables = {name for name, *_ in (*LAYERS, *LOSSES, *OF_SEVERAL)}.union(*ELSEWHERE.values())
    exported = {
        n for n in nn.__all__ if isinstance(v := getattr(nn, n), type) and issubclass(v, nn.Module)
    }
    missing = sorted(exported - tables)
    assert not missing, f"add a row for {missing} to LAYERS, LOSSES or OF_SEVERAL of {__file__}"
    assert not tables - exported
    for file, names in ELSEWHERE.items():
        text = (Path(__file__).parent / file).read_text()
        unnamed = [n for n in names if not re.search(rf"(\b(nn|m|module)\.{n}\(|\"{n}\")", text)]
        assert not unnamed, f"{file} does not test {unnamed}"
