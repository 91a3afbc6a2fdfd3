"""`torch.autograd.functional`: Jacobians, Hessians, and products with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tinytorch
from tinytorch.autograd import enable_grad, grad
from tinytorch.errors import AutogradError
from tinytorch.tensor import Tensor

Function = Callable[..., Any]


def _leaves(inputs: Any, create_graph: bool) -> tuple[bool, list[Tensor]]:
    """The inputs as tensors that gradients are asked for."""
    several = isinstance(inputs, (tuple, list))
    given = list(inputs) if several else [inputs]
    if create_graph:
        return several, [x if x.requires_grad else x.detach().requires_grad_() for x in given]
    return several, [x.detach().requires_grad_() for x in given]


def _gradients(
    y: Tensor, xs: list[Tensor], weights: Tensor | None = None, create_graph: bool = False
) -> list[Tensor]:
    if not y.requires_grad:  # it does not depend on the inputs
        return [tinytorch.zeros_like(x) for x in xs]
    found = grad(y, xs, weights, retain_graph=True, create_graph=create_graph, allow_unused=True)
    return [tinytorch.zeros_like(x) if g is None else g for g, x in zip(found, xs, strict=True)]


def jacobian(func: Function, inputs: Any, create_graph: bool = False, **options: Any) -> Any:
    """d func(inputs)[i] / d inputs[j], of shape (*output, *input); a tuple for several inputs.

    >>> jacobian(lambda x: x * x, tinytorch.tensor([1.0, 3.0]))
    tensor([[2., 0.],
            [0., 6.]])
    """
    several, xs = _leaves(inputs, create_graph)
    with enable_grad():
        y = func(*xs)
        if not isinstance(y, Tensor):
            raise AutogradError(f"jacobian: the function returns {type(y).__name__}, not a tensor")
        rows = [_gradients(e, xs, None, create_graph) for e in y.reshape(-1).unbind(0)]
    parts = [
        tinytorch.stack([row[i] for row in rows], 0).reshape(*y.shape, *x.shape)
        if rows
        else tinytorch.zeros(*y.shape, *x.shape)
        for i, x in enumerate(xs)
    ]
    return tuple(parts) if several else parts[0]


def hessian(func: Function, inputs: Any, create_graph: bool = False, **options: Any) -> Any:
    """The second derivatives of a function with one element, of shape (*input, *input).

    >>> hessian(lambda x: (x * x * x).sum(), tinytorch.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    several, xs = _leaves(inputs, create_graph)

    def gradient_of(i: int) -> Function:
        def gradient(*values: Tensor) -> Tensor:
            y = func(*values)
            if y.numel() != 1:
                raise AutogradError(f"hessian: the result has shape {y.shape}, not one element")
            return _gradients(y.reshape(()), list(values), None, True)[i]

        return gradient

    rows = [jacobian(gradient_of(i), tuple(xs), create_graph) for i in range(len(xs))]
    return tuple(rows) if several else rows[0][0]


def vjp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, **o: Any) -> Any:
    """(func(inputs), v times its Jacobian); v may be left out for one element."""
    several, xs = _leaves(inputs, create_graph)
    with enable_grad():
        y = func(*xs)
        products = _gradients(y, xs, v, create_graph)
    out = y if create_graph else y.detach()
    return out, tuple(products) if several else products[0]


def hvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, **o: Any) -> Any:
    """(func(inputs), its Hessian times v)."""
    several, xs = _leaves(inputs, create_graph)
    vs = list(v) if several else [v]
    with enable_grad():
        y = func(*xs)
        first = _gradients(y, xs, None, True)
        product = sum((g * w).sum() for g, w in zip(first, vs, strict=True))
        second = _gradients(product, xs, None, create_graph)
    out = y if create_graph else y.detach()
    return out, tuple(second) if several else second[0]


vhp = hvp  # the Hessian is symmetric


def __getattr__(name: str) -> Any:
    from tinytorch.compat.names import module_name

    return module_name("torch.autograd.functional", name)
