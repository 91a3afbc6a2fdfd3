"""Embeddings: padding, given vectors, options."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tinytorch
from tests.nn.twins import make_twins
from tinytorch import nn


def test_embedding_equals_pytorch(agree):
    index = np.array([[1, 0], [4, 0]])
    for padding in (None, 0, -1):
        ours, theirs = make_twins("Embedding", 5, 3, padding_idx=padding)
        out, expected = ours(tinytorch.tensor(index)), theirs(torch.tensor(index))
        (out**2).sum().backward()
        (expected**2).sum().backward()
        np.testing.assert_allclose(out.detach().numpy(), expected.detach())
        np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad)


def test_the_padding_row_starts_at_zero():
    weight = nn.Embedding(100, 50, padding_idx=-2).weight.detach().numpy()
    assert not weight[98].any()
    assert weight.std() == pytest.approx(1, rel=0.05)
    with pytest.raises(ValueError, match="padding_idx 5 is out of range: there are 5 rows"):
        nn.Embedding(5, 3, padding_idx=5)


def test_embeddings_of_given_vectors(agree, rng):
    vectors = rng.standard_normal((5, 3))
    given = tinytorch.from_numpy(vectors)
    layer = nn.Embedding.from_pretrained(given, padding_idx=1)
    assert not layer.weight.requires_grad and layer.weight.dtype is tinytorch.float64
    vectors[2] = 7
    assert layer(tinytorch.tensor([2])).tolist() == [[7, 7, 7]]
    assert nn.Embedding.from_pretrained(given, freeze=False).weight.requires_grad
    with pytest.raises(tinytorch.ShapeError, match=r"needs a matrix, not shape \(3,\)"):
        nn.Embedding.from_pretrained(tinytorch.ones(3))


@pytest.mark.parametrize("options", [{"max_norm": 1.0}, {"max_norm": 0.5, "norm_type": 1.0},
                                     {"scale_grad_by_freq": True}])  # fmt: skip
def test_embedding_options_equal_pytorch(options):
    index = np.array([[1, 0, 1], [4, 1, 0]])
    ours, theirs = make_twins("Embedding", 5, 3, **options)
    out, expected = ours(tinytorch.tensor(index)), theirs(torch.tensor(index))
    (out**2).sum().backward()
    (expected**2).sum().backward()
    np.testing.assert_allclose(out.detach().numpy(), expected.detach(), rtol=1e-6)
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad, rtol=1e-6)
    np.testing.assert_allclose(ours.weight.detach().numpy(), theirs.weight.detach(), rtol=1e-6)


def test_embedding_bags_equal_pytorch():
    index, offsets = np.array([1, 0, 3, 4, 0]), np.array([0, 2, 2])
    for options in ({}, {"mode": "max"}, {"mode": "sum", "padding_idx": 0}, {"max_norm": 0.5}):
        ours, theirs = make_twins("EmbeddingBag", 5, 3, **options)
        out = ours(tinytorch.tensor(index), tinytorch.tensor(offsets))
        expected = theirs(torch.tensor(index), torch.tensor(offsets))
        (out**2).sum().backward()
        (expected**2).sum().backward()
        np.testing.assert_allclose(out.detach().numpy(), expected.detach(), rtol=1e-6)
        np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad, rtol=1e-6)
        assert repr(ours).partition("  #")[0] == repr(theirs)


def test_a_bag_of_given_vectors():
    vectors = tinytorch.arange(6.0).reshape(3, 2)
    layer = nn.EmbeddingBag.from_pretrained(vectors, mode="sum", padding_idx=0)
    assert not layer.weight.requires_grad
    assert layer(tinytorch.tensor([[0, 1], [1, 2]])).tolist() == [[2, 3], [6, 8]]
    assert not nn.EmbeddingBag(4, 2, padding_idx=-1).weight[3].any()
    weights = tinytorch.tensor([[1.0, 2.0], [0.5, 0.0]])
    assert layer(tinytorch.tensor([[0, 1], [1, 2]]), None, weights).tolist() == [[4, 6], [1, 1.5]]
