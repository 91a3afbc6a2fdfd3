"""Every layer against PyTorch's of the same name, with the same parameters by the same names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

import tinytorch
import tinytorch.nn.functional as F
from tests.nn.twins import make_twins
from tests.torch_compare import assert_like_torch
from tinytorch import nn

# name, constructor arguments, shape of the input
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


# Functions that have options of PyTorch's later positions by keyword only
KEYWORDS_ONLY = {"cross_entropy", "nll_loss"}


# Arguments of PyTorch's that are deprecated, of its own use, or of code that it compiles
LEGACY = {"size_average", "reduce", "_stacklevel", "args", "kwargs", "_weight", "_freeze", "out",
          "min_value", "max_value"}  # fmt: skip


IDS = [f"{name}{i}" for i, (name, *_) in enumerate(LAYERS)]


LOSSES: list[tuple[str, dict[str, Any], str]] = [
    ("MSELoss", {}, "numbers"),
    ("L1Loss", {"reduction": "sum"}, "numbers"),
    ("HuberLoss", {"delta": 0.3}, "numbers"),
    ("SmoothL1Loss", {"beta": 0.3}, "numbers"),
    ("BCEWithLogitsLoss", {"pos_weight": np.array([1.0, 2, 3, 4])}, "probabilities"),
    ("BCELoss", {"weight": np.array([1.0, 2, 3, 4])}, "probabilities"),
    ("KLDivLoss", {"reduction": "batchmean", "log_target": True}, "numbers"),
    ("CrossEntropyLoss", {}, "classes"),
    (
        "CrossEntropyLoss",
        {"weight": np.array([1.0, 2, 3, 4]), "ignore_index": 2, "label_smoothing": 0.1},
        "classes",
    ),
    ("CrossEntropyLoss", {"reduction": "none"}, "probabilities"),
    ("NLLLoss", {"weight": np.array([1.0, 2, 3, 4]), "reduction": "sum"}, "classes"),
    ("SoftMarginLoss", {}, "signs"),
    ("HingeEmbeddingLoss", {"margin": 0.7}, "signs"),
    ("MultiLabelSoftMarginLoss", {"weight": np.array([1.0, 2, 3, 4])}, "probabilities"),
    ("MultiMarginLoss", {"p": 2, "margin": 0.5, "weight": np.array([1.0, 2, 3, 4])}, "classes"),
    ("MultiMarginLoss", {"reduction": "none"}, "classes"),
    ("PoissonNLLLoss", {"full": True}, "counts"),
    ("PoissonNLLLoss", {"log_input": False, "reduction": "sum"}, "counts"),
]


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
    "test_embedding.py": {"Embedding"},
    "test_layers.py": {"MaxUnpool2d", "CTCLoss"},
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


@pytest.mark.parametrize(("name", "options", "kind"), LOSSES)
def test_losses_equal_pytorch(agree, rng, name, options, kind):
    target = {
        "numbers": rng.standard_normal((5, 4)),
        "probabilities": rng.random((5, 4)),
        "classes": np.array([0, 3, 2, 1, 1]),
        "signs": np.sign(rng.standard_normal((5, 4))),
        "counts": rng.integers(0, 6, (5, 4)).astype(float),
    }[kind]

    def made(module: Any, as_tensor: Callable[..., Any]) -> Any:
        return getattr(module, name)(
            **{k: as_tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        )

    positive = name == "BCELoss" or options.get("log_input") is False
    x = rng.random((5, 4)) if positive else rng.standard_normal((5, 4))
    ours, theirs = made(nn, tinytorch.tensor), made(torch.nn, torch.tensor)
    if kind in ("signs", "counts"):  # PyTorch has no gradient for these targets, or a wrong one
        fixed, their_fixed = tinytorch.tensor(target), torch.tensor(target)
        agree(lambda x: ours(x, fixed), lambda x: theirs(x, their_fixed), x)
    else:
        agree(ours, theirs, x, target)


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


def test_signatures_are_pytorchs():
    """The same names in the same order; what PyTorch calls deprecated may be left out."""
    legacy, different = LEGACY, []
    for name in nn.__all__:
        ours, theirs = getattr(nn, name), getattr(torch.nn, name, None)
        if isinstance(ours, type) and issubclass(ours, nn.Module) and theirs is not None:
            mine, wanted = (list(inspect.signature(c).parameters) for c in (ours, theirs))
            wanted = [n for n in wanted if n not in legacy]
            if mine[: len(wanted)] != wanted and name not in ("Sequential", "Module"):
                different.append((name, mine, wanted))
    assert different == []


def test_functions_have_pytorchs_arguments():
    legacy, different = LEGACY, []
    for name in F.__all__:
        theirs = getattr(TF, name)
        try:
            wanted = [n for n in inspect.signature(theirs).parameters if n not in legacy]
        except ValueError:  # a builtin
            continue
        if wanted in (["args", "kwargs"], []):
            continue
        mine = list(inspect.signature(getattr(F, name)).parameters)
        if mine[1 : len(wanted)] != wanted[1:] and name not in KEYWORDS_ONLY:
            different.append((name, mine, wanted))
    assert different == []


def test_class_weights_are_buffers_and_follow_the_dtype():
    loss = nn.CrossEntropyLoss(tinytorch.tensor([1.0, 2.0]))
    assert list(loss.state_dict()) == ["weight"]
    assert loss.double().weight.dtype is tinytorch.float64
    assert list(nn.CrossEntropyLoss().state_dict()) == []


def test_losses_check_the_reduction_at_once():
    with pytest.raises(ValueError, match="reduction must be one of none, mean, sum, not 'avg'"):
        nn.MSELoss("avg")
    assert repr(nn.MSELoss("sum")) == "MSELoss(reduction='sum')"


def test_max_pooling_with_indices_and_back(agree, rng):
    for options in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}):
        x = rng.standard_normal((2, 3, 7, 6))
        ours, theirs = (m.MaxPool2d(**options, return_indices=True) for m in (nn, torch.nn))
        out, places = ours(tinytorch.tensor(x))
        expected, expected_places = theirs(torch.tensor(x))
        np.testing.assert_array_equal(out.numpy(), expected)
        np.testing.assert_array_equal(places.numpy(), expected_places)
        index = expected_places.numpy()
        back, their_back = (m.MaxUnpool2d(**options) for m in (nn, torch.nn))
        agree(
            lambda v, b=back, i=index: b(v, tinytorch.tensor(i), (7, 6)),
            lambda v, b=their_back, i=index: b(v, torch.tensor(i), (7, 6)),
            expected.numpy(),
        )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("flat", [False, True])
def test_ctc_equals_pytorch(agree, rng, reduction, flat):
    spans, sizes = [12, 9, 7], [4, 0, 3]
    targets = rng.integers(1, 5, (3, 4))
    targets[0, 1] = targets[0, 0]  # the same label twice needs a blank between
    if flat:
        targets = np.concatenate([row[:n] for row, n in zip(targets, sizes, strict=True)])

    def loss(module, tensor, log_softmax):
        criterion = module.CTCLoss(reduction=reduction)
        return lambda x: criterion(log_softmax(x, 2), tensor(targets), tensor(spans), tensor(sizes))

    agree(
        loss(nn, tinytorch.tensor, F.log_softmax),
        loss(torch.nn, torch.tensor, TF.log_softmax),
        rng.standard_normal((12, 3, 5)),
    )


def test_ctc_of_a_target_that_is_too_long(rng):
    x = rng.standard_normal((2, 1, 3))
    for zero_infinity, expected in ((False, np.inf), (True, 0.0)):
        loss = nn.CTCLoss(zero_infinity=zero_infinity)
        logits = tinytorch.tensor(x, requires_grad=True)
        out = loss(F.log_softmax(logits, 2), tinytorch.tensor([[1, 2, 1]]), [2], [3])
        assert out.item() == expected
        if zero_infinity:
            out.backward()
            assert not logits.grad.numpy().any()


def test_an_empty_batch_leaves_running_statistics_alone():
    layer = nn.BatchNorm1d(3)
    layer(tinytorch.randn(4, 3))
    before = [b.tolist() for b in layer.buffers()]
    x = tinytorch.zeros(0, 3, requires_grad=True)
    out = layer(x)
    out.sum().backward()
    assert out.shape == (0, 3) and x.grad.shape == (0, 3)
    assert [b.tolist() for b in layer.buffers()] == before


def test_transposed_convolution_to_a_given_size(agree, rng):
    ours, theirs = make_twins("ConvTranspose2d", 2, 3, 3, 2, 1)
    x = rng.standard_normal((1, 2, 4, 4))
    agree(lambda x: ours(x, (8, 7)), lambda x: theirs(x, output_size=(8, 7)), x)
    with pytest.raises(ValueError, match=r"output_size \(9, 7\) must be from \(7, 7\)"):
        ours(tinytorch.tensor(x), (9, 7))


@pytest.mark.parametrize(("size", "mode"), [(1, "nearest"), (2, "nearest"), (2, "bilinear")])
def test_an_image_that_keeps_its_size_is_copied(size, mode):
    x = tinytorch.ones(1, 1, size, size)
    resized = nn.Upsample((2, 2), mode=mode)(x)
    x += 5
    resized[0, 0, 0] *= 3
    assert resized.tolist() == [[[[3, 3], [1, 1]]]]


def test_batch_norm_resets():
    layer = nn.BatchNorm1d(2)
    layer(tinytorch.randn(5, 2) * 3 + 7)
    assert layer.num_batches_tracked.item() == 1
    layer.reset_parameters()
    assert layer.running_mean.tolist() == [0, 0]
    assert layer.running_var.tolist() == [1, 1]
    assert layer.num_batches_tracked.item() == 0


@pytest.mark.parametrize("layer", [nn.LayerNorm(3), nn.GroupNorm(1, 3), nn.RMSNorm(3)])
def test_norms_reset(layer):
    with tinytorch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(5)
    layer.reset_parameters()
    assert layer.weight.tolist() == [1, 1, 1]


@pytest.mark.parametrize("layer", [nn.Linear(4, 3), nn.Conv2d(1, 2, 3), nn.Embedding(5, 2)])
def test_layers_draw_anew(layer):
    before = layer.weight.tolist()
    layer.reset_parameters()
    assert layer.weight.tolist() != before


@pytest.mark.parametrize(
    ("layer", "shape", "text"),
    [
        (nn.BatchNorm1d(3), (2, 3, 4, 4), r"BatchNorm1d: .* 2 or 3 dimensions and 3 channels"),
        (nn.BatchNorm2d(3), (2, 4, 4, 4), r"BatchNorm2d: .* 4 dimensions and 3 .*\(2, 4, 4, 4\)"),
        (nn.Linear(3, 2), (5, 4), r"linear: input \(5, 4\) and weight \(2, 3\) do not fit"),
        (nn.Conv2d(3, 2, 3), (1, 1, 5, 5), r"input \(1, 1, 5, 5\) and weight \(2, 3, 3, 3\)"),
    ],
)
def test_inputs_that_do_not_fit(layer, shape, text):
    with pytest.raises(tinytorch.ShapeError, match=text):
        layer(tinytorch.ones(*shape))


def test_arguments_that_do_not_fit():
    with pytest.raises(ValueError, match="Conv2d: in_channels 3 and out_channels 4 must be mul"):
        nn.Conv2d(3, 4, 3, groups=2)
    with pytest.raises(ValueError, match="GroupNorm: 5 channels do not make 2 groups"):
        nn.GroupNorm(2, 5)


def test_layers_take_a_dtype():
    for layer in (
        nn.Linear(2, 3, dtype="float64"),
        nn.Conv2d(1, 1, 1, dtype="float64"),
        nn.Conv1d(1, 1, 1, dtype="float64"),
        nn.BatchNorm1d(2, dtype="float64"),
        nn.LayerNorm(2, dtype="float64"),
        nn.RMSNorm(2, dtype="float64"),
        nn.GroupNorm(1, 2, dtype="float64"),
        nn.Embedding(2, 2, dtype="float64"),
    ):
        tensors = [*layer.parameters(), *layer.buffers()]
        assert {t.dtype for t in tensors} <= {tinytorch.float64, tinytorch.int64}
