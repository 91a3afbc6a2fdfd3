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


BAGS = st.lists(st.lists(st.integers(0, 4), max_size=4), min_size=1, max_size=5)


@given(
    bags=BAGS,
    mode=st.sampled_from(["sum", "mean", "max"]),
    padding=st.sampled_from([None, 0, -1]),
    last=st.booleans(),
    weighted=st.booleans(),
)
def test_bags_equal_pytorch(agree, bags, mode, padding, last, weighted):
    index = np.array([i for bag in bags for i in bag], np.int64)
    ends = np.cumsum([len(bag) for bag in bags])
    offsets = np.array([0, *ends] if last else [0, *ends[:-1]])
    samples = np.random.default_rng(1).standard_normal(index.shape)
    options = {"mode": mode, "padding_idx": padding, "include_last_offset": last}
    agree(
        *(
            lambda i, o, w, s, f=f: f.embedding_bag(
                i, w, o, per_sample_weights=s if weighted and mode == "sum" else None, **options
            )
            for f in (F, TF)
        ),
        index,
        offsets,
        np.random.default_rng(0).standard_normal((5, 3)),
        samples,
    )


@given(
    index=hnp.arrays(np.int64, st.tuples(st.integers(1, 4), st.integers(1, 4)),
                     elements=st.integers(0, 4)),
    mode=st.sampled_from(["sum", "mean", "max"]),
    padding=st.sampled_from([None, 2]),
)  # fmt: skip
def test_bags_of_one_length_equal_pytorch(agree, index, mode, padding):
    agree(
        *(lambda i, w, f=f: f.embedding_bag(i, w, mode=mode, padding_idx=padding) for f in (F, TF)),
        index,
        np.random.default_rng(0).standard_normal((5, 3)),
    )


def test_gradients_by_how_often_a_row_is_in_bags():
    """As the looked-up rows have them. (PyTorch 2.13 halves that of row 1 here, not of row 0.)"""
    weight = tinytorch.ones(3, 2).requires_grad_()
    index = tinytorch.tensor([[1, 0, 0]])
    F.embedding_bag(index, weight, mode="sum", scale_grad_by_freq=True).sum().backward()
    assert weight.grad.tolist() == [[1, 1], [1, 1], [0, 0]]


def test_derivatives_of_bags(check_twice, rng):
    index, offsets = tinytorch.tensor([1, 2, 2, 0, 3]), tinytorch.tensor([0, 2, 2])
    for mode in ("sum", "mean", "max"):
        check_twice(
            lambda w, mode=mode: F.embedding_bag(index, w, offsets, mode=mode) ** 3,
            rng.standard_normal((4, 3)),
        )


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (([0, 1], None), ShapeError, r"not \(2,\) with no offsets"),
        (([[0, 1]], [0]), ShapeError, r"not \(1, 2\) with offsets \(1,\)"),
        (([0, 1], [1]), ValueError, r"ascend from 0 to at most 2, .* not \[1\]"),
        (([0, 1], [0, 2, 1]), ValueError, "offsets ascend"),
        (([0, 1], [0, 3]), ValueError, "offsets ascend"),
        (([0, 5], [0]), IndexError, "index 5 is out of range: there are 4"),
    ],
)
@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_bags_that_are_none(given, error, message, backend):
    index, offsets = (None if x is None else tinytorch.tensor(x) for x in given)
    weight = tinytorch.ones(4, 2)
    with tinytorch.using_backend(backend):
        for _ in range(8):  # also when a program would be made
            with pytest.raises(error, match=message):
                F.embedding_bag(index, weight, offsets)


def test_the_last_offset_is_the_length():
    """Of what is behind it PyTorch 2.13 makes a part of the last bag."""
    weight = tinytorch.ones(4, 2)
    with pytest.raises(ValueError, match=r"ascend from 0 to 3, .* not \[0, 2\]"):
        F.embedding_bag(
            tinytorch.tensor([0, 1, 2]), weight, tinytorch.tensor([0, 2]), include_last_offset=True
        )


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_there_may_be_nothing_in_bags(mode):
    weight, nothing = tinytorch.ones(4, 2), tinytorch.zeros(0, dtype="int64")
    offsets = tinytorch.tensor([0, 0])
    assert F.embedding_bag(nothing, weight, offsets, mode=mode).tolist() == [[0, 0], [0, 0]]
    assert F.embedding_bag(nothing.reshape(2, 0), weight, mode=mode).tolist() == [[0, 0], [0, 0]]
    assert F.embedding_bag(nothing.reshape(0, 3), weight, mode=mode).shape == (0, 2)
    with pytest.raises(ValueError, match=r"ascend from 0 to at most 1, .* not \[\]"):
        F.embedding_bag(tinytorch.tensor([0]), weight, nothing, mode=mode)


def test_weights_of_samples_are_for_sums():
    index, weight = tinytorch.tensor([[0, 1]]), tinytorch.ones(4, 2)
    with pytest.raises(ValueError, match="per_sample_weights are for mode='sum', not 'mean'"):
        F.embedding_bag(index, weight, per_sample_weights=tinytorch.ones(1, 2))
    with pytest.raises(ShapeError, match=r"per_sample_weights \(2,\) for input \(1, 2\)"):
        F.embedding_bag(index, weight, mode="sum", per_sample_weights=tinytorch.ones(2))
    with pytest.raises(ValueError, match="mode is 'sum', 'mean' or 'max', not 'min'"):
        F.embedding_bag(index, weight, mode="min")
