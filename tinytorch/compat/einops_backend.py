"""What einops needs to know of tensors. It finds this class among the subclasses of its base.

Imported by itself when einops is, see `absent.EinopsHook`.
"""

from __future__ import annotations

from typing import Any

from einops._backends import AbstractBackend, get_backend

from tinytorch.creation import arange
from tinytorch.functions import linalg, movement
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor


class TinyTorchBackend(AbstractBackend):  # type: ignore[misc]
    """The backend of einops: methods are functions of TinyTorch, so autograd, tracing and all
    backends follow."""

    framework_name = "tinytorch"

    def is_appropriate_type(self, tensor: Any) -> bool:
        """Whether it is a tensor."""
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Tensor:
        """A tensor of an array, which wants a gradient if it can have one."""
        tensor = Tensor.from_numpy(x)
        return tensor.requires_grad_(tensor.is_floating_point())

    def to_numpy(self, x: Tensor) -> Any:
        """The values."""
        return x.detach().numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        """start, ..., stop - 1."""
        return arange(start, stop)

    def transpose(self, x: Tensor, axes: Any) -> Tensor:
        """Dimensions in another order."""
        return movement.permute(x, *axes)

    def reduce(self, x: Tensor, operation: str, axes: Any) -> Any:
        """min, max, sum, mean, prod, any or all over axes."""
        if operation in ("min", "max", "sum", "mean"):
            return getattr(x, {"min": "amin", "max": "amax"}.get(operation, operation))(tuple(axes))
        for axis in sorted(axes, reverse=True):
            x = getattr(x, operation)(axis)
        return x

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        """Tensors along a new first dimension."""
        return movement.stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        """A dimension of size 1."""
        return movement.unsqueeze(x, new_position)

    def tile(self, x: Tensor, repeats: Any) -> Tensor:
        """Repeated along each dimension."""
        return movement.repeat(x, *repeats)

    def concat(self, tensors: list[Tensor], axis: int) -> Tensor:
        """Tensors one after the other along an axis."""
        return movement.cat(tensors, axis)

    def is_float_type(self, x: Tensor) -> bool:
        """Floats can be averaged."""
        return x.is_floating_point()

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        """The sum of products that the pattern names."""
        return linalg.einsum(pattern, *x)

    def layers(self) -> Any:
        """The module of layers."""
        from tinytorch.compat import einops_layers

        return einops_layers


# einops remembers a backend for each type; it does so now, and not while a function is traced
for _kind in (Tensor, Parameter):
    get_backend(_kind([0.0]))
