"""Losses that ask for a distance: between scores, pairs and triples."""

from __future__ import annotations

from collections.abc import Callable

from tinytorch.creation import arange
from tinytorch.errors import ShapeError
from tinytorch.functions.elementwise import clip, minimum, where
from tinytorch.functions.indexing import gather
from tinytorch.functions.movement import unsqueeze
from tinytorch.functions.reductions import mean, sum
from tinytorch.nn.functional.activation import EXACT_THRESHOLD, logsigmoid, relu, softplus
from tinytorch.nn.functional.cross_entropy import check_class_weight
from tinytorch.nn.functional.reduction import check_same_shape, reduce_loss
from tinytorch.nn.functional.similarity import pairwise_distance
from tinytorch.tensor import Tensor

Distance = Callable[[Tensor, Tensor], Tensor]


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """max(0, margin - target * (input1 - input2)): 1 asks for a larger input1.

    Raises:
        ShapeError: the three have different numbers of dimensions.
    """
    _check_dimensions("margin_ranking_loss", input1, input2, target)
    return reduce_loss(clip(margin - target * (input1 - input2), min=0.0), reduction)


def _check_dimensions(name: str, *tensors: Tensor) -> None:
    """Raise ShapeError unless all have as many: (n,) and (n, 1) would broadcast to n^2 pairs."""
    shapes = [t.shape for t in tensors]
    if len({len(shape) for shape in shapes}) > 1:
        raise ShapeError(f"{name}: {shapes} must have as many dimensions")


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """input where the target is 1, max(0, margin - input) where it is -1."""
    near = where(target == -1, 0.0, input)
    far = where(target == 1, 0.0, clip(margin - input, min=0.0))
    return reduce_loss(near + far, reduction)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1.

    Args:
        input1, input2: (n, d) or (d,).
        target: (n,) or ().

    Raises:
        ShapeError: the shapes do not fit.
    """
    check_same_shape("cosine_embedding_loss", input1, input2)
    if input1.ndim not in (1, 2) or target.shape != input1.shape[:-1]:
        raise ShapeError(
            f"cosine_embedding_loss: input {input1.shape} must be (n, d) or (d,), and target "
            f"{target.shape} {input1.shape[:-1]}"
        )
    cosine = _stable_cosine(input1, input2)
    loss = where(target == 1, 1.0 - cosine, clip(cosine - margin, min=0.0))
    return reduce_loss(loss, reduction)


def _stable_cosine(a: Tensor, b: Tensor) -> Tensor:
    """The cosine with a small number under the root, which is what PyTorch's loss has."""
    eps = 1e-12
    squares = (sum(a * a, -1) + eps) * (sum(b * b, -1) + eps)
    return sum(a * b, -1) / squares.sqrt()


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d the p-norm of the difference.

    Args:
        swap: take the smaller of d(anchor, negative) and d(positive, negative).

    Source: V. Balntas et al., "Learning shallow convolutional feature descriptors with triplet
    losses", 2016.

    Raises:
        ShapeError: the three have different numbers of dimensions.
        ValueError: margin is not positive.
    """

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return pairwise_distance(a, b, p, eps)

    return triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=distance, margin=margin, swap=swap,
        reduction=reduction,
    )  # fmt: skip


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Distance | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with any distance; by default `pairwise_distance`."""
    distance = distance_function or pairwise_distance
    if not margin > 0:
        raise ValueError(f"triplet_margin_loss: margin must be positive, not {margin}")
    _check_dimensions("triplet_margin_loss", anchor, positive, negative)
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduce_loss(clip(near - far + margin, min=0.0), reduction)


def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input)), for targets 1 and -1."""
    check_same_shape("soft_margin_loss", input, target)
    return reduce_loss(softplus(-target * input, threshold=EXACT_THRESHOLD), reduction)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The mean over the classes (the last dimension) of binary cross entropy with logits."""
    check_same_shape("multilabel_soft_margin_loss", input, target)
    loss = -(target * logsigmoid(input) + (1.0 - target) * logsigmoid(-input))
    return reduce_loss(mean(loss if weight is None else loss * weight, -1), reduction)


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The sum over other classes of max(0, margin - input[target] + input[i])^p, over classes.

    Args:
        input: scores (n, classes) or (classes,).
        target: class indices (n,) or ().
        p: 1 or 2.
        weight: (classes,): how much each class counts.

    Raises:
        ShapeError: the shapes do not fit.
        ValueError: another p.
    """
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: p is {p!r}, and may be 1 or 2")
    if input.ndim not in (1, 2) or target.shape != input.shape[:-1]:
        raise ShapeError(
            f"multi_margin_loss: input {input.shape} must be (n, classes) or (classes,), and "
            f"target {target.shape} {input.shape[:-1]}"
        )
    if weight is not None:
        check_class_weight("multi_margin_loss", input, weight)
    picked = gather(input, -1, unsqueeze(target, -1))
    terms = relu(margin - picked + input)  # whose gradient at 0 is 0
    terms = terms * terms if p == 2 else terms
    if weight is not None:
        terms = terms * unsqueeze(weight[target], -1)
    others = unsqueeze(target, -1) != arange(input.shape[-1])
    return reduce_loss(sum(where(others, terms, 0.0), -1) / input.shape[-1], reduction)
