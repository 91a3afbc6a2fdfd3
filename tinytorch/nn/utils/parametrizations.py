"""Weight and spectral normalization as parametrizations."""

from __future__ import annotations

from tinytorch.functions.movement import reshape
from tinytorch.nn.conv import ConvTranspose1d, ConvTranspose2d
from tinytorch.nn.functional.similarity import normalize
from tinytorch.nn.module import Module
from tinytorch.nn.utils.norms import (
    as_matrix,
    length_except,
    power_iteration,
    spectral_length,
    start_vectors,
    weight_of,
)
from tinytorch.nn.utils.parametrize import register_parametrization
from tinytorch.tensor import Tensor

FIRST_STEPS = 15  # of the power iteration before the first use, as in PyTorch


class _WeightNorm(Module):
    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        """g * v / |v|"""
        return weight_of(g, v, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Its lengths, and itself as the direction."""
        return length_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """The parameter `name` as a length for each position of `dim`, and a direction.

    The state has `parametrizations.weight.original0` (lengths) and `original1` (direction).

    Args:
        dim: None for one length.

    Returns:
        The module.

    Source: T. Salimans, D. Kingma, "Weight normalization", 2016.
    """
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if n_power_iterations < 1:
            raise ValueError(f"n_power_iterations must be positive, not {n_power_iterations}")
        self.n_power_iterations = n_power_iterations
        self.dim = dim % weight.ndim
        self.eps = eps
        if weight.ndim > 1:
            u, v = start_vectors(weight, self.dim, eps)
            power_iteration(as_matrix(weight.detach(), self.dim), u, v, FIRST_STEPS, eps, True)
            self.register_buffer("_u", u)
            self.register_buffer("_v", v)

    def forward(self, weight: Tensor) -> Tensor:
        """The weight over its largest singular value."""
        if weight.ndim == 1:
            return reshape(normalize(weight, dim=0, eps=self.eps), weight.shape)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            power_iteration(matrix, self._u, self._v, self.n_power_iterations, self.eps, True)
        return weight / spectral_length(matrix, self._u, self._v)


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """The parameter `name` over its largest singular value, as found by power iteration.

    Args:
        n_power_iterations: steps of it in each use in training.
        eps: of the normalizations in it.
        dim: the dimension of the outputs: None for 1 in transposed convolutions, 0 in others.

    Returns:
        The module.

    Source: T. Miyato et al., "Spectral normalization for generative adversarial networks", 2018.
    """
    weight = module.get_parameter(name)
    rows = outputs_dim(module) if dim is None else dim
    made = _SpectralNorm(weight, n_power_iterations, rows, eps)
    return register_parametrization(module, name, made)


def outputs_dim(module: Module) -> int:
    """The dimension of a layer's weight that stands for its outputs."""
    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d)) else 0
