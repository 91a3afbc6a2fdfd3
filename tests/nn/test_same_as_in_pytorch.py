"""Layers and losses with every argument of their constructors give what PyTorch's give.

Both have the same parameters, and run in training and in evaluation: outputs, gradients of inputs
and of parameters, and buffers are compared.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tests.changed_arguments import arrays_of, difference
from tests.nn.test_refused_as_in_pytorch import LAYERS as SOME_LAYERS

RNG = np.random.default_rng(1)
Arrays = list[Any]


def _f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def _p(*shape: int) -> Any:
    return RNG.random(shape).astype(np.float32)


def _signs(*shape: int) -> Any:
    return np.sign(_f(*shape))


MATRIX, SIGNAL, IMAGE = [_f(5, 4)], [_f(2, 4, 8)], [_f(2, 4, 8, 8)]
PAIR, LABELLED = [_f(3, 4), _f(3, 4)], [_f(3, 4), RNG.integers(0, 4, 3)]
ACTIVATIONS = (
    *("ELU", "CELU", "SELU", "GELU", "Hardtanh", "Hardswish", "Hardsigmoid", "LeakyReLU"),
    *("LogSigmoid", "Mish", "ReLU", "ReLU6", "SiLU", "Sigmoid", "Softplus", "Softshrink"),
    *("Hardshrink", "Softsign", "Tanh", "Tanhshrink", "Identity", "PReLU"),
)
LAYERS: dict[str, tuple[tuple[Any, ...], dict[str, Any], Arrays]] = {
    **{name: case for name, case in SOME_LAYERS.items() if name not in ("Dropout", "RReLU")},
    **{name: ((), {}, MATRIX) for name in ACTIVATIONS},
    **{name: ((4, 6, 3), {}, SIGNAL) for name in ("Conv1d", "ConvTranspose1d")},
    **{name: ((4, 6, 3), {}, IMAGE) for name in ("Conv2d", "ConvTranspose2d")},
    **{name: ((3,), {}, SIGNAL) for name in ("AdaptiveAvgPool1d", "AdaptiveMaxPool1d")},
    **{name: ((3,), {}, IMAGE) for name in ("AdaptiveAvgPool2d", "AdaptiveMaxPool2d")},
    **{name: ((2,), {}, SIGNAL) for name in ("MaxPool1d", "AvgPool1d")},
    **{name: ((1,), {}, IMAGE) for name in ("ZeroPad2d", "ReplicationPad2d", "CircularPad2d")},
    **{name: ((), {"dim": 1}, MATRIX) for name in ("Softmax", "LogSoftmax", "Softmin")},
    **{name: ((), {}, PAIR) for name in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss")},
    **{name: ((), {}, LABELLED) for name in ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss")},
    **{
        name: ((), {}, [_f(3, 4), _signs(3, 4)])
        for name in ("HingeEmbeddingLoss", "SoftMarginLoss")
    },
    "RNN": ((4, 3), {}, [_f(6, 2, 4)]),
    "RNNCell": ((4, 3), {}, [_f(2, 4)]),
    "InstanceNorm1d": ((4,), {}, SIGNAL),
    "InstanceNorm2d": ((4,), {}, IMAGE),
    "LocalResponseNorm": ((2,), {}, IMAGE),
    "Threshold": ((0.1, 2.0), {}, MATRIX),
    "Softmax2d": ((), {}, IMAGE),
    "ConstantPad1d": ((1, 0.5), {}, SIGNAL),
    "ConstantPad2d": ((1, 2.0), {}, IMAGE),
    "ReflectionPad1d": ((1,), {}, SIGNAL),
    "ChannelShuffle": ((2,), {}, IMAGE),
    "Fold": (((4, 4), 2), {"stride": 2}, [_f(2, 12, 4)]),
    "UpsamplingNearest2d": ((), {"scale_factor": 2}, IMAGE),
    "UpsamplingBilinear2d": ((), {"scale_factor": 2}, IMAGE),
    "PoissonNLLLoss": ((), {}, [_f(3, 4), _p(3, 4)]),
    "GaussianNLLLoss": ((), {}, [_f(3, 4), _f(3, 4), _p(3, 4)]),
    "MarginRankingLoss": ((), {}, [_f(4), _f(4), _signs(4)]),
    "CosineEmbeddingLoss": ((), {}, [_f(3, 4), _f(3, 4), _signs(3)]),
    "TripletMarginLoss": ((), {}, [_f(3, 4), _f(3, 4), _f(3, 4)]),
    "MultiLabelSoftMarginLoss": ((), {}, [_f(3, 4), _p(3, 4).round()]),
    "BCELoss": ((), {}, [_p(3, 4), _p(3, 4)]),
    "BCEWithLogitsLoss": ((), {}, [_f(3, 4), _p(3, 4)]),
    "KLDivLoss": ((), {}, [_f(3, 4), _p(3, 4)]),
    "Transformer": ((8, 2, 1, 1, 16), {"dropout": 0.0}, [_f(5, 2, 8), _f(6, 2, 8)]),
}
#: Whose dropout is not 0 without an argument.
WITHOUT_DROPOUT = ("TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer")
#: Which numbers are others on purpose.
OTHER = {
    ("Softplus", "beta=0"): "0/0",
    ("CosineSimilarity", "eps=1"): "lengths below eps: PyTorch's gradient ignores the bound",
    ("CosineSimilarity", "eps=2"): "as above",
    ("CosineSimilarity", "eps=3"): "as above",
    ("CosineSimilarity", "eps=2.5"): "as above",
}
WORDS = ("sum", "none", "batchmean", "zeros", "reflect", "replicate", "circular", "tanh", "relu")
NOT_CALLED = ("self", "device", "dtype", "generator", "custom_encoder", "custom_decoder")


def _in_place_of(default: Any) -> tuple[Any, ...]:
    if default is inspect.Parameter.empty:
        return ()
    if isinstance(default, bool):
        return (not default,)
    if isinstance(default, str):
        return WORDS
    if isinstance(default, (int, float)):
        return (0, 1, 2, 3, -1, 0.5, 2.5, 0.1)
    if isinstance(default, tuple):
        return (1, 2)
    return (1, 2, 3, -1, 0.5, True, "sum", (2, 2), np.linspace(0.5, 2, 4, dtype=np.float32))


def _calls(name: str) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    args, options, _ = LAYERS[name]
    if name in WITHOUT_DROPOUT:
        options = {"dropout": 0.0, **options}
    yield "as it is", args, options
    of_class = inspect.signature(getattr(tinytorch.nn, name)).parameters.values()
    for i, parameter in enumerate(of_class):
        if parameter.name in NOT_CALLED or "dropout" in parameter.name:
            continue
        for value in _in_place_of(parameter.default):
            what = f"{parameter.name}={'array' if isinstance(value, np.ndarray) else value}"
            if i < len(args):
                yield what, (*args[:i], value, *args[i + 1 :]), options
            else:
                yield what, args, {**options, parameter.name: value}


def _layer(library: Any, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    given = {
        k: library.from_numpy(v.copy()) if isinstance(v, np.ndarray) else v
        for k, v in options.items()
    }
    return getattr(library.nn, name)(*args, **given)


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [t for each in value for t in _tensors(each)]
    return [] if value is None else [value]


def _run(library: Any, layer: Any, inputs: Arrays) -> list[Any]:
    """Outputs, gradients of the first input and the parameters, buffers."""
    tensors = [library.from_numpy(x.copy()) for x in inputs]
    if tensors[0].is_floating_point():
        tensors[0].requires_grad_(True)
    outputs = _tensors(layer(*tensors))
    rng = np.random.default_rng(3)
    total: Any = 0.0
    for out in outputs:
        if out.requires_grad:
            seed = np.asarray(rng.standard_normal(tuple(out.shape)), np.float32)
            total = total + (out * library.from_numpy(seed)).sum()
    if not isinstance(total, float):
        total.backward()
    leaves = [tensors[0], *(p for _, p in sorted(layer.named_parameters()))]
    buffers = [b for _, b in sorted(layer.named_buffers())]
    found = [*outputs, *(leaf.grad for leaf in leaves), *buffers]
    return arrays_of(found)


def _pair(name: str, args: tuple[Any, ...], options: dict[str, Any], training: bool) -> Any:
    """What both give; None where one refuses, which is the subject of other tests."""
    try:
        theirs = _layer(torch, name, args, options).train(training)
        ours = _layer(tinytorch, name, args, options).train(training)
        state = {k: np.array(v.numpy()) for k, v in theirs.state_dict().items()}
        ours.load_state_dict({k: tinytorch.from_numpy(v) for k, v in state.items()})
        inputs = LAYERS[name][2]
        return _run(tinytorch, ours, inputs), _run(torch, theirs, inputs)
    except Exception:
        return None


@pytest.mark.parametrize("name", LAYERS)
def test_every_argument_means_the_same(name: str) -> None:
    other, count = [], 0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for what, args, options in _calls(name):
            for training in (True, False):
                found = _pair(name, args, options, training)
                if found is None:
                    assert what != "as it is"
                    continue
                count += 1
                wrong = difference(*found, 2e-3, 2e-4)
                if wrong and (name, what) not in OTHER:
                    other.append(f"{what}, training {training}: {wrong}")
    assert count >= 2
    assert not other, "\n".join(other)
