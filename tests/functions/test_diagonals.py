"""Diagonals and triangles, beside PyTorch and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tests.torch_compare import assert_like_torch
from tinytorch.bench import Profiler
from tinytorch.errors import AutogradError, ShapeError

X = np.arange(60.0).reshape(3, 4, 5)


def test_triangles_and_diagonals():
    for k in (-2, 0, 1):
        assert_like_torch(lambda x, k=k: x.tril(k), None, X)
        assert_like_torch(lambda x, k=k: x.triu(k), None, X)
    assert_like_torch(lambda x: x.tril(), None, np.arange(9).reshape(3, 3))
    assert_like_torch(lambda x: x.diagonal(), None, X[0])
    assert_like_torch(lambda x: x.diagonal(dim1=1, dim2=2), None, X)
    assert_like_torch(lambda x: x.diagonal(dim1=-1, dim2=0), None, X)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (2, 3, 4), (1, 5), (0, 3), (3, 0)])
def test_a_diagonal_is_numpys_in_any_layout(shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    for array in (x, np.ascontiguousarray(x.T).T):
        for offset in range(-6, 7):
            for dims in ((0, 1), (1, 0), (-1, 0)):
                found = tinytorch.diagonal(tinytorch.from_numpy(array), offset, *dims).numpy()
                np.testing.assert_array_equal(found, np.diagonal(array, offset, *dims))


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 4, 0), (2, 0, 3)])
def test_a_diagonal_of_nothing_that_is_recorded_has_its_shape(shape: tuple[int, ...]) -> None:
    x = tinytorch.zeros(*shape, requires_grad=True)
    assert x.diagonal(1, 1, 2).shape == np.diagonal(np.zeros(shape), 1, 1, 2).shape


def test_a_diagonal_is_a_view() -> None:
    for x in (tinytorch.zeros(3, 4), tinytorch.zeros(4, 3).t()):
        x.diagonal().fill_(1.0)
        np.testing.assert_array_equal(x.numpy(), np.eye(3, 4))


@pytest.mark.parametrize(
    "take",
    [
        lambda x: x[0, :3, :3].diagonal(),
        lambda x: x[0, 1:4, 1:4].t().diagonal(-1),
        lambda x: x[:, :3, :4].diagonal(1, -1, -2),
        lambda x: x.diagonal(1, -1, 0),
        lambda x: x.diagonal(0, 0, 2),
        lambda x: x[:, ::2].diagonal(),
        lambda x: x[..., 0].diagonal(2),
        lambda x: x[0, :1, :3].diagonal(),
        lambda x: x[0, :3, :3].diagonal(9),
    ],
)
def test_a_diagonal_is_a_view_however_its_tensor_is_stored(take: Any) -> None:
    written = []
    for library in (tinytorch, torch):
        x = library.zeros(3, 4, 6)
        take(x).fill_(1.0)
        written.append(x.tolist())
    assert written[0] == written[1]
    with pytest.raises(AutogradError, match="read-only"):
        tinytorch.zeros(2, 2).expand(2, 2, 2).diagonal(0, 0, 2).fill_(1.0)


def test_a_diagonal_that_is_recorded_is_a_view() -> None:
    w = tinytorch.ones(4, 6, requires_grad=True)
    y = w * 1
    diagonal = y[:3, :3].diagonal()
    with pytest.raises(AutogradError, match="memory"):
        diagonal.fill_(0.0)
    (diagonal * 2).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.eye(4, 6) * [2, 2, 2, 0, 0, 0])
    with Profiler():
        y.detach()[:3, :3].diagonal().fill_(0.0)
    assert diagonal.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
@pytest.mark.parametrize("sizes", [(2.5, 3), (2, 3.5), (2, 3, 0.5)])
def test_sizes_that_are_no_whole_numbers_are_refused(backend, sizes):
    """A kernel took their bits for places in memory."""
    with tinytorch.using_backend(backend):
        for indices in (tinytorch.tril_indices, tinytorch.triu_indices):
            with pytest.raises(TypeError, match="integer"):
                indices(*sizes)
            with pytest.raises(ShapeError, match="-1 rows"):
                indices(-1, 3)


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (2, 3), (1, 5), (5, 1), (0, 3), (3, 0)])
def test_a_trace_is_pytorchs_in_any_layout(shape: tuple[int, int], backend: str) -> None:
    rows, columns = shape
    wide = np.arange(1.0, 1 + 4 * rows * columns).reshape(2 * rows, 2 * columns)
    layouts = wide[:rows, :columns], wide[::-2, ::2], wide.T.copy()[:columns, :rows].T
    with tinytorch.using_backend(backend):
        for array in [a.astype(dtype) for a in layouts for dtype in ("float32", "int64")]:
            for _ in range(40):
                found = tinytorch.from_numpy(array).trace()
            assert found.item() == np.trace(array) and found.shape == ()
        x = tinytorch.tensor(layouts[1], requires_grad=True)
        for _ in range(40):
            (g,) = tinytorch.autograd.grad(x.trace(), [x])
        np.testing.assert_array_equal(g.numpy(), np.eye(rows, columns))
        with pytest.raises(ShapeError, match=r"trace takes a matrix, not shape \(2, 3, 4\)"):
            tinytorch.ones(2, 3, 4).trace()
