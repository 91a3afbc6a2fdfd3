"""Quantiles: where in the order of the elements a given part of them is below.

Source: R. Hyndman, Y. Fan, "Sample quantiles in statistical packages", The American Statistician
50, 1996: its definition 7, which NumPy and PyTorch take.
"""

from __future__ import annotations

import math
from typing import Any

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import float32, float64
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.functions import arrangement, elementwise as e, movement, reductions
from tinytorch.functions.dims import normalize_dim
from tinytorch.functions.ordering import sort
from tinytorch.functions.publish import publish
from tinytorch.state import no_mode_active

Tensor = Any
INTERPOLATIONS = ("linear", "lower", "higher", "nearest", "midpoint")


def quantile(
    x: Tensor,
    q: Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The number below which the part q of the elements is, over all or along `dim`.

    It is at position q (n - 1) in the order of n elements. NaN if there is one among them.

    Args:
        x: float32 or float64.
        q: from 0 to 1; or several, a vector (k,) of x's dtype.
        interpolation: what stands between two elements: "linear", "lower", "higher", "nearest" (of
            two equally near ones that at an even position), or "midpoint", their mean.

    Returns:
        As `mean`; of a vector q with k as its first dimension.

    Raises:
        DTypeError: x is of another dtype, or q of another than x.
        ShapeError: there are no elements, or q has several dimensions.
        ValueError: q is not from 0 to 1 (not checked in a trace), or no such interpolation.

    >>> from tinytorch import tensor
    >>> quantile(tensor([3.0, 1.0, 2.0, 4.0]), 0.5)
    tensor(2.5)
    """
    return _quantile("quantile", x, q, dim, keepdim, interpolation)


def nanquantile(
    x: Tensor,
    q: Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """`quantile` of the elements that are not NaN; NaN where there are no others.

    >>> from tinytorch import tensor
    >>> nanquantile(tensor([3.0, float("nan"), 1.0]), 0.5)
    tensor(2.)
    """
    return _quantile("nanquantile", x, q, dim, keepdim, interpolation)


def _quantile(
    name: str, x: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str
) -> Tensor:
    if x.dtype not in (float32, float64):
        raise DTypeError(f"{name} takes float32 and float64, not {x.dtype.name}; use x.float()")
    if interpolation not in INTERPOLATIONS:
        known = ", ".join(INTERPOLATIONS)
        raise ValueError(f"{name}: interpolation is one of {known}, not {interpolation!r}")
    parts = q
    if isinstance(q, e.NUMBERS):
        parts = apply(ops.full, shape=(), value=float(q), dtype=x.dtype)
    _check_parts(name, x, parts)
    where = None if dim is None else normalize_dim(dim, x.ndim)
    rows = movement.reshape(x, (-1,)) if where is None else arrangement.movedim(x, where, -1)
    rows = movement.reshape(rows, (1,)) if not rows.ndim else rows
    if not rows.numel():
        raise ShapeError(f"{name}: shape {x.shape} has no elements to order")
    found = _at(sort(rows).values, movement.reshape(parts, (-1,)), name, interpolation)
    shape = rows.shape[:-1]
    if keepdim:
        whole = [1 if where in (None, d) else n for d, n in enumerate(x.shape)]
        shape = tuple(whole)
    found = arrangement.movedim(found, -1, 0)
    return movement.reshape(found, (*parts.shape, *shape))


def _check_parts(name: str, x: Tensor, parts: Tensor) -> None:
    if parts.dtype is not x.dtype:
        raise DTypeError(f"{name}: q is {parts.dtype.name}, and x {x.dtype.name}")
    if parts.ndim > 1:
        raise ShapeError(f"{name}: q is a number or a vector, not of shape {parts.shape}")
    if no_mode_active() and parts.numel():
        least, most = (float(f(parts.detach()).item()) for f in (reductions.amin, reductions.amax))
        if not (least >= 0 and most <= 1):
            raise ValueError(f"{name}: q must be from 0 to 1, not {least if least < 0 else most}")


def _at(ordered: Tensor, parts: Tensor, name: str, interpolation: str) -> Tensor:
    """Elements of rows (..., n) in order, NaN at the end, at parts (k,) of them: (..., k)."""
    is_nan = e.isnan(ordered)
    last = reductions.sum(e.logical_not(is_nan), -1, keepdim=True) - 1
    if name == "quantile":  # of a row with NaN it is NaN, wherever that would be
        last = e.where(last < ordered.shape[-1] - 1, -1, last)
    place = parts * e.clip(last, 0, None).to(parts.dtype)  # (..., k)
    if interpolation in ("lower", "higher", "nearest"):
        rounded = {"lower": e.floor, "higher": e.ceil, "nearest": e.round}[interpolation](place)
        found = _gathered(ordered, rounded)
    else:
        below = e.floor(place)
        low, high = _gathered(ordered, below), _gathered(ordered, e.ceil(place))
        found = low + (high - low) * (0.5 if interpolation == "midpoint" else place - below)
    return e.where(last < 0, math.nan, found)


def _gathered(rows: Tensor, places: Tensor) -> Tensor:
    return apply(ops.gather, rows, places.long(), dim=rows.ndim - 1)


publish(globals())
