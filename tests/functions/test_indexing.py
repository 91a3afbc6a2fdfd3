from __future__ import annotations

import numpy as np
import pytest
import torch

import tinytorch
from tests.torch_compare import assert_like_torch
from tinytorch.errors import ShapeError

X = np.arange(60.0).reshape(3, 4, 5)


def test_gather_and_scatter_add(rng):
    x = rng.standard_normal((3, 4))
    for dim, shape in ((0, (5, 4)), (1, (3, 6)), (-1, (2, 3)), (0, (0, 4))):
        index = rng.integers(0, x.shape[dim], shape)
        assert_like_torch(lambda x, i, d=dim: x.gather(d, i), None, x, index)
    for dim, shape in ((0, (5, 4)), (1, (3, 6)), (1, (2, 2))):
        index, source = rng.integers(0, x.shape[dim], shape), rng.standard_normal(shape)
        assert_like_torch(lambda x, i, s, d=dim: x.scatter_add(d, i, s), None, x, index, source)
    for call, text in [
        (lambda t: t.gather(0, tinytorch.zeros(2, dtype="int64")), "must have as many dimensions"),
        (lambda t: t.gather(0, tinytorch.zeros(2, 5, dtype="int64")), "no larger in any but dim 0"),
    ]:
        with pytest.raises(ShapeError, match=text):
            call(tinytorch.tensor(x))
    with pytest.raises(IndexError, match="index 3 is out of range: there are 3"):
        tinytorch.tensor(x).gather(0, tinytorch.tensor([[3, 0]]))
    with pytest.raises(ShapeError, match=r"source \(1, 1\) is smaller than the index \(1, 2\)"):
        tinytorch.tensor(x).scatter_add(0, tinytorch.tensor([[0, 0]]), tinytorch.zeros(1, 1))


def test_index_select(rng):
    index = np.array([2, 0, 0])
    for dim in (0, 1, -1):
        assert_like_torch(lambda x, i, d=dim: x.index_select(d, i), None, X[:, :3], index)


def test_one_hot():
    labels = np.array([[0, 2], [1, 2]])
    got = tinytorch.functions.indexing.one_hot(tinytorch.tensor(labels), 3)
    wanted = torch.nn.functional.one_hot(torch.from_numpy(labels), 3)
    np.testing.assert_array_equal(got.numpy(), wanted.numpy())
    with pytest.raises(IndexError, match="class 2 is out of range: there are 2"):
        tinytorch.functions.indexing.one_hot(tinytorch.tensor(labels), 2)
