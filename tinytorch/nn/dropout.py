"""Dropout layers."""

from __future__ import annotations

from tinytorch.nn import functional as F
from tinytorch.nn.functional.dropout import check_probability
from tinytorch.nn.module import Module
from tinytorch.tensor import Tensor


class _Dropout(Module):
    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = check_probability(p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Dropout(_Dropout):
    """In training every element is 0 with probability p, and x / (1 - p) otherwise; else x.

    Raises:
        ValueError: p is not a probability.

    Source: N. Srivastava et al., "Dropout", 2014.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.dropout(x, self.p, self.training)


class Dropout2d(_Dropout):
    """As `Dropout`, but a channel of an image is dropped as a whole.

    Raises:
        ValueError: p is not a probability.

    Source: J. Tompson et al., "Efficient object localization using convolutional networks", 2015.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x (n, channels, h, w), and so the result."""
        return F.dropout2d(x, self.p, self.training)
