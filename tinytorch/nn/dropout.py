"""Dropout layers."""

from __future__ import annotations

from tinytorch.nn import functional as F
from tinytorch.nn.functional.dropout import check_probability
from tinytorch.nn.module import Module
from tinytorch.tensor import Tensor


class _Dropout(Module):
    """In training something is dropped with probability p.

    Args:
        p: from 0 to 1.
        inplace: write the result into the input too, where nothing is recorded.

    Raises:
        ValueError: p is not a probability.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self.p = check_probability(p)
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}" + (", inplace=True" if self.inplace else "")


class Dropout(_Dropout):
    """Drops elements: in training every element is 0 with probability p, and x / (1 - p) otherwise;
    else x.

    Raises:
        ValueError: p is not a probability.

    Source: N. Srivastava et al., "Dropout", 2014.
    """

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_Dropout):
    """Drops whole channels of a signal, as `Dropout` drops elements."""

    def forward(self, input: Tensor) -> Tensor:
        """(n, channels, length) or (channels, length), and so the result."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_Dropout):
    """Drops whole channels of an image, as `Dropout` drops elements.

    Source: J. Tompson et al., "Efficient object localization using convolutional networks", 2015.
    """

    def forward(self, input: Tensor) -> Tensor:
        """(n, channels, h, w), and so the result."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_Dropout):
    """Drops whole channels of a volume, as `Dropout` drops elements."""

    def forward(self, input: Tensor) -> Tensor:
        """(n, channels, d, h, w) or (channels, d, h, w), and so the result."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean and variance in SELU networks; see `functional.alpha_dropout`."""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.alpha_dropout(input, self.p, self.training, self.inplace)
