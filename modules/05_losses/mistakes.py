"""Wrong solutions that students write, with the points that they lose, and other right ones."""

from tito.lessons.mistake import Alternative, Equivalent, Mistake

PICKED = """
def _picked(name, logp, target, weight, ignore_index):
    _check_labels(name, logp, target, ignore_index)
    dim, counted = _class_dim(logp), ne(target, ignore_index)
    label = where(counted, target, 0)
    picked = squeeze(gather(logp, dim, unsqueeze(label, dim)), dim)
    counts = counted.to(logp.dtype)
    if weight is not None:
        counts = where(counted, apply(ops.take, weight, label), 0.0)
    return where(counted, 0.0 - picked * counts, 0.0), counts
"""


def changed(text: str, old: str, new: str) -> str:
    """The text with `old`, which it has once, replaced."""
    if text.count(old) != 1:
        raise ValueError(f"{old!r} is {text.count(old)} times in the text")
    return text.replace(old, new)


MISTAKES = [
    Mistake(
        exercise="one-number",
        name="takes every other word for a sum",
        source="""
def check_reduction(reduction, known=REDUCTIONS):
    return reduction

def reduce_loss(loss, reduction):
    if reduction == "none":
        return loss
    return mean(loss) if reduction == "mean" else sum(loss)
""",
        loses={
            "reductions-unknown": 1,
            "reductions-edges": 1,
            "weighted-mean": 2,
            "soft-targets-values": 2,
        },
    ),
    Mistake(
        exercise="one-number",
        name="forgets which words the caller knows",
        source="""
def check_reduction(reduction, known=REDUCTIONS):
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {REDUCTIONS}, not {reduction!r}")
    return reduction
""",
        loses={"reductions-unknown": 1},
    ),
    Mistake(
        exercise="one-number",
        name="returns nothing from the check",
        source="""
def check_reduction(reduction, known=REDUCTIONS):
    if reduction not in known:
        raise ValueError(f"reduction must be one of {', '.join(known)}, not {reduction!r}")
""",
        loses={"reductions-unknown": 1},
    ),
    Mistake(
        exercise="one-number",
        name="does not say which words are known",
        source="""
def check_reduction(reduction, known=REDUCTIONS):
    if reduction not in known:
        raise ValueError(f"unknown reduction {reduction!r}")
    return reduction
""",
        loses={"reductions-unknown": 1},
    ),
    Mistake(
        exercise="one-number",
        name="divides by the weights before they are expanded",
        source="""
def reduce_weighted(loss, weight, reduction):
    if weight is None:
        return reduce_loss(loss, reduction)
    if reduction == "mean":
        return sum(loss * weight) / sum(weight)
    return reduce_loss(loss * weight, reduction)
""",
        loses={"reductions-weighted": 2, "reductions-edges": 1},
    ),
    Mistake(
        exercise="one-number",
        name="divides the weighted sum by the number of losses",
        source="""
def reduce_weighted(loss, weight, reduction):
    if weight is None:
        return reduce_loss(loss, reduction)
    return reduce_loss(loss * weight, reduction)
""",
        loses={"reductions-weighted": 2, "reductions-edges": 1, "squared-error-values": 2},
    ),
    Mistake(
        exercise="one-number",
        name="forgets that there may be no weight",
        source="""
def reduce_weighted(loss, weight, reduction):
    weight = expand(weight, loss.shape)
    if reduction == "mean":
        return sum(loss * weight) / sum(weight)
    return reduce_loss(loss * weight, reduction)
""",
        loses={
            "reductions-weighted": 2,
            "squared-error-values": 2,
            "squared-error-shapes": 2,
            "squared-error-edges": 1,
        },
    ),
    Mistake(
        exercise="one-number",
        name="gives the mean as a Python number",
        source="""
def reduce_loss(loss, reduction):
    check_reduction(reduction)
    if reduction == "none":
        return loss
    return (mean(loss) if reduction == "mean" else sum(loss)).item()
""",
        loses={
            "reductions-values": 2,
            "reductions-weighted": 2,
            "reductions-edges": 1,
            "squared-error-values": 2,
            "squared-error-shapes": 2,
            "squared-error-edges": 1,
            "soft-targets-values": 2,
            "soft-targets-smoothing": 1,
            "soft-targets-edges": 1,
            "yes-or-no-values": 2,
            "yes-or-no-large": 2,
            "yes-or-no-weights": 2,
        },
    ),
    Mistake(
        exercise="squared-error",
        name="does not ask for the shapes",
        source="""
def mse_loss(input, target, reduction="mean", weight=None):
    difference = input - target
    return reduce_weighted(difference * difference, weight, reduction)
""",
        loses={"squared-error-shapes": 2, "squared-error-edges": 1},
    ),
    Mistake(
        exercise="squared-error",
        name="compares the numbers of elements",
        source="""
def check_same_shape(name, input, target):
    if input.numel() != target.numel():
        raise ShapeError(f"{name}: input {input.shape} and target {target.shape} differ")
""",
        loses={"squared-error-shapes": 2, "squared-error-edges": 1, "yes-or-no-weights": 2},
    ),
    Mistake(
        exercise="squared-error",
        name="compares the numbers of dimensions",
        source="""
def check_same_shape(name, input, target):
    if input.ndim != target.ndim:
        raise ShapeError(f"{name}: input {input.shape} and target {target.shape} differ")
""",
        loses={"squared-error-edges": 1},
    ),
    Mistake(
        exercise="squared-error",
        name="says nothing that helps",
        source="""
def check_same_shape(name, input, target):
    if input.shape != target.shape:
        raise ShapeError("wrong shapes")
""",
        loses={"squared-error-shapes": 2, "yes-or-no-weights": 2},
    ),
    Mistake(
        exercise="squared-error",
        name="takes the error without its square",
        source="""
def mse_loss(input, target, reduction="mean", weight=None):
    check_same_shape("mse_loss", input, target)
    return reduce_weighted((input - target).abs(), weight, reduction)
""",
        loses={"squared-error-values": 2, "squared-error-edges": 1},
    ),
    Mistake(
        exercise="squared-error",
        name="halves the square, as in books",
        source="""
def mse_loss(input, target, reduction="mean", weight=None):
    check_same_shape("mse_loss", input, target)
    difference = input - target
    return reduce_weighted(difference * difference * 0.5, weight, reduction)
""",
        loses={"squared-error-values": 2, "squared-error-shapes": 2, "squared-error-edges": 1},
    ),
    Mistake(
        exercise="squared-error",
        name="forgets the weight",
        source="""
def mse_loss(input, target, reduction="mean", weight=None):
    check_same_shape("mse_loss", input, target)
    difference = input - target
    return reduce_loss(difference * difference, reduction)
""",
        loses={"squared-error-values": 2},
    ),
    Mistake(
        exercise="log-sum-exp",
        name="takes the formula as on paper",
        source="""
def logsumexp(x, dim=None, keepdim=False):
    dims = normalize_dims(dim, x.ndim)
    return elementwise.log(sum(elementwise.exp(x), dims, keepdim=keepdim))
""",
        loses={"log-sum-exp-large": 2, "log-sum-exp-infinite": 1},
    ),
    Mistake(
        exercise="log-sum-exp",
        name="shifts by the largest of all scores",
        source="""
def logsumexp(x, dim=None, keepdim=False):
    dims = normalize_dims(dim, x.ndim)
    largest = x.amax()
    shift = elementwise.where(elementwise.isfinite(largest), largest, 0.0)
    return elementwise.log(sum(elementwise.exp(x - shift), dims, keepdim=keepdim)) + shift
""",
        loses={"log-sum-exp-large": 2},
    ),
    Mistake(
        exercise="log-sum-exp",
        name="does not add the shift again",
        source="""
def logsumexp(x, dim=None, keepdim=False):
    dims = normalize_dims(dim, x.ndim)
    largest = apply(ops.amax, x, dims=dims, keepdim=True)
    shift = elementwise.where(elementwise.isfinite(largest), largest, 0.0)
    return elementwise.log(sum(elementwise.exp(x - shift), dims, keepdim=keepdim))
""",
        loses={"log-sum-exp-values": 2, "log-sum-exp-large": 2},
    ),
    Mistake(
        exercise="log-sum-exp",
        name="subtracts an infinite largest score",
        source="""
def logsumexp(x, dim=None, keepdim=False):
    dims = normalize_dims(dim, x.ndim)
    largest = apply(ops.amax, x, dims=dims, keepdim=True)
    total = elementwise.log(sum(elementwise.exp(x - largest), dims, keepdim=True)) + largest
    return total if keepdim else movement.reshape(total, _without(x.shape, dims))
""",
        loses={"log-sum-exp-infinite": 1},
    ),
    Mistake(
        exercise="log-sum-exp",
        name="keeps the dimension always",
        source="""
def logsumexp(x, dim=None, keepdim=False):
    dims = normalize_dims(dim, x.ndim)
    largest = apply(ops.amax, x, dims=dims, keepdim=True)
    shift = elementwise.where(elementwise.isfinite(largest), largest, 0.0)
    return elementwise.log(sum(elementwise.exp(x - shift), dims, keepdim=True)) + shift
""",
        loses={"log-sum-exp-values": 2, "log-sum-exp-large": 2, "log-sum-exp-infinite": 1},
    ),
    Mistake(
        exercise="cross-entropy",
        name="takes the logarithm of the softmax",
        source="""
def cross_entropy(x, target):
    logp = apply(ops.softmax, x, dim=1).log()
    return 0.0 - indexing.gather(logp, 1, target.unsqueeze(1)).mean()
""",
        loses={"cross-entropy-large": 1},
    ),
    Mistake(
        exercise="cross-entropy",
        name="normalizes over the rows",
        source="""
def cross_entropy(x, target):
    logp = apply(ops.log_softmax, x, dim=0)
    return 0.0 - indexing.gather(logp, 1, target.unsqueeze(1)).mean()
""",
        loses={"cross-entropy-values": 2, "cross-entropy-large": 1, "cross-entropy-differences": 1},
    ),
    Mistake(
        exercise="cross-entropy",
        name="forgets the minus",
        source="""
def cross_entropy(x, target):
    logp = apply(ops.log_softmax, x, dim=1)
    return indexing.gather(logp, 1, target.unsqueeze(1)).mean()
""",
        loses={"cross-entropy-values": 2, "cross-entropy-large": 1, "cross-entropy-differences": 1},
    ),
    Mistake(
        exercise="cross-entropy",
        name="sums over the rows",
        source="""
def cross_entropy(x, target):
    logp = apply(ops.log_softmax, x, dim=1)
    return 0.0 - indexing.gather(logp, 1, target.unsqueeze(1)).sum()
""",
        loses={"cross-entropy-values": 2, "cross-entropy-large": 1, "cross-entropy-differences": 1},
    ),
    Mistake(
        exercise="cross-entropy",
        name="forgets that the loss is a mean",
        source="""
def cross_entropy_backward(g, x, target):
    probabilities = apply(ops.softmax, x, dim=1)
    return (probabilities - indexing.one_hot(target, x.shape[1]).to(x.dtype)) * g
""",
        loses={"cross-entropy-gradient": 2, "cross-entropy-differences": 1},
    ),
    Mistake(
        exercise="cross-entropy",
        name="forgets the gradient that comes in",
        source="""
def cross_entropy_backward(g, x, target):
    probabilities = apply(ops.softmax, x, dim=1)
    return (probabilities - indexing.one_hot(target, x.shape[1]).to(x.dtype)) / x.shape[0]
""",
        loses={"cross-entropy-gradient": 2},
    ),
    Mistake(
        exercise="cross-entropy",
        name="turns the gradient around",
        source="""
def cross_entropy_backward(g, x, target):
    probabilities = apply(ops.softmax, x, dim=1)
    return (indexing.one_hot(target, x.shape[1]).to(x.dtype) - probabilities) * (g / x.shape[0])
""",
        loses={"cross-entropy-gradient": 2, "cross-entropy-differences": 1},
    ),
    Mistake(
        exercise="targets-that-count",
        name="multiplies what is ignored by 0",
        source=changed(
            PICKED,
            "return where(counted, 0.0 - picked * counts, 0.0), counts",
            "return 0.0 - picked * counts, counts",
        ),
        loses={"picked-everywhere": 1},
    ),
    Mistake(
        exercise="targets-that-count",
        name="knows only one ignored label",
        source=changed(PICKED, "ne(target, ignore_index)", "target >= 0"),
        loses={"picked-everywhere": 1},
    ),
    Mistake(
        exercise="targets-that-count",
        name="forgets the weight in the loss",
        source=changed(PICKED, "0.0 - picked * counts", "0.0 - picked"),
        loses={"picked-weights": 1},
    ),
    Mistake(
        exercise="targets-that-count",
        name="counts what is ignored with the weight of class 0",
        source=changed(
            PICKED,
            "where(counted, apply(ops.take, weight, label), 0.0)",
            "apply(ops.take, weight, label)",
        ),
        loses={"picked-weights": 1, "picked-everywhere": 1},
    ),
    Mistake(
        exercise="targets-that-count",
        name="does not check the labels",
        source=changed(
            changed(PICKED, "    _check_labels(name, logp, target, ignore_index)\n", ""),
            "where(counted, target, 0)",
            "where(counted, target, 0).clip(0, logp.shape[_class_dim(logp)] - 1)",
        ),
        loses={"picked-everywhere": 1},
    ),
    Mistake(
        exercise="targets-that-count",
        name="takes the last dimension for the classes",
        source=changed(PICKED, "_class_dim(logp)", "logp.ndim - 1"),
        loses={"picked-everywhere": 1},
    ),
    Mistake(
        exercise="targets-that-count",
        name="divides by the number of all targets",
        source="""
def _weighted(losses, counts, reduction):
    check_reduction(reduction)
    if reduction == "none":
        return losses
    return sum(losses) / losses.numel() if reduction == "mean" else sum(losses)
""",
        loses={"weighted-mean": 2},
    ),
    Mistake(
        exercise="targets-that-count",
        name="weights the losses a second time",
        source="""
def _weighted(losses, counts, reduction):
    check_reduction(reduction)
    if reduction == "none":
        return losses
    total = sum(losses * counts)
    return total / sum(counts) if reduction == "mean" else total
""",
        loses={"weighted-mean": 2},
    ),
    Mistake(
        exercise="soft-targets",
        name="takes the mean over all elements",
        source="""
def _soft_cross_entropy(input, target, weight, reduction, smoothing):
    if target.shape != input.shape:
        raise ShapeError(f"target {target.shape} must have the shape {input.shape}")
    dim = _class_dim(input)
    target = target * (1 - smoothing) + smoothing / input.shape[dim]
    logp = log_softmax(input, dim)
    each = target * logp if weight is None else target * logp * _along(weight, logp)
    return reduce_loss(0.0 - each, reduction)
""",
        loses={"soft-targets-values": 2, "soft-targets-edges": 1},
    ),
    Mistake(
        exercise="soft-targets",
        name="spreads the whole part to each class",
        source="""
def _soft_cross_entropy(input, target, weight, reduction, smoothing):
    if target.shape != input.shape:
        raise ShapeError(f"target {target.shape} must have the shape {input.shape}")
    dim = _class_dim(input)
    target = target * (1 - smoothing) + smoothing
    logp = log_softmax(input, dim)
    each = target * logp if weight is None else target * logp * _along(weight, logp)
    return reduce_loss(0.0 - sum(each, dim), reduction)
""",
        loses={"soft-targets-smoothing": 1, "soft-targets-edges": 1},
    ),
    Mistake(
        exercise="soft-targets",
        name="forgets to take the part away from the target",
        source="""
def _soft_cross_entropy(input, target, weight, reduction, smoothing):
    if target.shape != input.shape:
        raise ShapeError(f"target {target.shape} must have the shape {input.shape}")
    dim = _class_dim(input)
    target = target + smoothing / input.shape[dim]
    logp = log_softmax(input, dim)
    each = target * logp if weight is None else target * logp * _along(weight, logp)
    return reduce_loss(0.0 - sum(each, dim), reduction)
""",
        loses={"soft-targets-smoothing": 1, "soft-targets-edges": 1},
    ),
    Mistake(
        exercise="soft-targets",
        name="counts the dimensions only",
        source="""
def _soft_cross_entropy(input, target, weight, reduction, smoothing):
    if target.ndim != input.ndim:
        raise ShapeError(f"target {target.shape} must have the shape {input.shape}")
    dim = _class_dim(input)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / input.shape[dim]
    logp = log_softmax(input, dim)
    each = target * logp if weight is None else target * logp * _along(weight, logp)
    return reduce_loss(0.0 - sum(each, dim), reduction)
""",
        loses={"soft-targets-edges": 1},
    ),
    Mistake(
        exercise="soft-targets",
        name="lets a target broadcast",
        source="""
def _soft_cross_entropy(input, target, weight, reduction, smoothing):
    dim = _class_dim(input)
    target = target * (1 - smoothing) + smoothing / input.shape[dim]
    logp = log_softmax(input, dim)
    each = target * logp if weight is None else target * logp * _along(weight, logp)
    return reduce_loss(0.0 - sum(each, dim), reduction)
""",
        loses={"soft-targets-edges": 1},
    ),
    Mistake(
        exercise="soft-targets",
        name="takes the last dimension for the classes",
        source="""
def _soft_cross_entropy(input, target, weight, reduction, smoothing):
    if target.shape != input.shape:
        raise ShapeError(f"target {target.shape} must have the shape {input.shape}")
    target = target * (1 - smoothing) + smoothing / input.shape[-1]
    logp = log_softmax(input, -1)
    each = target * logp if weight is None else target * logp * _along(weight, logp)
    return reduce_loss(0.0 - sum(each, -1), reduction)
""",
        loses={"soft-targets-edges": 1},
    ),
    Mistake(
        exercise="yes-or-no",
        name="computes the sigmoid and its logarithm",
        source="""
def binary_cross_entropy_with_logits(input, target, weight=None, reduction="mean", pos_weight=None):
    check_same_shape("binary_cross_entropy_with_logits", input, target)
    p = input.sigmoid()
    positive = 0.0 - target * p.log()
    negative = 0.0 - (1.0 - target) * (1.0 - p).log()
    loss = (positive if pos_weight is None else positive * pos_weight) + negative
    return reduce_loss(loss if weight is None else loss * weight, reduction)
""",
        loses={"yes-or-no-large": 2},
    ),
    Mistake(
        exercise="yes-or-no",
        name="uses the usual threshold",
        source="""
def binary_cross_entropy_with_logits(input, target, weight=None, reduction="mean", pos_weight=None):
    check_same_shape("binary_cross_entropy_with_logits", input, target)
    positive = target * softplus(-input)
    negative = (1.0 - target) * softplus(input)
    loss = (positive if pos_weight is None else positive * pos_weight) + negative
    return reduce_loss(loss if weight is None else loss * weight, reduction)
""",
        loses={"yes-or-no-large": 2},
    ),
    Mistake(
        exercise="yes-or-no",
        name="confuses the two terms",
        source="""
def binary_cross_entropy_with_logits(input, target, weight=None, reduction="mean", pos_weight=None):
    check_same_shape("binary_cross_entropy_with_logits", input, target)
    positive = target * softplus(input, threshold=EXACT_THRESHOLD)
    negative = (1.0 - target) * softplus(-input, threshold=EXACT_THRESHOLD)
    loss = (positive if pos_weight is None else positive * pos_weight) + negative
    return reduce_loss(loss if weight is None else loss * weight, reduction)
""",
        loses={"yes-or-no-values": 2, "yes-or-no-large": 2},
    ),
    Mistake(
        exercise="yes-or-no",
        name="counts the negatives by pos_weight too",
        source="""
def binary_cross_entropy_with_logits(input, target, weight=None, reduction="mean", pos_weight=None):
    check_same_shape("binary_cross_entropy_with_logits", input, target)
    loss = target * softplus(-input, threshold=EXACT_THRESHOLD)
    loss = loss + (1.0 - target) * softplus(input, threshold=EXACT_THRESHOLD)
    loss = loss if pos_weight is None else loss * pos_weight
    return reduce_loss(loss if weight is None else loss * weight, reduction)
""",
        loses={"yes-or-no-weights": 2},
    ),
    Mistake(
        exercise="yes-or-no",
        name="divides by the weights in the mean",
        source="""
def binary_cross_entropy_with_logits(input, target, weight=None, reduction="mean", pos_weight=None):
    check_same_shape("binary_cross_entropy_with_logits", input, target)
    positive = target * softplus(-input, threshold=EXACT_THRESHOLD)
    negative = (1.0 - target) * softplus(input, threshold=EXACT_THRESHOLD)
    loss = (positive if pos_weight is None else positive * pos_weight) + negative
    if weight is not None and reduction == "mean":
        return (loss * weight).sum() / weight.expand(loss.shape).sum()
    return reduce_loss(loss if weight is None else loss * weight, reduction)
""",
        loses={"yes-or-no-weights": 2},
    ),
    Mistake(
        exercise="yes-or-no",
        name="lets the target broadcast",
        source="""
def binary_cross_entropy_with_logits(input, target, weight=None, reduction="mean", pos_weight=None):
    positive = target * softplus(-input, threshold=EXACT_THRESHOLD)
    negative = (1.0 - target) * softplus(input, threshold=EXACT_THRESHOLD)
    loss = (positive if pos_weight is None else positive * pos_weight) + negative
    return reduce_loss(loss if weight is None else loss * weight, reduction)
""",
        loses={"yes-or-no-weights": 2},
    ),
    Mistake(
        exercise="one-number",
        name="adds a little to the weights, to be safe",
        source="""
def reduce_weighted(loss, weight, reduction):
    if weight is None:
        return reduce_loss(loss, reduction)
    weight = expand(weight, loss.shape)
    if reduction == "mean":
        return sum(loss * weight) / (sum(weight) + 1e-8)
    return reduce_loss(loss * weight, reduction)
""",
        loses={"reductions-edges": 1},
    ),
    Mistake(
        exercise="squared-error",
        name="squares with NumPy, and the loss has no history",
        source="""
def mse_loss(input, target, reduction="mean", weight=None):
    check_same_shape("mse_loss", input, target)
    difference = tinytorch.tensor(input.detach().numpy() - target.detach().numpy())
    return reduce_weighted(difference * difference, weight, reduction)
""",
        loses={"squared-error-values": 2},
    ),
    Mistake(
        exercise="log-sum-exp",
        name="squeezes every dimension of size 1",
        source="""
def logsumexp(x, dim=None, keepdim=False):
    dims = normalize_dims(dim, x.ndim)
    largest = apply(ops.amax, x, dims=dims, keepdim=True).detach()
    shift = elementwise.where(elementwise.isfinite(largest), largest, 0.0)
    total = elementwise.log(sum(elementwise.exp(x - shift), dims, keepdim=True)) + shift
    return total if keepdim else movement.squeeze(total)
""",
        loses={"log-sum-exp-values": 2},
    ),
    Mistake(
        exercise="log-sum-exp",
        name="gives -inf where there are no elements",
        source="""
def logsumexp(x, dim=None, keepdim=False):
    dims = normalize_dims(dim, x.ndim)
    if 0 in x.shape:
        return elementwise.log(sum(elementwise.exp(x), dims, keepdim=keepdim))
    largest = apply(ops.amax, x, dims=dims, keepdim=True).detach()
    shift = elementwise.where(elementwise.isfinite(largest), largest, 0.0)
    total = elementwise.log(sum(elementwise.exp(x - shift), dims, keepdim=True)) + shift
    return total if keepdim else movement.reshape(total, _without(x.shape, dims))
""",
        loses={"log-sum-exp-infinite": 1},
    ),
    Mistake(
        exercise="soft-targets",
        name="smooths the caller's targets in place",
        source="""
def _soft_cross_entropy(input, target, weight, reduction, smoothing):
    if target.shape != input.shape:
        raise ShapeError(f"input {input.shape}, target {target.shape}")
    dim = _class_dim(input)
    if smoothing:
        target *= 1 - smoothing
        target += smoothing / input.shape[dim]
    logp = log_softmax(input, dim)
    each = target * logp if weight is None else target * logp * _along(weight, logp)
    return reduce_loss(0.0 - sum(each, dim), reduction)
""",
        loses={"soft-targets-smoothing": 1},
    ),
    Mistake(
        exercise="soft-targets",
        name="takes every other word for a sum",
        source="""
def _soft_cross_entropy(input, target, weight, reduction, smoothing):
    if target.shape != input.shape:
        raise ShapeError(f"input {input.shape}, target {target.shape}")
    dim = _class_dim(input)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / input.shape[dim]
    logp = log_softmax(input, dim)
    each = target * logp if weight is None else target * logp * _along(weight, logp)
    losses = 0.0 - sum(each, dim)
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" else sum(losses)
""",
        loses={"soft-targets-values": 2},
    ),
]

ALTERNATIVES = [
    Alternative(
        exercise="one-number",
        name="by a table of functions",
        source="""
def check_reduction(reduction, known=REDUCTIONS):
    for each in known:
        if each == reduction:
            return each
    raise ValueError(f"{reduction!r} is none of {', '.join(known)}")


def reduce_loss(loss, reduction):
    ways = {"none": lambda losses: losses, "mean": mean, "sum": sum}
    return ways[check_reduction(reduction)](loss)


def reduce_weighted(loss, weight, reduction):
    if weight is not None:
        counts = expand(weight, loss.shape)
        loss = counts * loss
        if reduction == "mean":
            return sum(loss) / sum(counts)
    return reduce_loss(loss, reduction)
""",
    ),
    Alternative(
        exercise="squared-error",
        name="returns early, and squares by a method",
        source="""
def check_same_shape(name, input, target):
    shapes = [tuple(t.shape) for t in (input, target)]
    if shapes[0] == shapes[1]:
        return
    raise ShapeError(f"{name} compares like with like, and {shapes[0]} is not {shapes[1]}")


def mse_loss(input, target, reduction="mean", weight=None):
    check_same_shape("mse_loss", input, target)
    return reduce_weighted((target - input).square(), weight, reduction)
""",
    ),
    Alternative(
        exercise="log-sum-exp",
        name="picks the sizes that stay by hand",
        source="""
def logsumexp(x, dim=None, keepdim=False):
    along = normalize_dims(dim, x.ndim)
    top = apply(ops.amax, x.detach(), dims=along, keepdim=True)
    safe = elementwise.where(elementwise.isfinite(top), top, 0.0)
    powers = elementwise.exp(x - safe)
    result = safe + elementwise.log(apply(ops.sum, powers, dims=along, keepdim=True))
    if keepdim:
        return result
    return movement.reshape(result, tuple(n for d, n in enumerate(x.shape) if d not in along))
""",
    ),
    Alternative(
        exercise="cross-entropy",
        name="divides the sum, and spreads g over both terms",
        source="""
def cross_entropy(x, target):
    rows = apply(ops.log_softmax, x, dim=1)
    picked = indexing.gather(rows, 1, target.reshape(-1, 1))
    return (0.0 - picked).sum() / x.shape[0]


def cross_entropy_backward(g, x, target):
    share = g / x.shape[0]
    ones = indexing.one_hot(target, x.shape[1]).to(x.dtype)
    return apply(ops.softmax, x, dim=1) * share - ones * share
""",
    ),
    Alternative(
        exercise="targets-that-count",
        name="asks which are ignored, not which count",
        source="""
def _picked(name, logp, target, weight, ignore_index):
    _check_labels(name, logp, target, ignore_index)
    ignored = target == ignore_index
    label = where(ignored, target * 0, target)
    dim = _class_dim(logp)
    taken = squeeze(gather(logp, dim, unsqueeze(label, dim)), dim)
    if weight is None:
        each = (label == label).to(logp.dtype)
    else:
        each = apply(ops.take, weight, label)
    return where(ignored, 0.0, (0.0 - taken) * each), where(ignored, 0.0, each)


def _weighted(losses, counts, reduction):
    kind = check_reduction(reduction)
    if kind == "mean":
        return sum(losses) / sum(counts)
    return sum(losses) if kind == "sum" else losses
""",
    ),
    Alternative(
        exercise="soft-targets",
        name="turns the sign of the logarithms, and smooths always",
        source="""
def _soft_cross_entropy(input, target, weight, reduction, smoothing):
    if tuple(input.shape) != tuple(target.shape):
        raise ShapeError(f"{target.shape} probabilities cannot be had of {input.shape} scores")
    dim = _class_dim(input)
    target = (1 - smoothing) * target + smoothing / input.shape[dim]
    costs = log_softmax(input, dim) * -1.0
    if weight is not None:
        costs = _along(weight, costs) * costs
    return reduce_loss(sum(costs * target, dim), reduction)
""",
    ),
    Alternative(
        exercise="yes-or-no",
        name="in a loop over the two answers",
        source="""
def binary_cross_entropy_with_logits(
    input, target, weight=None, reduction="mean", pos_weight=None
):
    check_same_shape("binary_cross_entropy_with_logits", input, target)
    loss = 0.0
    for share, score, factor in ((target, -input, pos_weight), (1.0 - target, input, None)):
        term = softplus(score, threshold=EXACT_THRESHOLD) * share
        loss = loss + (term if factor is None else term * factor)
    if weight is not None:
        loss = weight * loss
    return reduce_loss(loss, reduction)
""",
    ),
]

# Changes of the reference that are right too, and why.
BOTH_SHAPES = "the message gives both shapes in either order"
SQUARED = "the square is the same"
CANCELS = "the gradient through the shift cancels"
ANY_SHIFT = "beside an infinity any finite shift gives the same"
ADDS_ZERO = "a short cut: smoothing by 0 changes nothing"
EQUIVALENT = [
    Equivalent(
        "squared-error",
        "mse_loss: check_same_shape('mse_loss', input, target) -> check_same_shape('mse_loss', "
        "target, input)",
        BOTH_SHAPES,
    ),
    Equivalent("squared-error", "mse_loss: input - target -> target - input", SQUARED),
    Equivalent(
        "log-sum-exp",
        "logsumexp: apply(ops.amax, x, dims=dims, keepdim=True).detach() -> apply(ops.amax, x, "
        "dims=dims, keepdim=True)",
        CANCELS,
    ),
    Equivalent(
        "log-sum-exp",
        "logsumexp: elementwise.where(elementwise.isfinite(largest), largest, 0.0) -> "
        "elementwise.where(elementwise.isfinite(largest), largest, 1.0)",
        ANY_SHIFT,
    ),
    Equivalent("soft-targets", "_soft_cross_entropy: if smoothing: -> if True:", ADDS_ZERO),
    Equivalent(
        "yes-or-no",
        "binary_cross_entropy_with_logits: check_same_shape('binary_cross_entropy_with_logits', "
        "input, target) -> check_same_shape('binary_cross_entropy_with_logits', target, input)",
        BOTH_SHAPES,
    ),
]
