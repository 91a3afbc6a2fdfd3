"""Losses as modules. Formulas, shapes and errors are at the functions in `nn.functional`."""

from __future__ import annotations

from tinytorch.absent import accepts_size_average
from tinytorch.nn import functional as F
from tinytorch.nn.functional.cross_entropy import IGNORE
from tinytorch.nn.functional.reduction import REDUCTIONS, check_reduction
from tinytorch.nn.module import Module
from tinytorch.tensor import Tensor


class Loss(Module):
    """The base class of all losses.

    Args:
        reduction: "mean", "sum", or "none" for the loss of every element.

    Raises:
        ValueError: it is none of these.
    """

    reductions: tuple[str, ...] = REDUCTIONS

    def __init_subclass__(cls) -> None:
        cls.__init__ = accepts_size_average(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = check_reduction(reduction, self.reductions)

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class MSELoss(Loss):
    """(input - target)^2"""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape give the loss."""
        return F.mse_loss(input, target, self.reduction)


class L1Loss(Loss):
    """|input - target|"""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape give the loss."""
        return F.l1_loss(input, target, self.reduction)


class HuberLoss(Loss):
    """d^2 / 2 where |d| <= delta, delta * (|d| - delta / 2) elsewhere, for d = input - target."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape give the loss."""
        return F.huber_loss(input, target, self.reduction, self.delta)


class SmoothL1Loss(Loss):
    """HuberLoss / beta, and for beta = 0 L1Loss."""

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape give the loss."""
        return F.smooth_l1_loss(input, target, self.reduction, self.beta)


class CrossEntropyLoss(Loss):
    """-log(softmax(input)[target]), for logits and class indices or class probabilities.

    Args:
        weight: (classes,): how much each class counts; kept as a buffer.
        ignore_index: class indices of this value do not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: the part, from 0 to 1, of the target that is spread over all classes.
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = IGNORE,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Logits (n, classes, ...) and class indices (n, ...) give the loss."""
        is_usual = self.weight is None and self.reduction == "mean" and self.label_smoothing == 0
        if is_usual and self.ignore_index == IGNORE:
            return F.cross_entropy(input, target)  # two tensors are looked up soonest, see replay
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(Loss):
    """-input[target], for log probabilities.

    Args:
        weight, ignore_index, reduction: as for `CrossEntropyLoss`.
    """

    weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = IGNORE, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Log probabilities (n, classes, ...) and class indices (n, ...) give the loss."""
        return F.nll_loss(
            input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )


class BCELoss(Loss):
    """-(target * log(input) + (1 - target) * log(1 - input)), for probabilities.

    Args:
        weight: how much each element counts; it broadcasts; kept as a buffer.
        reduction: "mean", "sum" or "none".
    """

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape give the loss."""
        return F.binary_cross_entropy(input, target, self.weight, self.reduction)


class BCEWithLogitsLoss(Loss):
    """BCELoss of sigmoid(input), exact for logits of any size.

    Args:
        weight: how much each element counts; it broadcasts; kept as a buffer.
        reduction: "mean", "sum" or "none".
        pos_weight: how much the target counts against 1 - target; it broadcasts; kept as a buffer.
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape give the loss."""
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, self.reduction, self.pos_weight
        )


class KLDivLoss(Loss):
    """target * (log(target) - input), for log probabilities as input.

    Args:
        reduction: "batchmean" (the divergence by its definition), "mean", "sum" or "none".
        log_target: the targets are log probabilities too.
    """

    reductions = (*REDUCTIONS, "batchmean")

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape give the loss."""
        return F.kl_div(input, target, self.reduction, self.log_target)
