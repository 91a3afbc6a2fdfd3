"""A line for every optimizer, schedule, layer and loss: how it is made, and on what it runs.

`test_exported` takes each through eager against compiled, `state_dict` and resume, and fails for an
exported class that has no line here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tinytorch
from tinytorch import nn, optim
from tinytorch.dtypes import Array

Draw = Callable[[np.random.Generator], Array]


def floats(*shape: int) -> Draw:
    return lambda rng: rng.standard_normal(shape).astype(np.float32)


def unit(*shape: int) -> Draw:
    """Between 0.05 and 0.95."""
    return lambda rng: rng.uniform(0.05, 0.95, shape).astype(np.float32)


def signs(*shape: int) -> Draw:
    return lambda rng: rng.choice([-1.0, 1.0], shape).astype(np.float32)


def ids(below: int, *shape: int) -> Draw:
    return lambda rng: rng.integers(0, below, shape)


def materialized(layer: nn.Module, draw: Draw) -> nn.Module:
    """A lazy layer that has its parameters, since it was called once."""
    layer(tinytorch.tensor(draw(np.random.default_rng(0))))
    return layer


# -- optimizers: options ---------------------------------------------------------------------------

OPTIMIZERS: dict[str, list[dict[str, Any]]] = {
    "ASGD": [{"lr": 0.05, "t0": 1.0, "weight_decay": 0.01}],
    "Adadelta": [{"lr": 0.5}, {"weight_decay": 0.01}],
    "Adagrad": [{"lr": 0.05}, {"lr_decay": 0.1, "initial_accumulator_value": 0.1}],
    "Adam": [{"lr": 0.01}, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.01}, {"maximize": True}],
    "AdamW": [{"lr": 0.01}, {"amsgrad": True}],
    "Adamax": [{"lr": 0.01}, {"weight_decay": 0.01}],
    "Muon": [{"lr": 0.05}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}],
    "NAdam": [{"lr": 0.01}, {"weight_decay": 0.01, "decoupled_weight_decay": True}],
    "RAdam": [{"lr": 0.01}, {"weight_decay": 0.01}],
    "RMSprop": [{"lr": 0.01}, {"momentum": 0.9, "centered": True}],
    "Rprop": [{"lr": 0.01}],
    "SGD": [
        {"lr": 0.05}, {"lr": 0.05, "momentum": 0.9, "nesterov": True},
        {"lr": 0.05, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01},
    ],
}  # fmt: skip
UNTRACED_OPTIMIZERS = {"LBFGS": "how often it evaluates the closure depends on values"}
NO_OPTIMIZERS = {"Optimizer"}
OF_MATRICES = {"Muon"}  # other parameters stay as they are

# -- schedules -------------------------------------------------------------------------------------

SCHEDULES: dict[str, Callable[[optim.Optimizer], Any]] = {
    "ChainedScheduler": lambda o: optim.lr_scheduler.ChainedScheduler(
        [optim.ExponentialLR(o, 0.9), optim.StepLR(o, 2)]
    ),
    "ConstantLR": lambda o: optim.lr_scheduler.ConstantLR(o, 0.5, 2),
    "CosineAnnealingLR": lambda o: optim.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 2),
    "CyclicLR": lambda o: optim.lr_scheduler.CyclicLR(o, 0.01, 0.1, 2, cycle_momentum=False),
    "ExponentialLR": lambda o: optim.ExponentialLR(o, 0.8),
    "LambdaLR": lambda o: optim.LambdaLR(o, lambda epoch: 0.9**epoch),
    "LinearLR": lambda o: optim.LinearLR(o, total_iters=3),
    "MultiStepLR": lambda o: optim.MultiStepLR(o, [1, 3]),
    "MultiplicativeLR": lambda o: optim.lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.9),
    "OneCycleLR": lambda o: optim.OneCycleLR(o, 0.1, total_steps=12, cycle_momentum=False),
    "PolynomialLR": lambda o: optim.lr_scheduler.PolynomialLR(o, 4),
    "ReduceLROnPlateau": lambda o: optim.ReduceLROnPlateau(o, patience=0, threshold=1.0),
    "SequentialLR": lambda o: optim.SequentialLR(
        o, [optim.LinearLR(o, total_iters=2), optim.ExponentialLR(o, 0.9)], [2]
    ),
    "StepLR": lambda o: optim.StepLR(o, 2, 0.5),
}
NO_SCHEDULES = {"LRScheduler"}

# -- layers: how they are made, and their inputs ---------------------------------------------------

Layer = tuple[Callable[[], nn.Module], tuple[Draw, ...]]
SIGNAL, IMAGE, VOLUME = floats(2, 4, 8), floats(2, 4, 6, 6), floats(2, 4, 2, 3, 3)

LAYERS: dict[str, list[Layer]] = {
    **{
        name: [(getattr(nn, name), (floats(3, 4),))]
        for name in (
            "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
            "Identity", "LeakyReLU", "LogSigmoid", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6",
            "SELU", "SiLU", "Sigmoid", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink",
            "AlphaDropout", "Dropout", "Flatten",
        )
    },
    **{
        name: [(lambda name=name: getattr(nn, name)(2), (IMAGE,))]
        for name in (
            "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "AvgPool2d", "MaxPool2d", "CircularPad2d",
            "ReflectionPad2d", "ReplicationPad2d", "ZeroPad2d", "ChannelShuffle", "PixelShuffle",
            "PixelUnshuffle", "LocalResponseNorm", "Unfold",
        )
    },
    **{
        name: [(lambda name=name: getattr(nn, name)(2), (SIGNAL,))]
        for name in (
            "AdaptiveAvgPool1d", "AdaptiveMaxPool1d", "AvgPool1d", "MaxPool1d", "CircularPad1d",
            "ReflectionPad1d", "ReplicationPad1d", "ZeroPad1d",
        )
    },
    **{
        name: [(lambda name=name: getattr(nn, name)(dim=1), (floats(3, 4),))]
        for name in ("LogSoftmax", "Softmax", "Softmin")
    },
    "BatchNorm1d": [(lambda: nn.BatchNorm1d(4), (floats(5, 4),))],
    "BatchNorm2d": [(lambda: nn.BatchNorm2d(4), (IMAGE,))],
    "BatchNorm3d": [(lambda: nn.BatchNorm3d(4), (VOLUME,))],
    "Bilinear": [(lambda: nn.Bilinear(3, 4, 2), (floats(5, 3), floats(5, 4)))],
    "ConstantPad1d": [(lambda: nn.ConstantPad1d(1, 0.5), (SIGNAL,))],
    "ConstantPad2d": [(lambda: nn.ConstantPad2d(1, 0.5), (IMAGE,))],
    "Conv1d": [(lambda: nn.Conv1d(4, 3, 3, padding=1), (SIGNAL,))],
    "Conv2d": [
        (lambda: nn.Conv2d(4, 3, 3, padding=1), (IMAGE,)),
        (lambda: nn.Conv2d(4, 4, 3, stride=2, groups=2), (IMAGE,)),
    ],
    "ConvTranspose1d": [(lambda: nn.ConvTranspose1d(4, 3, 3, 2), (SIGNAL,))],
    "ConvTranspose2d": [(lambda: nn.ConvTranspose2d(4, 3, 3, 2), (IMAGE,))],
    "CosineSimilarity": [(nn.CosineSimilarity, (floats(3, 4), floats(3, 4)))],
    "Dropout1d": [(nn.Dropout1d, (SIGNAL,))],
    "Dropout2d": [(nn.Dropout2d, (IMAGE,))],
    "Dropout3d": [(nn.Dropout3d, (VOLUME,))],
    "Embedding": [(lambda: nn.Embedding(6, 3), (ids(6, 2, 5),))],
    "EmbeddingBag": [
        (lambda: nn.EmbeddingBag(6, 3), (ids(6, 2, 5),)),
        (lambda: nn.EmbeddingBag(6, 3, mode="max", padding_idx=1), (ids(6, 2, 5),)),
    ],
    "Fold": [(lambda: nn.Fold(4, 2), (floats(1, 8, 9),))],
    "GroupNorm": [(lambda: nn.GroupNorm(2, 4), (IMAGE,))],
    "GRU": [(lambda: nn.GRU(4, 3, batch_first=True), (floats(2, 3, 4),))],
    "GRUCell": [(lambda: nn.GRUCell(4, 3), (floats(2, 4), floats(2, 3)))],
    "InstanceNorm1d": [(lambda: nn.InstanceNorm1d(4), (SIGNAL,))],
    "InstanceNorm2d": [
        (lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), (IMAGE,))
    ],
    "InstanceNorm3d": [(lambda: nn.InstanceNorm3d(4), (VOLUME,))],
    "LSTM": [(lambda: nn.LSTM(4, 3, batch_first=True), (floats(2, 3, 4),))],
    "LSTMCell": [(lambda: nn.LSTMCell(4, 3), (floats(2, 4),))],
    "LayerNorm": [(lambda: nn.LayerNorm(4), (floats(2, 3, 4),))],
    "Linear": [(lambda: nn.Linear(4, 3), (floats(5, 4),))],
    "MaxUnpool2d": [(lambda: nn.MaxUnpool2d(2), (floats(1, 1, 2, 2), lambda rng: UNPOOL))],
    "MultiheadAttention": [
        (lambda: nn.MultiheadAttention(4, 2, batch_first=True), (floats(2, 3, 4),) * 3)
    ],
    "PairwiseDistance": [(nn.PairwiseDistance, (floats(3, 4), floats(3, 4)))],
    "RMSNorm": [(lambda: nn.RMSNorm(4), (floats(3, 4),))],
    "RNN": [(lambda: nn.RNN(4, 3, batch_first=True), (floats(2, 3, 4),))],
    "RNNCell": [(lambda: nn.RNNCell(4, 3), (floats(2, 4),))],
    "Softmax2d": [(nn.Softmax2d, (IMAGE,))],
    "Threshold": [(lambda: nn.Threshold(0.1, 0.5), (floats(3, 4),))],
    "Transformer": [
        (lambda: nn.Transformer(4, 2, 1, 1, 8, batch_first=True), (floats(2, 3, 4),) * 2)
    ],
    "TransformerDecoder": [
        (
            lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, batch_first=True), 1),
            (floats(2, 3, 4),) * 2,
        )
    ],
    "TransformerDecoderLayer": [
        (lambda: nn.TransformerDecoderLayer(4, 2, 8, batch_first=True), (floats(2, 3, 4),) * 2)
    ],
    "TransformerEncoder": [
        (
            lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1),
            (floats(2, 3, 4),),
        )
    ],
    "TransformerEncoderLayer": [
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (floats(2, 3, 4),))
    ],
    "Unflatten": [(lambda: nn.Unflatten(1, (2, 2)), (floats(3, 4),))],
    "Upsample": [
        (lambda: nn.Upsample(scale_factor=2), (IMAGE,)),
        (lambda: nn.Upsample((5, 4), mode="bilinear"), (IMAGE,)),
    ],
    "UpsamplingBilinear2d": [(lambda: nn.UpsamplingBilinear2d(scale_factor=2), (IMAGE,))],
    "UpsamplingNearest2d": [(lambda: nn.UpsamplingNearest2d(scale_factor=2), (IMAGE,))],
    # lazy ones: a call has made their parameters
    **{
        f"Lazy{name}{d}d": [
            (lambda n=f"Lazy{name}{d}d", x=x: materialized(getattr(nn, n)(), x), (x,))
        ]
        for name in ("BatchNorm", "InstanceNorm")
        for d, x in ((1, SIGNAL), (2, IMAGE), (3, VOLUME))
    },
    **{
        f"Lazy{name}{d}d": [
            (lambda n=f"Lazy{name}{d}d", x=x: materialized(getattr(nn, n)(3, 3), x), (x,))
        ]
        for name in ("Conv", "ConvTranspose")
        for d, x in ((1, SIGNAL), (2, IMAGE))
    },
    "LazyLinear": [(lambda: materialized(nn.LazyLinear(3), floats(5, 4)), (floats(5, 4),))],
    # losses
    **{
        name: [(getattr(nn, name), (floats(3, 4), floats(3, 4)))]
        for name in ("HuberLoss", "L1Loss", "MSELoss", "SmoothL1Loss")
    },
    "BCELoss": [(nn.BCELoss, (unit(3, 4), unit(3, 4)))],
    "BCEWithLogitsLoss": [(nn.BCEWithLogitsLoss, (floats(3, 4), unit(3, 4)))],
    "CosineEmbeddingLoss": [(nn.CosineEmbeddingLoss, (floats(3, 4), floats(3, 4), signs(3)))],
    "CrossEntropyLoss": [
        (nn.CrossEntropyLoss, (floats(5, 4), ids(4, 5))),
        (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), (floats(5, 4), ids(4, 5))),
    ],
    "GaussianNLLLoss": [(nn.GaussianNLLLoss, (floats(3, 4), floats(3, 4), unit(3, 4)))],
    "HingeEmbeddingLoss": [(nn.HingeEmbeddingLoss, (floats(3, 4), signs(3, 4)))],
    "KLDivLoss": [(lambda: nn.KLDivLoss(reduction="batchmean"), (floats(3, 4), unit(3, 4)))],
    "MarginRankingLoss": [(nn.MarginRankingLoss, (floats(5), floats(5), signs(5)))],
    "MultiLabelSoftMarginLoss": [(nn.MultiLabelSoftMarginLoss, (floats(3, 4), unit(3, 4)))],
    "MultiMarginLoss": [(nn.MultiMarginLoss, (floats(5, 4), ids(4, 5)))],
    "NLLLoss": [(nn.NLLLoss, (floats(5, 4), ids(4, 5)))],
    "PoissonNLLLoss": [(nn.PoissonNLLLoss, (floats(3, 4), unit(3, 4)))],
    "SoftMarginLoss": [(nn.SoftMarginLoss, (floats(3, 4), signs(3, 4)))],
    "TripletMarginLoss": [(nn.TripletMarginLoss, (floats(3, 4),) * 3)],
    "TripletMarginWithDistanceLoss": [(nn.TripletMarginWithDistanceLoss, (floats(3, 4),) * 3)],
    # containers
    "Sequential": [(lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU()), (floats(5, 4),))],
}  # fmt: skip
UNPOOL = np.array([[[[0, 3], [8, 15]]]])
NO_LAYERS = {"Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList"}
UNTRACED_LAYERS = {"CTCLoss": "its paths depend on the values of labels and lengths"}
