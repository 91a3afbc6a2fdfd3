"""Neural networks: modules, layers, losses, initial values.

What a PyTorch user types:

    from tinytorch import nn

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    loss = nn.CrossEntropyLoss()(model(x), labels)
"""

from tinytorch.errors import StateDictError
from tinytorch.nn import functional, init
from tinytorch.nn.activations import (
    ELU,
    GELU,
    SELU,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
)
from tinytorch.nn.containers import ModuleDict, ModuleList, Sequential
from tinytorch.nn.conv import Conv1d, Conv2d
from tinytorch.nn.dropout import Dropout, Dropout2d
from tinytorch.nn.embedding import Embedding
from tinytorch.nn.hooks import RemovableHandle
from tinytorch.nn.linear import Flatten, Identity, Linear
from tinytorch.nn.losses import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
)
from tinytorch.nn.module import Module
from tinytorch.nn.norm import BatchNorm1d, BatchNorm2d, GroupNorm, LayerNorm, RMSNorm
from tinytorch.nn.parameter import Parameter
from tinytorch.nn.pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from tinytorch.nn.state import IncompatibleKeys

__all__ = [
    "ELU",
    "GELU",
    "SELU",
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Dropout2d",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "Hardtanh",
    "HuberLoss",
    "Identity",
    "IncompatibleKeys",
    "KLDivLoss",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "MaxPool2d",
    "Mish",
    "Module",
    "ModuleDict",
    "ModuleList",
    "NLLLoss",
    "PReLU",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "RemovableHandle",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "Softmax",
    "Softplus",
    "Softsign",
    "StateDictError",
    "Tanh",
    "functional",
    "init",
]
