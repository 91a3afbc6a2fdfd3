"""Activation functions whose result becomes the value of x itself, by PyTorch's names."""

from __future__ import annotations

from functools import partial

from tinytorch.nn.functional.activation import celu, elu, leaky_relu, relu, selu
from tinytorch.nn.functional.piecewise import hardtanh, rrelu, threshold

relu_ = partial(relu, inplace=True)
leaky_relu_ = partial(leaky_relu, inplace=True)
elu_ = partial(elu, inplace=True)
celu_ = partial(celu, inplace=True)
selu_ = partial(selu, inplace=True)
hardtanh_ = partial(hardtanh, inplace=True)
threshold_ = partial(threshold, inplace=True)
rrelu_ = partial(rrelu, inplace=True)
