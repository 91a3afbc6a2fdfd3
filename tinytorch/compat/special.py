"""`torch.special`: what there is of it. The rest is refused with SciPy's spelling."""

from __future__ import annotations

import math
from typing import Any

import tinytorch
from tinytorch import (
    erf as erf,
    erfc as erfc,
    erfinv as erfinv,
    exp2 as exp2,
    expm1 as expm1,
    log1p as log1p,
    log_softmax as log_softmax,
    logit as logit,
    logsumexp as logsumexp,
    round as round,
    sigmoid as expit,
    sinc as sinc,
    softmax as softmax,
    xlogy as xlogy,
)
from tinytorch.tensor import Tensor

__all__ = [
    "entr", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "log1p", "log_softmax", "logit",
    "logsumexp", "ndtr", "round", "sinc", "softmax", "xlogy",
]  # fmt: skip


def entr(x: Tensor) -> Tensor:
    """-x log(x), the part of an entropy: 0 at 0, and minus infinity below.

    >>> entr(tinytorch.tensor([-1.0, 0.5]))
    tensor([  -inf, 0.3466])
    """
    return tinytorch.where(x < 0, -math.inf, -xlogy(x, x))


def ndtr(x: Tensor) -> Tensor:
    """The part of the standard normal distribution below x: erfc(-x / sqrt(2)) / 2.

    >>> ndtr(tinytorch.tensor(0.0))
    tensor(0.5)
    """
    return erfc(-math.sqrt(0.5) * x) / 2


def __getattr__(name: str) -> Any:
    from tinytorch.compat.names import module_name

    return module_name("torch.special", name)
