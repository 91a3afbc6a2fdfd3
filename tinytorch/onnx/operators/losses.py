"""ONNX's losses over classes."""

from __future__ import annotations

from tinytorch.functions import reductions as r
from tinytorch.nn import functional as F
from tinytorch.nn.functional.cross_entropy import IGNORE
from tinytorch.onnx.operators.registry import operator
from tinytorch.tensor import Tensor


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(
    logp: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    ignored = IGNORE if ignore_index is None else ignore_index
    target = target.long()
    return F.nll_loss(logp, target, weight, ignore_index=ignored, reduction=reduction)


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    """The loss, and the logarithms of the probabilities."""
    logp = r.log_softmax(logits, 1)
    loss = negative_log_likelihood_loss(
        logp, target, weight, ignore_index=ignore_index, reduction=reduction
    )
    return loss, logp
