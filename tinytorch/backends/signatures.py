"""The kernels of a user's backend, called with the arguments that their signatures take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.errors import BackendError

CONV2D = "conv2d(self, x, w, b=None, *, stride, padding, dilation, groups)"
PAIRS = ("stride", "padding", "dilation")


def adapted(cls: type) -> type:
    """The backend class, with `conv2d` and `matmul` in a form that dispatch can call.

    A `conv2d` may leave out the bias, which is then added outside, and `dilation` and `groups`,
    which then are refused where they are not 1. One whose `stride` or `padding` has an integer as
    its default is given integers, where both numbers of a pair are equal.

    Raises:
        BackendError: a signature cannot be served; the message has the one to write.
    """
    matmul, conv2d = vars(cls).get("matmul"), vars(cls).get("conv2d")
    if inspect.isfunction(matmul):
        _check_matmul(cls, matmul)
    if not inspect.isfunction(conv2d):
        return cls
    kernel = _served(cls, conv2d)
    return cls if kernel is None else type(cls.__name__, (cls,), {"conv2d": kernel})


def _check_matmul(cls: type, matmul: Callable[..., Any]) -> None:
    try:
        inspect.signature(matmul).bind(None, None, None)
    except TypeError as error:
        raise BackendError(
            f"{cls.__name__}.matmul{inspect.signature(matmul)} cannot be called with two arrays "
            f"({error}); write matmul(self, a, b)"
        ) from None


def _served(cls: type, conv2d: Callable[..., Any]) -> Callable[..., Any] | None:
    """A kernel that calls the user's; None if that can be called as it is."""
    signature = inspect.signature(conv2d)
    names = list(signature.parameters)[3:]
    kinds = [p.kind for p in signature.parameters.values()]
    if inspect.Parameter.VAR_KEYWORD in kinds or inspect.Parameter.VAR_POSITIONAL in kinds:
        return None
    options = set(names) & {*PAIRS, "groups"}
    biases = [n for n in names if n not in options]
    missing = {"stride", "padding"} - options
    if len(list(signature.parameters)) < 3 or missing or len(biases) > 1:
        raise BackendError(
            f"{cls.__name__}.conv2d{signature} cannot be called as a convolution is; write {CONV2D}"
        )
    integers = {n for n in options if isinstance(signature.parameters[n].default, int)}
    integers -= {"groups"}
    if biases and names[0] == biases[0] and not integers and len(options) == 4:
        return None
    bias = biases[0] if biases else None

    def kernel(self: Any, x: Array, w: Array, b: Array | None = None, **params: Any) -> Array:
        given = {}
        for name, value in params.items():
            if name not in options:
                if value not in (1, (1, 1)):
                    raise BackendError(f"{cls.__name__}.conv2d takes no {name}, and it is {value}")
            elif name in integers and value[0] != value[1]:
                raise BackendError(
                    f"{cls.__name__}.conv2d takes an integer {name}, and it is {value}"
                )
            else:
                given[name] = value[0] if name in integers else value
        if bias is not None:
            given[bias] = b
        out = np.asarray(conv2d(self, x, w, **given))
        return out if bias is not None or b is None else out + b.reshape(1, -1, 1, 1)

    return kernel
