"""`torch.nn.modules`: the layers, and the base classes of layers by PyTorch's names."""

from __future__ import annotations

import sys
from typing import Any

from tinytorch import nn
from tinytorch.nn.batch_norm import _BatchNorm, _InstanceNorm, _NormBase
from tinytorch.nn.conv import _Conv, _Transposed
from tinytorch.nn.dropout import _Dropout
from tinytorch.nn.losses import Loss
from tinytorch.nn.rnn import _Recurrent
from tinytorch.tensor import Tensor

_FILES = frozenset(
    """activation adaptive batchnorm channelshuffle container conv distance dropout flatten fold
    instancenorm linear loss module normalization padding pixelshuffle pooling rnn sparse
    transformer upsampling""".split()  # noqa: SIM905
)
#: Base classes by PyTorch's names: `nn.modules.loss._Loss` and the like.
_BASES: dict[str, type] = {
    "_Loss": Loss,
    "_ConvNd": _Conv,
    "_ConvTransposeNd": _Transposed,
    "_NormBase": _NormBase,
    "_BatchNorm": _BatchNorm,
    "_InstanceNorm": _InstanceNorm,
    "_DropoutNd": _Dropout,
    "RNNBase": _Recurrent,
}


class _WeightedLoss(Loss):
    """The base class of losses with a weight for each class, kept as a buffer.

    Args:
        weight: (classes,) or None.
        reduction: "mean", "sum" or "none".
    """

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)


def __getattr__(name: str) -> Any:
    if name in _FILES:
        return sys.modules[__name__]  # each of PyTorch's files has all of their names here
    if name == "utils":
        from tinytorch.compat import layers

        return layers
    return _BASES[name] if name in _BASES else getattr(nn, name)
