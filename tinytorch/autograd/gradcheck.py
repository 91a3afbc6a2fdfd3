"""`gradcheck`: compare gradients with finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch.autograd.engine import grad
from tinytorch.dispatch import wrap
from tinytorch.dtypes import Array, float64
from tinytorch.errors import AutogradError
from tinytorch.state import grad_mode

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


def gradcheck(
    function: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    order: int = 1,
    eps: float = 1e-6,
    rtol: float = 1e-4,
    atol: float = 1e-6,
    seed: int = 0,
) -> bool:
    """Check the gradient of `function` at `inputs` against central differences.

    One random direction stands for all: the derivative along it is compared with
    (f(x + eps v) - f(x - eps v)) / (2 eps). For a higher `order` the gradient is checked as a
    function itself.

    Args:
        function: takes the inputs and returns a Tensor, or a tuple, each of whose tensors that
            requires a gradient is checked.
        inputs: float64 tensors with requires_grad, and anything else the function takes; or the
            only tensor.
        order: 1 for gradients, 2 for gradients of gradients, ...

    Returns:
        True. Otherwise it raises.

    Raises:
        AutogradError: the two differ (the message gives both), or no input can be checked.

    Source: the directional check of HIPS autograd (D. Maclaurin et al., 2015), `check_grads`.
    """
    if not isinstance(inputs, Sequence):
        return gradcheck(function, [inputs], order=order, eps=eps, rtol=rtol, atol=atol, seed=seed)
    checked = [i for i, x in enumerate(inputs) if getattr(x, "requires_grad", False)]
    if not checked or any(inputs[i].dtype is not float64 for i in checked):
        raise AutogradError("gradcheck needs float64 inputs that require a gradient")
    out = function(*inputs)
    if isinstance(out, (tuple, list)):
        parts = [i for i, each in enumerate(out) if getattr(each, "requires_grad", False)]
        for i in parts:
            gradcheck(
                lambda *args, i=i: function(*args)[i],
                inputs, order=order, eps=eps, rtol=rtol, atol=atol, seed=seed,
            )  # fmt: skip
        if parts:
            return True
        raise AutogradError("gradcheck: the results do not depend on any input")
    rng = np.random.default_rng(seed)
    weight = _random(rng, out)
    if not out.requires_grad:
        raise AutogradError("gradcheck: the result does not depend on any input")
    gradients = grad(out, [inputs[i] for i in checked], weight, allow_unused=True)
    directions = [_random(rng, inputs[i]) for i in checked]
    analytic = sum(
        float((g.detach() * v).sum().item())
        for g, v in zip(gradients, directions, strict=True)
        if g is not None
    )
    numeric = _central_difference(function, inputs, checked, directions, weight, eps)
    if not np.isclose(analytic, numeric, rtol=rtol, atol=atol):
        raise AutogradError(
            f"gradcheck: along a random direction the gradient says {analytic!r}, central "
            f"differences say {numeric!r} (order {order} to go)"
        )
    if order > 1:
        gradcheck(
            _gradient_function(function, inputs, checked),
            [*inputs, weight.requires_grad_()],
            order=order - 1, eps=eps, rtol=rtol, atol=atol, seed=seed + 1,
        )  # fmt: skip
    return True


def gradgradcheck(
    function: Callable[..., Any], inputs: Tensor | Sequence[Any], **options: Any
) -> bool:
    """`gradcheck` of the gradient too: second derivatives."""
    return gradcheck(function, inputs, order=2, **options)


def _gradient_function(
    function: Callable[..., Tensor], inputs: Sequence[Any], checked: list[int]
) -> Callable[..., Tensor]:
    """All gradients, flattened into one tensor, as a function of the inputs and of the weight."""
    from tinytorch.functions.movement import cat

    def gradients(*args: Any) -> Tensor:
        *xs, weight = args
        out = function(*xs)
        found = grad(out, [xs[i] for i in checked], weight, create_graph=True, allow_unused=True)
        flat = [
            (xs[i] * 0 if g is None else g).reshape(-1) for i, g in zip(checked, found, strict=True)
        ]
        # so that it can be differentiated also where all gradients are constant
        result: Tensor = cat(flat) + (weight * 0.0).sum()
        return result

    return gradients


def _random(rng: np.random.Generator, like: Tensor) -> Tensor:
    values: Array = np.asarray(rng.standard_normal(like.shape))
    return wrap(values, like.meta)


def _central_difference(
    function: Callable[..., Tensor],
    inputs: Sequence[Any],
    checked: list[int],
    directions: list[Tensor],
    weight: Tensor,
    eps: float,
) -> float:
    """(F(x + eps v) - F(x - eps v)) / (2 eps), where F is the sum of weight * function(inputs).

    Args:
        function: takes the inputs and returns a Tensor.
        inputs: all of them; only those in `checked` are moved.
        checked: the positions of the inputs x.
        directions: v, one tensor for each x. What is passed to the function in place of an x has
            no history and requires a gradient, as the function may differentiate it; so history is
            recorded while it runs, under `no_grad` too.
        weight: of the shape of the result.
        eps: the step.
    """

    def along(step: float) -> Array:
        moved = list(inputs)
        for i, v in zip(checked, directions, strict=True):
            moved[i] = (inputs[i].detach() + v * step).requires_grad_()
        out = function(*moved).detach()
        return np.asarray((out * weight.detach()).numpy())

    # a function of gradients needs to record; a plain one does not mind
    with grad_mode(True):
        return float(((along(eps) - along(-eps)) / (2 * eps)).sum())
