"""Derivatives of functions: Jacobians, Hessians and products with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tinytorch.absent import names_of
from tinytorch.autograd.engine import grad
from tinytorch.dispatch import is_tensor
from tinytorch.errors import AutogradError
from tinytorch.functions.movement import reshape, stack
from tinytorch.functions.reductions import sum as sum_
from tinytorch.state import grad_mode

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


def _many(values: Any) -> tuple[Any, ...]:
    return (values,) if is_tensor(values) else tuple(values)


def _leaves(inputs: tuple[Tensor, ...], keep_history: bool) -> tuple[Tensor, ...]:
    """The inputs as tensors of their own that require a gradient."""
    if keep_history:
        # a view, so that the gradient for it is not that of the input's other uses
        views = [x.reshape(x.shape) if x.requires_grad else x.detach() for x in inputs]
        return tuple(v if v.requires_grad else v.requires_grad_() for v in views)
    return tuple(x.detach().requires_grad_() for x in inputs)


def _done(values: Any, create_graph: bool) -> Any:
    return values if create_graph else _map(lambda x: x.detach(), values)


def _map(function: Callable[[Any], Any], values: Any) -> Any:
    return (
        tuple(_map(function, v) for v in values) if isinstance(values, tuple) else function(values)
    )


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    *,
    strict: bool = False,
    vectorize: bool = False,
) -> Any:
    """The derivative of every element of the result for every element of the inputs.

    Args:
        func: takes the inputs, returns a tensor or a tuple of them.
        inputs: a tensor or a tuple of them.
        create_graph: let the Jacobian be differentiated again.
        strict: refuse an input that a result does not depend on, instead of giving zeros.

    Returns:
        A tensor of shape (*result.shape, *input.shape); for a tuple of inputs a tuple of them, for
        a tuple of results a tuple of these.

    Raises:
        AutogradError: `strict`, and there is such an input.

    >>> from tinytorch import tensor
    >>> jacobian(lambda x: x * x, tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    single = is_tensor(inputs)
    with grad_mode(True):
        leaves = _leaves(_many(inputs), create_graph)
        out = func(*leaves)
        if not all(is_tensor(y) for y in (out if isinstance(out, tuple) else (out,))):
            raise AutogradError(
                f"jacobian: the function returns {type(out).__name__}, not a tensor"
            )
        rows = tuple(_jacobian_of(y, leaves, create_graph, strict) for y in _many(out))
    chosen = tuple(row[0] for row in rows) if single else rows
    return _done(chosen[0] if is_tensor(out) else chosen, create_graph)


def _jacobian_of(
    y: Tensor, leaves: Sequence[Tensor], create_graph: bool, strict: bool
) -> tuple[Tensor, ...]:
    columns: list[list[Tensor]] = [[] for _ in leaves]
    flat = reshape(y, (-1,))
    for i in range(flat.shape[0]):
        if flat.requires_grad:
            found = grad(flat[i], leaves, None, True, create_graph, allow_unused=True)
        else:
            found = (None,) * len(leaves)
        for j, (g, x, column) in enumerate(zip(found, leaves, columns, strict=True)):
            if g is None and strict:
                raise AutogradError(f"jacobian: the result does not depend on input {j}")
            column.append(x.detach() * 0 if g is None else g)
    return tuple(
        reshape(stack(column), (*y.shape, *x.shape))
        if column
        else x.new_zeros((*y.shape, *x.shape))
        for column, x in zip(columns, leaves, strict=True)
    )


def hessian(
    func: Callable[..., Tensor],
    inputs: Any,
    create_graph: bool = False,
    *,
    strict: bool = False,
    vectorize: bool = False,
) -> Any:
    """The second derivatives of a function with a result of one element.

    Returns:
        A tensor of shape (*input.shape, *input.shape); for a tuple of inputs a tuple of tuples.

    Raises:
        AutogradError: the result has several elements; or as `jacobian`.

    >>> from tinytorch import tensor
    >>> hessian(lambda x: (x * x * x).sum(), tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    single = is_tensor(inputs)

    def gradient(*xs: Tensor) -> Any:
        whole = _gradient_of_one("hessian", func(*xs), xs)
        return whole[0] if single else whole

    return jacobian(gradient, inputs, create_graph, strict=strict)


def _gradient_of_one(name: str, y: Tensor, xs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The gradient of a result of one element, with a history."""
    if y.numel() != 1:
        raise AutogradError(f"{name}: the result has shape {y.shape}, not one element")
    found = grad(sum_(y), xs, None, None, True, allow_unused=True)
    return tuple(x * 0 if g is None else g for g, x in zip(found, xs, strict=True))


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False
) -> tuple[Any, Any]:
    """The result, and v times the Jacobian: what `backward(v)` finds.

    Args:
        v: of the result's shape (or shapes); None for 1.
    """
    single = is_tensor(inputs)
    with grad_mode(True):
        leaves = _leaves(_many(inputs), create_graph)
        out = func(*leaves)
        weights = None if v is None else _many(v)
        found = grad(_many(out), leaves, weights, None, create_graph, allow_unused=True)
    whole = tuple(x.detach() * 0 if g is None else g for g, x in zip(found, leaves, strict=True))
    return _done(out, create_graph), _done(whole[0] if single else whole, create_graph)


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False
) -> tuple[Any, Any]:
    """The result, and the Jacobian times v: the derivative along v.

    Computed with two reverse passes, as the gradient of `vjp` for its v.

    Args:
        v: of the inputs' shape (or shapes); None for 1.

    Source: J. Townsend, "A new trick for calculating Jacobian vector products", 2017.
    """
    with grad_mode(True):
        leaves = _leaves(_many(inputs), create_graph)
        out = func(*leaves)
        outs = _many(out)
        dummies = tuple((y.detach() * 0).requires_grad_() for y in outs)
        found = grad(outs, leaves, dummies, None, True, allow_unused=True)
        along = _many(v) if v is not None else tuple(x.detach() * 0 + 1 for x in leaves)
        pairs = [(g, w) for g, w in zip(found, along, strict=True) if g is not None]
        products = grad(
            [g for g, _ in pairs], dummies, [w for _, w in pairs], None, create_graph,
            allow_unused=True,
        )  # fmt: skip
    whole = tuple(y.detach() * 0 if g is None else g for g, y in zip(products, outs, strict=True))
    return _done(out, create_graph), _done(whole[0] if is_tensor(out) else whole, create_graph)


def hvp(
    func: Callable[..., Tensor], inputs: Any, v: Any = None, create_graph: bool = False
) -> tuple[Any, Any]:
    """The result, and the Hessian times v; the Hessian itself is never formed.

    Args:
        func: has a result of one element.
        v: of the inputs' shape (or shapes); None for 1.

    Raises:
        AutogradError: the result has several elements.

    Source: B. Pearlmutter, "Fast exact multiplication by the Hessian", 1994.

    >>> from tinytorch import tensor
    >>> hvp(lambda x: (x * x * x).sum(), tensor([1.0, 2.0]), tensor([1.0, 1.0]))[1]
    tensor([ 6., 12.])
    """
    single = is_tensor(inputs)
    with grad_mode(True):
        leaves = _leaves(_many(inputs), create_graph)
        out = func(*leaves)
        slopes = _gradient_of_one("hvp", out, leaves)
        along = _many(v) if v is not None else tuple(x.detach() * 0 + 1 for x in leaves)
        found: Sequence[Tensor | None] = [None] * len(leaves)
        pairs = [(g, w) for g, w in zip(slopes, along, strict=True) if g.requires_grad]
        if pairs:  # else the function is linear
            slopes, weights = zip(*pairs, strict=True)
            found = grad(slopes, leaves, weights, None, create_graph, allow_unused=True)
    whole = tuple(x.detach() * 0 if g is None else g for g, x in zip(found, leaves, strict=True))
    return _done(out, create_graph), _done(whole[0] if single else whole, create_graph)


vhp = hvp  # the Hessian is symmetric

__getattr__ = names_of("torch.autograd.functional")  # names of PyTorch's that are not here
