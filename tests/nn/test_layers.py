"""Every layer against PyTorch's of the same name, with the same parameters by the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
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
]
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
]


def _twins(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[nn.Module, Any]:
    """Our layer and PyTorch's, in float64, ours with the parameters of the other."""
    theirs = getattr(torch.nn, name)(*args, **options).double()
    ours = getattr(nn, name)(*args, **options).double()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
            )
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return ours, theirs


@pytest.mark.parametrize(("name", "args", "options", "shape"), LAYERS, ids=IDS)
def test_equals_pytorch(agree, rng, name, args, options, shape):
    ours, theirs = _twins(name, args, options)
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
        (nn.Conv1d(2, 4, 3, padding="same"), "2, 4, kernel_size=(3,), stride=1, padding='same'"),
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
    }[kind]

    def made(module: Any, as_tensor: Callable[..., Any]) -> Any:
        return getattr(module, name)(
            **{k: as_tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        )

    x = rng.random((5, 4)) if name == "BCELoss" else rng.standard_normal((5, 4))
    agree(made(nn, tinytorch.tensor), made(torch.nn, torch.tensor), x, target)


def test_class_weights_are_buffers_and_follow_the_dtype():
    loss = nn.CrossEntropyLoss(tinytorch.tensor([1.0, 2.0]))
    assert list(loss.state_dict()) == ["weight"]
    assert loss.double().weight.dtype is tinytorch.float64
    assert list(nn.CrossEntropyLoss().state_dict()) == []


def test_losses_check_the_reduction_at_once():
    with pytest.raises(ValueError, match="reduction must be one of none, mean, sum, not 'avg'"):
        nn.MSELoss("avg")
    assert repr(nn.MSELoss("sum")) == "MSELoss(reduction='sum')"


def test_embedding_equals_pytorch(agree):
    index = np.array([[1, 0], [4, 0]])
    for padding in (None, 0, -1):
        ours, theirs = _twins("Embedding", (5, 3), {"padding_idx": padding})
        out, expected = ours(tinytorch.tensor(index)), theirs(torch.tensor(index))
        (out**2).sum().backward()
        (expected**2).sum().backward()
        np.testing.assert_allclose(out.detach().numpy(), expected.detach())
        np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad)


def test_the_padding_row_starts_at_zero():
    weight = nn.Embedding(100, 50, padding_idx=-2).weight.detach().numpy()
    assert not weight[98].any()
    assert weight.std() == pytest.approx(1, rel=0.05)
    with pytest.raises(ValueError, match="padding_idx 5 is out of range: there are 5 rows"):
        nn.Embedding(5, 3, padding_idx=5)


def test_dropout_layers_drop_in_training_only():
    for layer in (nn.Dropout(0.4), nn.Dropout2d(0.4)):
        x = tinytorch.ones(4, 8, 2, 2)
        dropped = (layer(x) == 0).sum().item()
        assert 0 < dropped < x.numel()
        assert layer.eval()(x) is x
    assert repr(nn.Dropout(0.4)) == "Dropout(p=0.4)"
    with pytest.raises(ValueError, match="dropout: p must be from 0 to 1, not 2"):
        nn.Dropout(2)


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
