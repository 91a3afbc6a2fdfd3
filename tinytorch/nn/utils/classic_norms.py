"""Weight and spectral normalization by hooks: PyTorch's first form, with its names in the state."""

from __future__ import annotations

from tinytorch.nn.hooks import AttributeHook
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.nn.utils.norms import (
    as_matrix,
    length_except,
    power_iteration,
    spectral_length,
    start_vectors,
    weight_of,
)
from tinytorch.nn.utils.parametrizations import outputs_dim
from tinytorch.tensor import Tensor


class _WeightNorm(AttributeHook):
    for_traces = "nn.utils.parametrizations.weight_norm"

    def __init__(self, name: str, dim: int | None) -> None:
        super().__init__(name)
        self.dim = dim

    def compute(self, module: Module) -> Tensor:
        """g * v / |v|"""
        g, v = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        return weight_of(g, v, self.dim)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """The parameter `name` as lengths `name_g` and a direction `name_v`.

    `parametrizations.weight_norm` is the newer form, with other names in the state.

    Args:
        dim: there is a length for each of its positions; None for one length.

    Returns:
        The module.

    Source: T. Salimans, D. Kingma, "Weight normalization", 2016.
    """
    weight, hook = module.get_parameter(name), _WeightNorm(name, dim)
    delattr(module, name)
    lengths = length_except(weight.detach(), dim)
    setattr(module, f"{name}_g", Parameter(lengths, weight.requires_grad))
    setattr(module, f"{name}_v", Parameter(weight, weight.requires_grad))
    return _install(module, hook)


class _SpectralNorm(AttributeHook):
    for_traces = "nn.utils.parametrizations.spectral_norm"

    def __init__(self, name: str, steps: int, dim: int, eps: float) -> None:
        super().__init__(name)
        self.steps = steps
        self.dim = dim
        self.eps = eps

    def compute(self, module: Module) -> Tensor:
        """The weight over its largest singular value."""
        weight = getattr(module, f"{self.name}_orig")
        u, v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        matrix = as_matrix(weight, self.dim)
        if module.training:
            power_iteration(matrix, u, v, self.steps, self.eps)
        out: Tensor = weight / spectral_length(matrix, u, v)
        return out


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """The parameter `name_orig` over its largest singular value, as `name`.

    Arguments are those of `parametrizations.spectral_norm`, which is the newer form.

    Returns:
        The module.

    Source: T. Miyato et al., "Spectral normalization for generative adversarial networks", 2018.
    """
    if n_power_iterations < 1:
        raise ValueError(f"n_power_iterations must be positive, not {n_power_iterations}")
    weight = module.get_parameter(name)
    rows = outputs_dim(module) if dim is None else dim
    u, v = start_vectors(weight, rows, eps)
    delattr(module, name)
    setattr(module, f"{name}_orig", weight)
    module.register_buffer(f"{name}_u", u)
    module.register_buffer(f"{name}_v", v)
    return _install(module, _SpectralNorm(name, n_power_iterations, rows, eps))


def _install(module: Module, hook: AttributeHook) -> Module:
    setattr(module, hook.name, hook.compute(module).detach())
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make `name` an ordinary parameter of its present value again.

    Raises:
        ValueError: it has no weight normalization.
    """
    return _remove(module, name, _WeightNorm, ("g", "v"))


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make `name` an ordinary parameter of its present value again.

    Raises:
        ValueError: it has no spectral normalization.
    """
    return _remove(module, name, _SpectralNorm, ("orig", "u", "v"))


def _remove(module: Module, name: str, kind: type[AttributeHook], parts: tuple[str, ...]) -> Module:
    handles = module._hooks.before if module._hooks is not None else {}
    for handle, (hook, _) in list(handles.items()):
        if isinstance(hook, kind) and hook.name == name:
            training = module.training
            module.training = False  # the present value, without another step of the iteration
            value = hook.compute(module).detach()
            module.training = training
            handle.remove()
            for part in parts:
                delattr(module, f"{name}_{part}")
            delattr(module, name)
            setattr(module, name, Parameter(value))
            return module
    what = kind.__name__.removeprefix("_")
    raise ValueError(f"{type(module).__name__}.{name} has no {what}")
