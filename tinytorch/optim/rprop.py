"""Rprop: steps that depend on the signs of the gradients only; for full batches."""

from __future__ import annotations

from typing import Any

from tinytorch.functions.elementwise import where
from tinytorch.optim.optimizer import Group, Optimizer, Parameters, State, buffer_of, scalar_of
from tinytorch.tensor import Tensor


class Rprop(Optimizer):
    """p <- p - sign(g) s, element by element

    The step s grows by the factor eta+ where g has kept its sign, and shrinks by eta- where it has
    changed it; there g is then taken for 0.

    Args:
        params: tensors, or dicts of groups of tensors with options of their own.
        lr: what each s starts from.
        etas: (eta-, eta+).
        step_sizes: the least and the largest s.
        maximize: go up instead of down.
        hints: PyTorch's `foreach`, `capturable`, which change no number.

    Raises:
        ValueError: an option is out of range.

    >>> import tinytorch
    >>> p = tinytorch.tensor([1.0, -2.0], requires_grad=True)
    >>> (p * p).sum().backward()
    >>> Rprop([p], lr=0.5).step()
    >>> p
    tensor([ 0.5, -1.5], requires_grad=True)

    Source: M. Riedmiller, H. Braun, "A direct adaptive method for faster backpropagation learning:
    the RPROP algorithm", 1993.
    """

    required_state = ("step", "prev", "step_size")

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.01,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        *,
        maximize: bool = False,
        **hints: Any,
    ) -> None:
        super().__init__(
            params,
            {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize},
            hints,
        )

    def check_options(self, group: Group) -> None:
        super().check_options(group)
        if not 0 < group["etas"][0] < 1 < group["etas"][1]:
            raise ValueError(f"etas must be (below 1, above 1), got {group['etas']}")

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        scalar_of(state, "step").add_(1)
        (less, more), (least, largest) = group["etas"], group["step_sizes"]
        g = -g if group["maximize"] else g
        before = buffer_of(state, "prev", p)
        agree = g * before
        factor = where(agree > 0, more, where(agree < 0, less, agree.sign() + 1))  # NaN stays NaN
        size = buffer_of(state, "step_size", p, float(group["lr"]))
        size.mul_(factor).clamp_(least, largest)
        g = where(agree < 0, 0.0, g)
        p.sub_(g.sign() * size)
        before.copy_(g)
