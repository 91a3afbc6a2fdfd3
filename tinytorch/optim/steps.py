"""Steps of optimizers as updates: a backend may do each in one pass over the parameter."""

from __future__ import annotations

from tinytorch.dispatch import Input
from tinytorch.tensor import Tensor
from tinytorch.updates import update


@update("p", "buffer")
def sgd_step(
    p: Tensor,
    g: Tensor,
    buffer: Tensor | None,
    *,
    lr: Input,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    first: bool,
) -> None:
    """p -= lr d, where d is the gradient or, with momentum, its running sum `buffer`.

        g <- g + weight_decay p
        buffer <- momentum buffer + (1 - dampening) g
        d = buffer, or with nesterov g + momentum buffer; without a buffer g

    Args:
        p: the parameter, changed in place.
        g: its gradient, which stays as it is.
        buffer: changed in place; None without momentum.
        first: this is the first step, at which the buffer is 0 and the gradient not dampened.
    """
    if weight_decay:
        g = g + p * weight_decay
    if buffer is not None:
        buffer.mul_(momentum).add_(g, alpha=1 if first else 1 - dampening)
        g = g + buffer * momentum if nesterov else buffer
    p.sub_(g * lr)


@update("p", "m", "v", "step")
def adam_step(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    step: Tensor,
    *,
    lr: Input,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
) -> None:
    """p -= lr m^ / (sqrt(v^) + eps), with the running means m of g and v of g^2.

        m <- beta1 m + (1 - beta1) g      m^ = m / (1 - beta1^t)
        v <- beta2 v + (1 - beta2) g^2    v^ = v / (1 - beta2^t)

    Args:
        p: the parameter, changed in place.
        g: its gradient, which stays as it is.
        m, v: changed in place.
        step: how many steps there were, 0-d float32, changed in place: this one is counted, and
            gives t. The powers of beta are taken in float64, as 1 - beta^t would lose digits
            otherwise.
        weight_decay: adds weight_decay p to g, as a penalty would; or, if `decoupled`, shrinks p
            to (1 - lr weight_decay) p before the step, and does not enter the means.
    """
    t = step.add_(1).double()
    rate = lr / (1 - beta1**t).to(p.dtype)
    scale = (1 - beta2**t).rsqrt().to(p.dtype)
    if weight_decay and decoupled:
        p.mul_(1 - lr * weight_decay)
    elif weight_decay:
        g = g + p * weight_decay
    m.mul_(beta1).add_(g, alpha=1 - beta1)
    v.mul_(beta2).add_(g * g, alpha=1 - beta2)
    p.sub_(m / (v.sqrt() * scale + eps) * rate)
