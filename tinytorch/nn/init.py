"""Initial values of parameters. Each function writes into a tensor, in place, and returns it."""

from __future__ import annotations

import math

import numpy as np

from tinytorch.absent import names_of
from tinytorch.autograd import no_grad
from tinytorch.dtypes import Shape
from tinytorch.errors import ShapeError
from tinytorch.random import Generator, rand, randn
from tinytorch.tensor import Tensor

_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    **{f"conv{kind}{d}d": 1.0 for kind, d in (("", 3), *(("_transpose", d) for d in (1, 2, 3)))},
    "sigmoid": 1.0,
    "tanh": 5 / 3,
    "relu": math.sqrt(2),
    "selu": 3 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance of a signal through a nonlinearity.

    Args:
        nonlinearity: linear, conv1d to conv_transpose3d, sigmoid, tanh, relu, selu, leaky_relu.
        param: the negative slope of leaky_relu, by default 0.01.

    Raises:
        ValueError: it is none of these.

    >>> calculate_gain("leaky_relu", 1.0)
    1.0
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        known = ", ".join(sorted([*_GAINS, "leaky_relu"]))
        raise ValueError(f"no gain is known for {nonlinearity!r}; there are {known}")
    return _GAINS[nonlinearity]


def fan_in_and_fan_out(shape: Shape) -> tuple[int, int]:
    """How many inputs meet in one output, and how many outputs one input reaches.

    Args:
        shape: of a weight, (out, in) or (out, in, height, width); in the second each pair of
            channels meets height * width times.

    Returns:
        fan_in, fan_out

    Raises:
        ShapeError: there are fewer than two dimensions; the message gives the shape.

    >>> fan_in_and_fan_out((16, 3, 5, 5))
    (75, 400)
    """
    if len(shape) < 2:
        raise ShapeError(f"fan in and fan out need at least two dimensions, not shape {shape}")
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Evenly distributed over [a, b)."""
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with normally distributed numbers."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Set every element to `val`."""
    with no_grad():
        return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    """Set every element to 0."""
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Set every element to 1."""
    return constant_(tensor, 1)


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform over +-gain * sqrt(6 / (fan_in + fan_out)), written into the tensor in place.

    Args:
        tensor: a weight, of two dimensions or more.
        gain: see `calculate_gain`.
        generator: of the random numbers; by default the one that `manual_seed` seeds.

    Returns:
        The tensor.

    Source: X. Glorot, Y. Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", 2010, equation 16.
    """
    bound = gain * math.sqrt(6 / sum(fan_in_and_fan_out(tensor.shape)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with standard deviation gain * sqrt(2 / (fan_in + fan_out)).

    Source: Glorot and Bengio 2010, equation 12.
    """
    std = gain * math.sqrt(2 / sum(fan_in_and_fan_out(tensor.shape)))
    return normal_(tensor, 0.0, std, generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Uniform over +-gain * sqrt(3 / fan).

    Args:
        a: negative slope of the leaky_relu that follows; 0 means relu.
        mode: "fan_in" keeps the variance forward, "fan_out" backward.
        nonlinearity: what follows; see `calculate_gain`.

    Source: K. He et al., "Delving deep into rectifiers", 2015, equation 10.
    """
    bound = math.sqrt(3) * kaiming_std(tensor.shape, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal with standard deviation gain / sqrt(fan); arguments as for `kaiming_uniform_`.

    Source: He et al. 2015, equation 10.
    """
    std = kaiming_std(tensor.shape, a, mode, nonlinearity)
    return normal_(tensor, 0.0, std, generator)


def kaiming_std(shape: Shape, a: float, mode: str, nonlinearity: str) -> float:
    """gain / sqrt(fan): the standard deviation of weights that keeps a signal's variance.

    Args:
        shape: of the weight.
        a: negative slope, if the nonlinearity is leaky_relu.
        mode: "fan_in" keeps the variance forward, "fan_out" backward. A fan of 0 counts as 1.
        nonlinearity: what follows; see `calculate_gain`.

    Raises:
        ValueError: mode is neither; the message names both and what was given.

    Source: He et al. 2015, equations 10 and 14.

    >>> kaiming_std((10, 50), 0.0, "fan_in", "relu")
    0.2
    """
    fans = dict(zip(("fan_in", "fan_out"), fan_in_and_fan_out(shape), strict=True))
    if mode not in fans:
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', not {mode!r}")
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fans[mode], 1))


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fill with normally distributed numbers within [a, b]: numbers outside are drawn again.

    Raises:
        ValueError: a is not below b, or [a, b] is more than 6 deviations from the mean.
    """
    if not a < b or a > mean + 6 * std or b < mean - 6 * std:
        raise ValueError(
            f"trunc_normal_: nothing to draw from [{a}, {b}] with mean {mean} and std {std}"
        )
    values = randn(tensor.shape, dtype="float64", generator=generator).numpy() * std + mean
    while (outside := (values < a) | (values > b)).any():
        again = randn(int(outside.sum()), dtype="float64", generator=generator)
        values[outside] = again.numpy() * std + mean
    with no_grad():
        return tensor.copy_(values)


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix: 1 on the diagonal, 0 elsewhere.

    Raises:
        ShapeError: it is no matrix.
    """
    if tensor.ndim != 2:
        raise ShapeError(f"eye_ needs a matrix, not shape {tensor.shape}")
    with no_grad():
        return tensor.copy_(np.eye(tensor.shape[0], tensor.shape[1]))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Convolution kernels that pass each input channel on, as far as there are output channels.

    Args:
        tensor: (out, in / groups, ...) of three to five dimensions.
        groups: each passes its own channels on.

    Raises:
        ShapeError: other dimensions, or channels that do not split into the groups.
    """
    if not 3 <= tensor.ndim <= 5 or tensor.shape[0] % groups:
        raise ShapeError(f"dirac_ needs kernels (out, in, ...) of {groups} groups: {tensor.shape}")
    values, each = np.zeros(tensor.shape), tensor.shape[0] // groups
    centre = tuple(n // 2 for n in tensor.shape[2:])
    for group in range(groups):
        for i in range(min(each, tensor.shape[1])):
            values[(group * each + i, i, *centre)] = 1
    with no_grad():
        return tensor.copy_(values)


def sparse_(
    tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None
) -> Tensor:
    """Fill with normally distributed numbers, but for a share of `sparsity` of each column, which
    is 0.

    Raises:
        ShapeError: it is no matrix.

    Source: J. Martens, "Deep learning via Hessian-free optimization", 2010.
    """
    if tensor.ndim != 2:
        raise ShapeError(f"sparse_ needs a matrix, not shape {tensor.shape}")
    rows = tensor.shape[0]
    order = np.argsort(rand(tensor.shape, generator=generator).numpy(), axis=0)
    values = randn(tensor.shape, dtype="float64", generator=generator).numpy() * std
    np.put_along_axis(values, order[: math.ceil(sparsity * rows)], 0, axis=0)
    with no_grad():
        return tensor.copy_(values)


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """A matrix (first dimension, all others) with orthonormal rows or columns, times `gain`.

    Source: A. Saxe, J. McClelland, S. Ganguli, "Exact solutions to the nonlinear dynamics of
    learning in deep linear neural networks", 2014.
    """
    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_ needs at least two dimensions, not shape {tensor.shape}")
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    drawn = randn(max(rows, columns), min(rows, columns), dtype="float64", generator=generator)
    q, r = np.linalg.qr(drawn.numpy())
    q *= np.sign(np.diag(r))  # makes the factorization unique, so q evenly distributed
    matrix = q if rows >= columns else q.T
    with no_grad():
        return tensor.copy_(gain * matrix.reshape(tensor.shape))


def reset_weight_and_bias(weight: Tensor, bias: Tensor | None) -> None:
    """What linear and convolution layers start from: uniform over +-1 / sqrt(fan_in), both."""
    fan_in, _ = fan_in_and_fan_out(weight.shape)
    bound = 1 / math.sqrt(max(fan_in, 1))
    uniform_(weight, -bound, bound)
    if bias is not None:
        uniform_(bias, -bound, bound)


__getattr__ = names_of("torch.nn.init")  # names of PyTorch's that are not here
