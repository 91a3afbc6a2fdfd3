"""Layouts of views, against NumPy's own views of the same memory."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tinytorch.backends import reference
from tinytorch.dtypes import float32, tensor_meta
from tinytorch.graph import GraphError
from tinytorch.graph.layout import (
    Buffer,
    Memory,
    StridedView,
    _view_of_numpy,
    contiguous_view,
    view_of,
)
from tinytorch.op import OPS, Op

ARENA = Buffer(Memory.ARENA)


def view_with(shape: tuple[int, ...]) -> StridedView:
    return contiguous_view(ARENA, 0, tensor_meta(shape, float32))


def array_at(view: StridedView, memory: np.ndarray) -> np.ndarray:
    return np.ndarray(view.shape, np.float32, memory, view.offset, view.strides)


def draw_view(random: Random, shape: tuple[int, ...]) -> tuple[str, dict[str, Any]]:
    kind = random.choice(["permute", "expand", "slice", "reshape", "unfold", "detach", "reshape"])
    if kind == "permute":
        return kind, {"dims": tuple(random.sample(range(len(shape)), len(shape)))}
    if kind == "expand":
        wide = tuple(random.choice([n, 2, 3]) if n == 1 else n for n in shape)
        return kind, {"shape": (2,) * random.randint(0, 1) + wide}
    if kind == "slice":
        bounds = [random.choice([(0, n, 1), (n // 2, n, 1), (0, n, 2), (n - 1, -1, -1)])
                  for n in shape]  # fmt: skip
        return kind, {"bounds": tuple(bounds)}
    if kind == "unfold" and shape and shape[-1]:
        return kind, {"size": random.randint(1, shape[-1]), "step": random.randint(1, 2)}
    if kind == "reshape":
        return kind, {"shape": factors(random, int(np.prod(shape)))}
    return "detach", {}


def factors(random: Random, size: int) -> tuple[int, ...]:
    """A shape of so many elements."""
    if size == 0:
        return (0, 2)
    shape = [1] * random.randint(0, 1)
    for f in (2, 2, 3, 2, 3):
        if size % f == 0 and random.random() < 0.6:
            shape.append(f)
            size //= f
    shape.append(size)
    random.shuffle(shape)
    return tuple(shape)


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_chains_of_views_stand_where_numpy_says(seed: int):
    random = Random(seed)
    shape = tuple(random.choice([0, 1, 2, 3, 4, 6, 6]) for _ in range(random.randint(0, 4)))
    memory = np.arange(max(int(np.prod(shape)), 1), dtype=np.float32)
    view = view_with(shape)
    array = array_at(view, memory)
    for _ in range(5):
        name, params = draw_view(random, array.shape)
        expected = reference.find_kernel(OPS[name])(array, **params)  # type: ignore[misc]
        new = view_of(OPS[name], view, params)
        if new is None:  # NumPy cannot either
            assert name == "reshape" and not np.shares_memory(expected, memory)
            return
        view, array = new, array_at(new, memory)
        np.testing.assert_array_equal(array, expected)
        if array.size:
            assert np.shares_memory(expected, memory)
            assert view.is_contiguous is array.flags.c_contiguous


@given(st.integers(0, 2**32))
def test_a_view_without_a_rule_is_stored_where_numpys_view_is(seed: int):
    random = Random(seed)
    shape = tuple(random.choice([0, 1, 2, 3]) for _ in range(random.randint(0, 4)))
    view = view_with(shape)
    for _ in range(3):
        name, params = draw_view(random, view.shape)
        if name == "reshape":
            continue  # NumPy copies where it must, and so reads memory
        expected, found = (f(OPS[name], view, params) for f in (view_of, _view_of_numpy))
        assert expected is not None and found is not None
        assert found.shape == expected.shape
        if expected.size:
            assert found.offset == expected.offset
            steps = zip(found.shape, found.strides, expected.strides, strict=True)
            assert all(ours == theirs for n, ours, theirs in steps if n > 1)
        view = expected


def test_a_view_without_a_rule_or_a_kernel_is_an_error():
    op = Op("peek", "a", "movement", None, None, None, view=True)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"layout of the view peek .*graph/layout\.py"):
        view_of(op, view_with((2,)), {})


def test_a_place_is_printed():
    view = StridedView(Buffer(Memory.INPUT, 3), 8, (2, 2), (4, 8), float32)
    assert repr(view) == "input3+8: float32[2, 2] strides [4, 8]"
    assert repr(view_with(())) == "arena+0: float32[]"
