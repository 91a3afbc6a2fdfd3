"""A line search for L-BFGS: how far to go along a direction."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from tinytorch.tensor import Tensor


class Point(NamedTuple):
    """A point on the line: how far it is, the loss there, its gradient, and that along the line."""

    t: float
    loss: float
    gradient: Tensor
    slope: float


def strong_wolfe(
    evaluate: Callable[[float], Point],
    start: Point,
    t: float,
    length: float,
    *,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance_change: float = 1e-9,
    max_evaluations: int = 25,
) -> tuple[Point, int]:
    """A point where the loss has fallen enough and the slope has flattened enough.

        loss(t) <= loss(0) + c1 t slope(0)      |slope(t)| <= c2 |slope(0)|

    Args:
        evaluate: gives the point at a distance.
        start: the point at 0.
        t: the first distance to try.
        length: of the longest component of the direction.
        c1, c2: the two conditions.
        tolerance_change: a bracket whose ends are closer is not divided further.
        max_evaluations: how many points are tried.

    Returns:
        The point (or the best one found), and the number of evaluations.

    Source: J. Nocedal, S. Wright, "Numerical optimization", 2006, algorithms 3.5 and 3.6, with the
    safeguards of M. Schmidt's minFunc, as in PyTorch.
    """

    def too_high(point: Point) -> bool:
        return point.loss > start.loss + c1 * point.t * start.slope

    before, point = start, evaluate(t)
    done, count, tries = False, 1, 0
    bracket = [start, point]
    while tries < max_evaluations:
        if too_high(point) or (tries > 1 and point.loss >= before.loss):
            bracket = [before, point]
            break
        if abs(point.slope) <= -c2 * start.slope:
            bracket, done = [point], True
            break
        if point.slope >= 0:
            bracket = [before, point]
            break
        bounds = (point.t + 0.01 * (point.t - before.t), point.t * 10)
        before, point = point, evaluate(cubic_minimum(before, point, bounds))
        count, tries = count + 1, tries + 1
    else:
        bracket = [start, point]

    stuck = False
    low, high = (0, 1) if bracket[0].loss <= bracket[-1].loss else (1, 0)
    while not done and tries < max_evaluations:
        near, far = min(b.t for b in bracket), max(b.t for b in bracket)
        if (far - near) * length < tolerance_change:
            break
        t, stuck = _away_from_ends(cubic_minimum(bracket[0], bracket[1]), near, far, stuck)
        point = evaluate(t)
        count, tries = count + 1, tries + 1
        if too_high(point) or point.loss >= bracket[low].loss:
            bracket[high] = point
            low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
            continue
        if abs(point.slope) <= -c2 * start.slope:
            done = True
        elif point.slope * (bracket[high].t - bracket[low].t) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = point
    return bracket[low], count


def _away_from_ends(t: float, near: float, far: float, stuck: bool) -> tuple[float, bool]:
    """`t`, moved into the bracket where it is close to an end for the second time."""
    margin = 0.1 * (far - near)
    if min(far - t, t - near) >= margin:
        return t, False
    if not stuck and near < t < far:
        return t, True
    return (far - margin if abs(t - far) < abs(t - near) else near + margin), False


def cubic_minimum(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """The minimum of the cubic through two points with their slopes, within bounds.

    Source: Nocedal, Wright, equation 3.59.
    """
    low, high = bounds or (min(a.t, b.t), max(a.t, b.t))
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    d2 = math.sqrt(square)
    if a.t > b.t:
        a, b = b, a
    t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    return min(max(t, low), high)
