"""Adam, and AdamW: steps scaled by running moments of the gradient."""

from __future__ import annotations

import math

from tinytorch.dispatch import live_scalar
from tinytorch.dtypes import Array
from tinytorch.functions.elementwise import maximum
from tinytorch.history import write_clock
from tinytorch.optim.optimizer import (
    Group,
    Kernel,
    Optimizer,
    Parameters,
    State,
    buffer_of,
)
from tinytorch.tensor import Tensor


class Adam(Optimizer):
    """p <- p - lr m^ / (sqrt(v^) + eps)  with the running means m of g and v of g^2

        m <- beta1 m + (1 - beta1) g      m^ = m / (1 - beta1^t)
        v <- beta2 v + (1 - beta2) g^2    v^ = v / (1 - beta2^t)

    m and v start at 0; dividing by 1 - beta^t at step t takes that bias away. Weight decay adds
    weight_decay p to g, as the penalty weight_decay / 2 |p|^2 would.

    Args:
        params: tensors, or dicts of groups of tensors with options of their own.
        lr: learning rate.
        betas: (beta1, beta2), how much of the running means remains.
        eps: added to the denominator.
        weight_decay: strength of the penalty.
        amsgrad: divide by the largest v so far instead of v.
        maximize: go up instead of down.

    Raises:
        ValueError: an option is out of range.

    >>> import tinytorch
    >>> p = tinytorch.tensor([1.0, -2.0], requires_grad=True)
    >>> (p * p).sum().backward()
    >>> _ = Adam([p], lr=0.5).step()
    >>> p
    tensor([ 0.5, -1.5], requires_grad=True)

    Source: D. Kingma, J. Ba, "Adam: a method for stochastic optimization", 2015, algorithm 1;
    amsgrad: S. Reddi et al., "On the convergence of Adam and beyond", 2018.
    """

    required_state = ("step", "exp_avg", "exp_avg_sq")
    optional_state = ("max_exp_avg_sq",)
    #: Weight decay shrinks the parameter itself and does not enter the moments.
    decoupled = False

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
            },
        )

    def check_options(self, group: Group) -> None:
        super().check_options(group)
        if len(group["betas"]) != 2 or not all(0 <= beta < 1 for beta in group["betas"]):
            raise ValueError(f"betas must be two numbers in [0, 1), got {group['betas']}")
        if not group["eps"] >= 0:
            raise ValueError(f"eps must be at least 0, got {group['eps']}")

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        beta1, beta2 = group["betas"]
        m, v = buffer_of(state, "exp_avg", p), buffer_of(state, "exp_avg_sq", p)
        if group["maximize"]:
            g = -g
        if self.decoupled:
            p.mul_(live_scalar(lambda: 1 - group["lr"] * group["weight_decay"], p.dtype))
        elif group["weight_decay"]:
            g = g + p * group["weight_decay"]
        m.mul_(beta1).add_(g, alpha=1 - beta1)
        v.mul_(beta2).add_(g * g, alpha=1 - beta2)
        if group["amsgrad"]:
            v = buffer_of(state, "max_exp_avg_sq", p).copy_(
                maximum(buffer_of(state, "max_exp_avg_sq", p), v)
            )

        # A traced step reads these at every call, in this order, and so counts it.
        def correction() -> float:
            state["step"] = state.get("step", 0) + 1
            return float(math.sqrt(1 - beta2 ** state["step"]))

        def rate() -> float:
            return float(group["lr"] / (1 - beta1 ** state["step"]))

        denominator = v.sqrt() / live_scalar(correction, p.dtype) + group["eps"]
        p.sub_(m / denominator * live_scalar(rate, p.dtype))

    def _moments(self, p: Tensor, state: State) -> tuple[int, Tensor, Tensor]:
        """The number of this step, m and v."""
        step = state["step"] = state.get("step", 0) + 1
        return step, buffer_of(state, "exp_avg", p), buffer_of(state, "exp_avg_sq", p)

    def kernel_name(self, group: Group) -> str | None:
        return None if group["maximize"] or group["amsgrad"] else "adam_step"

    def update_fused(self, kernel: Kernel, p: Tensor, g: Array, state: State, group: Group) -> None:
        step, m, v = self._moments(p, state)
        beta1, beta2 = group["betas"]
        kernel(
            p._data,
            g,
            m._data,
            v._data,
            step=step,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            decoupled=self.decoupled,
        )
        write_clock.write(m._data)
        write_clock.write(v._data)


class AdamW(Adam):
    """Adam whose weight decay is p <- (1 - lr weight_decay) p, before the step

    So the decay is the same for all parameters, and not divided by sqrt(v). The arguments are
    Adam's; `weight_decay` is 0.01 unless given.

    >>> import tinytorch
    >>> p = tinytorch.tensor([1.0, -2.0], requires_grad=True)
    >>> (0 * p).sum().backward()
    >>> _ = AdamW([p], lr=0.5, weight_decay=0.5).step()
    >>> p
    tensor([ 0.75, -1.5 ], requires_grad=True)

    Source: I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", 2019, algorithm 2.
    """

    decoupled = True

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)
