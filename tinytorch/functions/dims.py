"""Reading of `dim` and shape arguments."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from tinytorch.dtypes import Shape
from tinytorch.errors import ShapeError


def normalize_dim(dim: int, ndim: int, what: str = "dim") -> int:
    """A dimension counted from the front: -1 is the last of `ndim`, -2 the one before it.

    Args:
        dim: a whole number (`operator.index` refuses what is none).
        ndim: number of dimensions. A 0-d tensor may be asked for dim 0 or -1.
        what: how the message names it.

    Raises:
        IndexError: there is no such dimension; the message gives the range.

    >>> normalize_dim(-1, 3), normalize_dim(1, 3)
    (2, 1)
    """
    dim = _whole(dim, what)
    extent = max(ndim, 1)  # as in PyTorch, a 0-d tensor may be asked for dim 0 or -1
    if not -extent <= dim < extent:
        raise IndexError(
            f"{what} {dim} is out of range: a tensor of {ndim} dimensions has {-extent} to "
            f"{extent - 1}"
        )
    return dim % extent


def normalize_dims(dim: int | Iterable[int] | None, ndim: int) -> tuple[int, ...]:
    """Dimensions counted from the front, ascending; None and () mean all, as in PyTorch.

    Raises:
        IndexError: there is no such dimension.
        TypeError: it is a bool, or no whole number.
        ValueError: a dimension is named twice.
    """
    if dim is None:
        return tuple(range(ndim))
    if isinstance(dim, (int, np.integer)):
        dim = _whole(dim, "dim")
        if -ndim <= dim < ndim:
            return (dim % ndim,)
        return (normalize_dim(dim, ndim),) if ndim else _none_of_0d(dim)
    dims = sorted([normalize_dim(d, ndim) for d in dim]) or range(ndim)
    if len(set(dims)) != len(dims):
        raise ValueError(f"dim {tuple(dim)} names a dimension twice")
    return tuple(dims) if ndim else ()


def _whole(dim: Any, what: str) -> int:
    if type(dim) is int:  # the frequent case
        return dim
    if isinstance(dim, bool):
        raise TypeError(
            f"{what} is a whole number, not {dim}: write keepdim={dim} if that is meant"
        )
    try:
        return operator.index(dim)
    except TypeError:
        raise TypeError(f"{what} must be a whole number, not {dim!r:.40}") from None


def _none_of_0d(dim: int) -> tuple[int, ...]:
    normalize_dim(dim, 0)
    return ()


def shape_arguments(sizes: Sequence[Any]) -> Shape:
    """The shape that a function was given as numbers, `f(2, 3)`, or as one sequence, `f((2, 3))`.

    Args:
        sizes: the arguments after `def f(*sizes)`: whole numbers, or one sequence of them.

    Returns:
        A tuple of ints.

    Raises:
        TypeError: a size is not a whole number (`operator.index` refuses it).

    >>> shape_arguments((2, 3)), shape_arguments(([2, 3],)), shape_arguments(())
    ((2, 3), (2, 3), ())
    """
    if len(sizes) == 1 and type(sizes[0]) is not int and isinstance(sizes[0], Iterable):
        sizes = sizes[0]  # type: ignore[assignment]
    return tuple([operator.index(s) for s in sizes])


def named_or_not(sizes: Sequence[Any], named: Any) -> Shape:
    """`shape_arguments` of `def f(*sizes, size=None)`: one of the two ways is taken.

    Raises:
        TypeError: both are; or as `shape_arguments`.
    """
    if named is None:
        return shape_arguments(sizes)
    if sizes:
        raise TypeError(f"the sizes or dimensions were given twice: {sizes} and {named}")
    return shape_arguments((named,))


def infer_size(shape: Shape, elements: int) -> Shape:
    """The shape with its -1, if any, replaced by what makes it hold `elements`.

    Args:
        shape: sizes, of which one may be -1. Without a -1 it is returned as it is.
        elements: how many elements there are.

    Raises:
        ShapeError: there are two -1, or no whole number fits (nor does one if a size is 0); the
            message gives the shape.

    >>> infer_size((2, -1), 6)
    (2, 3)
    """
    if -1 not in shape:
        return shape
    if shape.count(-1) > 1:
        raise ShapeError(f"only one size may be -1, not two as in {shape}")
    rest = prod(s for s in shape if s != -1)
    if rest == 0 or elements % rest:
        raise ShapeError(f"{elements} elements do not fit into shape {shape}")
    return tuple(elements // rest if s == -1 else s for s in shape)
