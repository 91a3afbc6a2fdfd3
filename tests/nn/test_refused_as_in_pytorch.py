"""What PyTorch's layers and losses refuse, of arguments and of inputs, ours refuse too."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tests.changed_arguments import CRUDE, NO_KERNEL, changed, error_of

RNG = np.random.default_rng(0)


def _f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def _p(*shape: int) -> Any:
    return RNG.random(shape).astype(np.float32)


CONV = {"stride": 1, "padding": 1, "dilation": 1, "groups": 2}
TURNED = {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2, "dilation": 1}
LAYERS: dict[str, tuple[tuple[Any, ...], dict[str, Any], list[Any]]] = {
    "Linear": ((4, 3), {}, [_f(5, 4)]),
    "Bilinear": ((4, 3, 2), {}, [_f(5, 4), _f(5, 3)]),
    "Conv1d": ((4, 6, 3), CONV, [_f(2, 4, 8)]),
    "Conv2d": ((4, 6, 3), CONV, [_f(2, 4, 8, 8)]),
    "ConvTranspose1d": ((4, 6, 3), TURNED, [_f(2, 4, 8)]),
    "ConvTranspose2d": ((4, 6, 3), TURNED, [_f(2, 4, 8, 8)]),
    "MaxPool2d": ((2,), {"stride": 2, "padding": 1, "dilation": 1}, [_f(2, 4, 8, 8)]),
    "AvgPool2d": ((2,), {"stride": 2, "padding": 1}, [_f(2, 4, 8, 8)]),
    "BatchNorm1d": ((4,), {"eps": 1e-5, "momentum": 0.1}, [_f(5, 4)]),
    "BatchNorm2d": ((4,), {"eps": 1e-5, "momentum": 0.1}, [_f(5, 4, 3, 3)]),
    "LayerNorm": ((4,), {"eps": 1e-5}, [_f(5, 4)]),
    "RMSNorm": ((4,), {}, [_f(5, 4)]),
    "GroupNorm": ((2, 4), {}, [_f(5, 4, 3)]),
    "Embedding": ((10, 4), {"padding_idx": 1}, [RNG.integers(0, 10, (3, 5))]),
    "Dropout": ((0.5,), {}, [_f(5, 4)]),
    "LSTM": ((4, 3), {"num_layers": 2, "dropout": 0.0}, [_f(6, 2, 4)]),
    "GRU": ((4, 3), {"num_layers": 2, "dropout": 0.0}, [_f(6, 2, 4)]),
    "LSTMCell": ((4, 3), {}, [_f(2, 4)]),
    "GRUCell": ((4, 3), {}, [_f(2, 4)]),
    "MultiheadAttention": ((8, 2), {"dropout": 0.0}, [_f(5, 2, 8), _f(6, 2, 8), _f(6, 2, 8)]),
    "TransformerEncoderLayer": ((8, 2), {"dim_feedforward": 16}, [_f(5, 2, 8)]),
    "TransformerDecoderLayer": ((8, 2), {"dim_feedforward": 16}, [_f(5, 2, 8), _f(6, 2, 8)]),
    "Flatten": ((1, -1), {}, [_f(2, 3, 4)]),
    "Unflatten": ((1, (2, 2)), {}, [_f(3, 4)]),
    "Softmax": ((1,), {}, [_f(3, 4)]),
    "GLU": ((1,), {}, [_f(3, 4)]),
    "PReLU": ((4,), {}, [_f(3, 4)]),
    "Softplus": ((1.0, 20.0), {}, [_f(3, 4)]),
    "Softshrink": ((0.5,), {}, [_f(3, 4)]),
    "RReLU": ((0.1, 0.3), {}, [_f(3, 4)]),
    "PixelShuffle": ((2,), {}, [_f(2, 4, 3, 3)]),
    "PixelUnshuffle": ((2,), {}, [_f(2, 4, 4, 4)]),
    "Upsample": ((), {"scale_factor": 2.0, "mode": "nearest"}, [_f(2, 4, 3, 3)]),
    "ReflectionPad2d": ((1,), {}, [_f(2, 4, 3, 3)]),
    "Unfold": ((2,), {"dilation": 1, "padding": 0, "stride": 1}, [_f(2, 3, 4, 4)]),
    "CrossEntropyLoss": (
        (),
        {"weight": _p(4), "reduction": "mean", "label_smoothing": 0.1},
        [_f(3, 4), RNG.integers(0, 4, (3,))],
    ),
    "NLLLoss": ((), {"weight": _p(4)}, [_f(3, 4), RNG.integers(0, 4, (3,))]),
    "MSELoss": ((), {"reduction": "mean"}, [_f(3, 4), _f(3, 4)]),
    "SmoothL1Loss": ((), {"beta": 1.0}, [_f(3, 4), _f(3, 4)]),
    "HuberLoss": ((), {"delta": 1.0}, [_f(3, 4), _f(3, 4)]),
    "BCELoss": ((), {"reduction": "mean"}, [_p(3, 4), _p(3, 4)]),
    "BCEWithLogitsLoss": ((), {"pos_weight": _p(4)}, [_f(3, 4), _p(3, 4)]),
    "KLDivLoss": ((), {"reduction": "batchmean"}, [_f(3, 4), _p(3, 4)]),
    "CosineSimilarity": ((1,), {"eps": 1e-8}, [_f(3, 4), _f(3, 4)]),
    "PairwiseDistance": ((2.0,), {}, [_f(3, 4), _f(3, 4)]),
}
#: What is taken where PyTorch's refuses, on purpose or without harm.
TAKES_MORE = {
    ("BatchNorm1d", "eps: 0.0"): "the variance of a batch is seldom 0",
    ("BatchNorm2d", "eps: 0.0"): "the variance of a batch is seldom 0",
    ("Flatten", "input 0: a number"): "a vector of one, whatever the dimensions",
}


def _calls(name: str) -> Iterator[tuple[str, Any]]:
    args, options, inputs = LAYERS[name]
    for i, value in enumerate(args):
        for what, other in changed(value):
            yield f"argument {i}: {what}", ((*args[:i], other, *args[i + 1 :]), options, inputs)
    for key, value in options.items():
        for what, other in changed(value):
            yield f"{key}: {what}", (args, {**options, key: other}, inputs)
    for i, value in enumerate(inputs):
        for what, other in changed(value):
            yield f"input {i}: {what}", (args, options, [*inputs[:i], other, *inputs[i + 1 :]])


def _run(library: Any, name: str, call: Any) -> Any:
    args, options, inputs = call
    given = {
        k: library.from_numpy(v.copy()) if isinstance(v, np.ndarray) else v
        for k, v in options.items()
    }
    layer = getattr(library.nn, name)(*args, **given)
    return layer(*[library.from_numpy(x.copy()) for x in inputs])


@pytest.mark.parametrize("name", LAYERS)
def test_what_pytorch_refuses_is_refused(name: str) -> None:
    for library in (tinytorch, torch):
        _run(library, name, LAYERS[name])
    wrong = []
    for what, call in _calls(name):
        theirs = error_of(partial(_run, torch, name, call))
        if theirs is None or any(words in str(theirs) for words in NO_KERNEL):
            continue
        ours = error_of(partial(_run, tinytorch, name, call))
        if ((name, what) in TAKES_MORE) != (ours is None):
            wrong.append(f"{what}: {ours!r:.100}; PyTorch: {theirs!r:.150}")
        elif isinstance(ours, CRUDE):
            wrong.append(f"{what}: {ours!r:.150}")
    assert not wrong, "\n".join(wrong)
