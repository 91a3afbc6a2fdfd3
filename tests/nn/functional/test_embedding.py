from __future__ import annotations

import numpy as np
import pytest
import torch.nn.functional as TF
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.errors import DTypeError, ShapeError


@given(
    index=hnp.arrays(
        np.int64, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0), elements=st.integers(0, 4)
    ),
    padding=st.sampled_from([None, 0, 3, -1]),
)
def test_equals_pytorch(agree, index, padding):
    agree(
        lambda i, w: F.embedding(i, w, padding),
        lambda i, w: TF.embedding(i, w, padding),
        index,
        np.random.default_rng(0).standard_normal((5, 3)),
    )


def test_derivatives(check_twice, rng):
    index = tinytorch.tensor([[1, 2], [2, 2]])
    check_twice(lambda w: F.embedding(index, w) ** 3, rng.standard_normal((4, 3)))
    check_twice(lambda w: F.embedding(index, w, 0) ** 3, rng.standard_normal((4, 3)))


def test_int32_indices():
    weight = tinytorch.arange(6.0).reshape(3, 2)
    assert F.embedding(tinytorch.tensor([2, 0]).int(), weight).tolist() == [[4, 5], [0, 1]]


@pytest.mark.parametrize("wrong", [3, -1])
def test_index_out_of_range(wrong):
    text = f"embedding: index {wrong} is out of range: there are 3"
    with pytest.raises(IndexError, match=text):
        F.embedding(tinytorch.tensor([0, wrong]), tinytorch.ones(3, 2))


def test_errors():
    weight = tinytorch.ones(3, 2)
    with pytest.raises(DTypeError, match="an index must be of integers, not float32"):
        F.embedding(tinytorch.ones(2), weight)
    with pytest.raises(ShapeError, match=r"the weight must be \(rows, width\), not \(3,\)"):
        F.embedding(tinytorch.tensor([0]), tinytorch.ones(3))
    with pytest.raises(ValueError, match="padding_idx 3 is out of range: there are 3 rows"):
        F.embedding(tinytorch.tensor([0]), weight, 3)
