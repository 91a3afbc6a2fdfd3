"""Lazy layers: the first input tells how many features or channels there are.

Until then the parameters are there, without values: an optimizer takes them, `load_state_dict`
fills them. At the first call the layer becomes an ordinary one, with the same parameter objects.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from tinytorch.nn.batch_norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from tinytorch.nn.conv import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module
from tinytorch.nn.uninitialized import UninitializedBuffer, UninitializedParameter
from tinytorch.tensor import Tensor


class _Lazy(Module):
    """A layer whose constructor goes without its first argument, which the first input tells."""

    becomes: ClassVar[Any]
    dims: ClassVar[int]
    unbatched: ClassVar[bool] = True  # an input may be without the batch dimension
    defaults: ClassVar[dict[str, Any]] = {}  # that are not those of the ordinary layer

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        whole = inspect.signature(cls.becomes)
        rest = [
            p.replace(default=cls.defaults.get(p.name, p.default))
            for p in list(whole.parameters.values())[1:]
        ]
        cls.__signature__ = whole.replace(parameters=rest)  # type: ignore[attr-defined]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        bound = inspect.signature(type(self)).bind(*args, **kwargs)
        bound.apply_defaults()
        self.becomes.__init__(self, 0, **bound.arguments)
        self._arguments = bound.arguments
        for name, parameter in self.own_parameters():
            setattr(self, name, UninitializedParameter(dtype=parameter.dtype))
        for name, buffer in self.own_buffers():
            setattr(self, name, UninitializedBuffer(dtype=buffer.dtype))

    def _features(self, x: Tensor) -> int:
        """What the constructor's first argument has to be for this input."""
        if self.dims == 0:
            return x.shape[-1]
        return x.shape[0 if self.unbatched and x.ndim == self.dims + 1 else 1]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._initialize(args[0])
        return self(*args, **kwargs)

    def _initialize(self, x: Tensor) -> None:
        """Become the ordinary layer; parameters that have been loaded keep their values."""
        real = self.becomes(self._features(x), **self._arguments)
        del self._arguments
        for name, value in vars(real).items():
            held = vars(self).get(name)
            if isinstance(held, (UninitializedParameter, UninitializedBuffer)):
                held.materialize(value.shape)
                held._data[...] = value._data
            elif not isinstance(value, Tensor):
                setattr(self, name, value)
        self.__class__ = self.becomes


_TRACKING = {"affine": True, "track_running_stats": True}  # as in PyTorch


class LazyLinear(_Lazy, Linear):
    """`Linear` whose in_features is the last size of the first input."""

    becomes, dims = Linear, 0


class LazyConv1d(_Lazy, Conv1d):
    """`Conv1d` whose in_channels is the number of channels of the first input."""

    becomes, dims = Conv1d, 1


class LazyConv2d(_Lazy, Conv2d):
    """`Conv2d` whose in_channels is the number of channels of the first input."""

    becomes, dims = Conv2d, 2


class LazyConvTranspose1d(_Lazy, ConvTranspose1d):
    """`ConvTranspose1d` whose in_channels is the number of channels of the first input."""

    becomes, dims = ConvTranspose1d, 1


class LazyConvTranspose2d(_Lazy, ConvTranspose2d):
    """`ConvTranspose2d` whose in_channels is the number of channels of the first input."""

    becomes, dims = ConvTranspose2d, 2


class LazyBatchNorm1d(_Lazy, BatchNorm1d):
    """`BatchNorm1d` whose num_features is the number of channels of the first input."""

    becomes, dims, unbatched = BatchNorm1d, 1, False


class LazyBatchNorm2d(_Lazy, BatchNorm2d):
    """`BatchNorm2d` whose num_features is the number of channels of the first input."""

    becomes, dims, unbatched = BatchNorm2d, 2, False


class LazyBatchNorm3d(_Lazy, BatchNorm3d):
    """`BatchNorm3d` whose num_features is the number of channels of the first input."""

    becomes, dims, unbatched = BatchNorm3d, 3, False


class LazyInstanceNorm1d(_Lazy, InstanceNorm1d):
    """`InstanceNorm1d` whose num_features is the number of channels of the first input."""

    becomes, dims, defaults = InstanceNorm1d, 1, _TRACKING


class LazyInstanceNorm2d(_Lazy, InstanceNorm2d):
    """`InstanceNorm2d` whose num_features is the number of channels of the first input."""

    becomes, dims, defaults = InstanceNorm2d, 2, _TRACKING


class LazyInstanceNorm3d(_Lazy, InstanceNorm3d):
    """`InstanceNorm3d` whose num_features is the number of channels of the first input."""

    becomes, dims, defaults = InstanceNorm3d, 3, _TRACKING
