"""Losses on distances and likelihoods as modules. The formulas are at the functions."""

from __future__ import annotations

from typing import Any

from tinytorch.nn import functional as F
from tinytorch.nn.functional.margin import Distance
from tinytorch.nn.losses import Loss
from tinytorch.nn.module import Module
from tinytorch.tensor import Tensor


class CosineSimilarity(Module):
    """x1 . x2 / (|x1| |x2|) along `dim`."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Two tensors that broadcast give one without dimension `dim`."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps over the last dimension."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """(n, d) and (n, d) give (n,)."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class MarginRankingLoss(Loss):
    """max(0, margin - target * (input1 - input2))"""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Scores, and targets of 1 and -1, give the loss."""
        return F.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class HingeEmbeddingLoss(Loss):
    """input where the target is 1, max(0, margin - input) where it is -1."""

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Distances, and targets of 1 and -1, give the loss."""
        return F.hinge_embedding_loss(input, target, self.margin, self.reduction)


class CosineEmbeddingLoss(Loss):
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """(n, d), (n, d) and targets (n,) give the loss."""
        return F.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


class TripletMarginLoss(Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)"""

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Three of (n, d) give the loss."""
        return F.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, self.reduction
        )


class TripletMarginWithDistanceLoss(Loss):
    """`TripletMarginLoss` with any distance; by default `functional.pairwise_distance`."""

    def __init__(
        self,
        *,
        distance_function: Distance | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.distance_function = distance_function
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Three tensors that the distance takes give the loss."""
        return F.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function,
            margin=self.margin, swap=self.swap, reduction=self.reduction,
        )  # fmt: skip


class SoftMarginLoss(Loss):
    """log(1 + exp(-target * input)), for targets 1 and -1."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape give the loss."""
        return F.soft_margin_loss(input, target, self.reduction)


class MultiLabelSoftMarginLoss(Loss):
    """The mean over the classes of binary cross entropy with logits."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two of (n, classes) give the loss."""
        return F.multilabel_soft_margin_loss(input, target, self.weight, self.reduction)


class MultiMarginLoss(Loss):
    """The mean over the classes of max(0, margin - input[target] + input[i])^p."""

    weight: Tensor | None

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.p = p
        self.margin = margin
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Scores (n, classes) and class indices (n,) give the loss."""
        return F.multi_margin_loss(input, target, self.p, self.margin, self.weight, self.reduction)


class GaussianNLLLoss(Loss):
    """(log(var) + (input - target)^2 / var) / 2"""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        """Means, targets and variances give the loss."""
        return F.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


class PoissonNLLLoss(Loss):
    """exp(input) - target * input; or, with log_input=False, input - target * log(input)."""

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of the same shape give the loss."""
        return F.poisson_nll_loss(
            log_input, target, self.log_input, self.full, self.eps, self.reduction
        )


class CTCLoss(Loss):
    """-log of the probability of a label sequence ; see `functional.ctc_loss`."""

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        """(time, n, classes), (n, longest), and two of (n,) give the loss."""
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction,
            self.zero_infinity,
        )  # fmt: skip
