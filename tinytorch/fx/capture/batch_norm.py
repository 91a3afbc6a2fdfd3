"""Batch norms that say what they write, and eager runs that compute with the same kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
#: What cuDNN's batch norm and its gradient are in torch's own.
OF_CUDNN = get_decompositions([aten.cudnn_batch_norm, aten.cudnn_batch_norm_backward])


def functional_batch_norm() -> dict[Any, Callable[..., Any]]:
    """For batch norms that write running statistics without saying so, ones that say so.

    The kernels on the CPU are the same; cuDNN's gives way to torch's own.
    """

    def native(x: Tensor, w: Any, b: Any, mean: Any, var: Any, training: bool, *rest: float) -> Any:
        if not training or mean is None:
            return NotImplemented
        return aten._native_batch_norm_legit(x, w, b, mean, var, training, *rest)

    return {**OF_CUDNN, aten.native_batch_norm.default: native}


class WithoutCudnn(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs torch's own kernel for every batch norm of cuDNN, as a captured graph does.

    The two round differently, and the gradients of a deep network that has not been trained
    magnify that: in the first layer of ResNet-152 it is more than a tolerance allows.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return OF_CUDNN.get(func, func)(*args, **(kwargs or {}))
