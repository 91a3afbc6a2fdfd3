"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

from tinytorch.optim.optimizer import (
    Group,
    Optimizer,
    Parameters,
    State,
    buffer_of,
    learning_rate,
)
from tinytorch.optim.steps import sgd_step
from tinytorch.tensor import Tensor
from tinytorch.updates import Row


class SGD(Optimizer):
    """p <- p - lr v  with  v <- momentum v + (1 - dampening) (g + weight_decay p)

    At the first step v is the gradient itself. With `nesterov`, the step is not along v but along
    g + momentum v, the gradient seen from where the momentum leads.

    Args:
        params: tensors, or dicts of groups of tensors with options of their own.
        lr: learning rate.
        momentum: how much of the last direction remains.
        dampening: how much less the gradient counts once there is momentum.
        weight_decay: strength of the penalty weight_decay / 2 |p|^2.
        nesterov: Nesterov's momentum.
        maximize: go up instead of down.
        hints: PyTorch's `foreach`, `fused`, which change no number.

    Raises:
        ValueError: an option is out of range; nesterov without momentum or with dampening.

    >>> import tinytorch
    >>> p = tinytorch.tensor([1.0, -2.0], requires_grad=True)
    >>> (p * p).sum().backward()
    >>> _ = SGD([p], lr=0.25).step()
    >>> p
    tensor([ 0.5, -1. ], requires_grad=True)

    Source: I. Sutskever et al., "On the importance of initialization and momentum in deep
    learning", 2013, in the form of PyTorch (lr multiplies v and does not enter it).
    """

    required_state = ()
    optional_state = ("momentum_buffer",)

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        **hints: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
            },
            hints,
        )

    def check_options(self, group: Group) -> None:
        super().check_options(group)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError(
                f"nesterov needs momentum above 0 and dampening 0, got momentum "
                f"{group['momentum']} and dampening {group['dampening']}"
            )

    def update_group(self, params: list[Tensor], group: Group) -> None:
        if not group["momentum"] and not group["maximize"]:
            columns: Any = params, [p.grad for p in params]
            lr, decay = group["lr"], group["weight_decay"]  # a mode must not see lr read
            params = params[sgd_step.together(columns, lr=lr, weight_decay=decay) :]
            if not params:
                return
        fresh: list[Row] = []  # at their first step
        begun: list[Row] = []
        for p in params:
            rows, state = begun, None
            if group["momentum"]:
                state = self.state[p]
                rows = begun if "momentum_buffer" in state else fresh
            rows.append(_row(p, p.grad, state, group))  # type: ignore[arg-type]
        for rows in filter(None, (fresh, begun)):
            sgd_step.each(rows, **_numbers(params[0], group), first=rows is fresh)

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        first = "momentum_buffer" not in state
        row = _row(p, g, state if group["momentum"] else None, group)
        sgd_step(*row, **_numbers(p, group), first=first)


def _row(p: Tensor, g: Tensor, state: State | None, group: Group) -> Row:
    """The tensors of `sgd_step`; no state where there is no momentum."""
    buffer = None if state is None else buffer_of(state, "momentum_buffer", p)
    return p, -g if group["maximize"] else g, buffer


def _numbers(p: Tensor, group: Group) -> dict[str, Any]:
    """The numbers of `sgd_step`, for parameters of p's dtype."""
    names = ("momentum", "dampening", "weight_decay", "nesterov")
    return {"lr": learning_rate(group, p), **{name: group[name] for name in names}}
