"""Functions that turn a function into that of its derivatives: PyTorch's `torch.func`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinytorch.absent import names_of
from tinytorch.autograd.engine import grad as gradients_of
from tinytorch.errors import AutogradError
from tinytorch.state import grad_mode


def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The function that gives the gradient of `func` and its result, as a pair; see `grad`."""

    def both(*args: Any, **options: Any) -> Any:
        chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        values = list(args)
        with grad_mode(True):
            for i in chosen:
                x = args[i]
                values[i] = x.reshape(x.shape) if x.requires_grad else x.detach().requires_grad_()
            result = func(*values, **options)
            y = result[0] if has_aux else result
            if y.numel() != 1:
                raise AutogradError(f"func.grad: the result has shape {y.shape}, not one element")
            recording = any(args[i].requires_grad for i in chosen)
            found = gradients_of(
                y.reshape(()), [values[i] for i in chosen], None, None, True, allow_unused=True
            )
        whole = [values[i] * 0 if g is None else g for i, g in zip(chosen, found, strict=True)]
        if not recording:
            whole = [g.detach() for g in whole]
        gradient = whole[0] if isinstance(argnums, int) else tuple(whole)
        return gradient, result

    return both


def grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The function that gives the gradient of `func` for one argument, or several.

    Args:
        func: returns a tensor of one element; with `has_aux` a pair of it and anything else.
        argnums: for which argument; a tuple for a tuple of gradients.
        has_aux: give a pair of the gradient and the second part of the result.

    Raises:
        AutogradError: (the returned function) the result has several elements.

    >>> from tinytorch import tensor
    >>> grad(lambda x: x * x)(tensor(3.0)), grad(grad(lambda x: x * x * x))(tensor(3.0))
    (tensor(6.), tensor(18.))
    """
    both = grad_and_value(func, argnums, has_aux)

    def gradient(*args: Any, **options: Any) -> Any:
        g, result = both(*args, **options)
        return (g, result[1]) if has_aux else g

    return gradient


__getattr__ = names_of("torch.func")  # names of PyTorch's that are not here
