"""Shape and dtype rules, and the cost, of connectionist temporal classification."""

from __future__ import annotations

from tinytorch import dtype_rules
from tinytorch.dtypes import Shape
from tinytorch.errors import ShapeError
from tinytorch.op import DTypeRule, FlopCount, Params


def losses(name: str, given: list[Shape], params: Params) -> Shape:
    """Log probabilities (time, n, classes), targets (n, longest) and two lengths (n,) give (n,)."""
    log_probs, targets, *lengths = given
    n = log_probs[1] if len(log_probs) == 3 else -1
    if len(targets) != 2 or targets[0] != n or any(s != (n,) for s in lengths):
        raise ShapeError(
            f"{name}: log_probs {log_probs}, targets {targets}, input_lengths {lengths[0]} and "
            f"target_lengths {lengths[1]} must be (time, n, classes), (n, longest), (n,) and (n,)"
        )
    if not 0 <= params["blank"] < log_probs[2]:
        raise ShapeError(
            f"{name}: blank must be one of the classes 0 to {log_probs[2] - 1} of log_probs "
            f"{log_probs}, not {params['blank']}"
        )
    return (n,)


def gradient(name: str, given: list[Shape], params: Params) -> Shape:
    """The gradient of the losses (n,), and their inputs, give the log probabilities' shape."""
    n = losses(name, given[1:], params)
    if given[0] != n:
        raise ShapeError(f"{name}: the gradient of the losses must have shape {n}, not {given[0]}")
    return given[1]


def dtypes(floats: int) -> DTypeRule:
    """So many floating-point inputs, then targets and two lengths as integers."""
    rule: DTypeRule = dtype_rules.only_floating
    for _ in range(3):
        rule = dtype_rules.indexed(floats, rule)
    return rule


def flops(each: int) -> FlopCount:
    """So many for each state of each target at each time."""

    def count(shapes_in: list[Shape], out: Shape, params: Params) -> int:
        (times, _, _), (n, longest) = shapes_in[-4], shapes_in[-3]
        return each * times * n * (2 * longest + 1)

    return count
