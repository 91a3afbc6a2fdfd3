from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.errors import DTypeError, ShapeError

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
reductions = st.sampled_from(["none", "mean", "sum"])


@given(shape=SHAPES, reduction=reductions, weighted=st.booleans(), seed=st.integers(0, 999))
def test_binary_cross_entropy_equals_pytorch(agree, shape, reduction, weighted, seed):
    rng = np.random.default_rng(seed)
    weight = rng.random(shape) if weighted else None
    agree(
        lambda p, t: F.binary_cross_entropy(
            p, t, None if weight is None else tinytorch.tensor(weight), reduction
        ),
        lambda p, t: TF.binary_cross_entropy(
            p, t, None if weight is None else torch.tensor(weight), reduction=reduction
        ),
        rng.uniform(0.01, 0.99, shape),
        rng.random(shape),
    )


def test_binary_cross_entropy_at_probabilities_of_0_and_1(agree):
    target = np.array([0.0, 1, 0, 1, 0.5, 0.5, 0, 1])
    agree(
        lambda p: F.binary_cross_entropy(p, tinytorch.tensor(target), reduction="none"),
        lambda p: TF.binary_cross_entropy(p, torch.tensor(target), reduction="none"),
        np.array([0.0, 0, 1, 1, 0, 1, 1e-300, 1e-300]),
        rtol=1e-8,  # PyTorch's 1e-12 is a float32
    )


@given(
    shape=SHAPES,
    reduction=reductions,
    weighted=st.booleans(),
    pos_weighted=st.booleans(),
    scale=st.sampled_from([1.0, 30.0]),
    seed=st.integers(0, 999),
)
def test_with_logits_equals_pytorch(agree, shape, reduction, weighted, pos_weighted, scale, seed):
    rng = np.random.default_rng(seed)
    weight = rng.random(shape) if weighted else None
    pos_weight = rng.random(shape[-1:]) if pos_weighted else None

    def options(tensor):
        given = {"weight": weight, "pos_weight": pos_weight}
        return {k: tensor(v) for k, v in given.items() if v is not None} | {"reduction": reduction}

    agree(
        lambda x, t: F.binary_cross_entropy_with_logits(x, t, **options(tinytorch.tensor)),
        lambda x, t: TF.binary_cross_entropy_with_logits(x, t, **options(torch.tensor)),
        rng.normal(0, scale, shape),
        rng.random(shape),
    )


@pytest.mark.parametrize("target", [0.0, 1.0])
def test_with_logits_is_exact_at_both_ends(target):
    """The loss of x for target 0 is log(1 + exp(x)), to the last bits; for 1 it is that of -x."""
    logits = np.array([-1e30, -700, -50, -30, -1, 0, 1, 30, 50, 700, 1e30])
    expected = np.logaddexp(0, logits if target == 0 else -logits)
    loss = F.binary_cross_entropy_with_logits(
        tinytorch.tensor(logits), tinytorch.tensor(np.full(11, target)), reduction="none"
    )
    np.testing.assert_allclose(loss.numpy(), expected, rtol=1e-14)


@given(
    shape=hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4),
    reduction=st.sampled_from(["none", "batchmean", "sum"]),
    log_target=st.booleans(),
    seed=st.integers(0, 999),
)
def test_kl_div_equals_pytorch(agree, shape, reduction, log_target, seed):
    rng = np.random.default_rng(seed)
    options = {"reduction": reduction, "log_target": log_target}
    agree(
        lambda x, t: F.kl_div(x, t, **options),
        lambda x, t: TF.kl_div(x, t, **options),
        rng.standard_normal(shape),
        rng.uniform(0.01, 1, shape),
    )


def test_kl_div_where_the_target_is_zero_and_its_mean():
    x, target = tinytorch.tensor([-1.0, -2.0]), tinytorch.tensor([0.0, 1.0])
    assert F.kl_div(x, target, reduction="none").tolist() == [0, 2]
    assert F.kl_div(x, target).item() == 1


def test_derivatives(check_twice, rng):
    p, t = rng.uniform(0.1, 0.9, (3, 2)), rng.uniform(0.1, 0.9, (3, 2))
    x = rng.standard_normal((3, 2))
    check_twice(F.binary_cross_entropy, p, t)
    check_twice(F.binary_cross_entropy_with_logits, x, t)
    check_twice(F.kl_div, x, t)
    check_twice(lambda x, t: F.kl_div(x, t, "sum", True), x, t)


@pytest.mark.parametrize(
    "name", ["binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"]
)
def test_shapes_must_be_equal(name):
    text = rf"{name}: input \(3, 1\) and target \(3,\) must have the same shape"
    with pytest.raises(ShapeError, match=text):
        getattr(F, name)(tinytorch.full((3, 1), 0.5), tinytorch.ones(3))


@pytest.mark.parametrize("wrong", [-0.25, 1.5, math.nan])
def test_what_is_not_a_probability(wrong):
    text = f"from 0 to 1, not {wrong}; for logits use binary_cross_entropy_with_logits"
    given = tinytorch.tensor([0.5, wrong])
    with pytest.raises(ValueError, match=text):
        F.binary_cross_entropy(given, tinytorch.ones(2))
    with pytest.raises(ValueError, match=f"target must be from 0 to 1, not {wrong}"):
        F.binary_cross_entropy(tinytorch.ones(2), given)


def test_kl_div_names_its_reductions():
    text = "reduction must be one of none, mean, sum, batchmean, not 'avg'"
    with pytest.raises(ValueError, match=text):
        F.kl_div(tinytorch.ones(2), tinytorch.ones(2), "avg")


def test_ctc_refuses_whole_numbers():
    scores = tinytorch.zeros(4, 1, 3, dtype="int64")
    with pytest.raises(DTypeError, match="ctc_loss takes floating-point scores, not int64"):
        F.ctc_loss(scores, tinytorch.tensor([[1, 2]]), [4], [2])


def test_targets_that_are_no_probabilities_give_no_number():
    """kl_div left out a target below 0 as if it were 0."""
    given = tinytorch.tensor([0.5, -3.0]), torch.tensor([0.5, -3.0])
    ours = F.kl_div(tinytorch.zeros(2), given[0], reduction="none")
    theirs = torch.nn.functional.kl_div(torch.zeros(2), given[1], reduction="none")
    np.testing.assert_allclose(ours.numpy(), theirs.numpy())


def test_what_is_infinitely_far_costs_nothing():
    """What does not count was multiplied by 0: of infinity that is NaN."""
    x = tinytorch.tensor([float("inf"), 0.5], requires_grad=True)
    loss = F.hinge_embedding_loss(x, tinytorch.tensor([-1, -1]), reduction="sum")
    loss.backward()
    assert loss.item() == 0.5 and x.grad.tolist() == [0.0, -1.0]


def test_shapes_that_would_broadcast_to_pairs_are_refused():
    row, column = tinytorch.ones(3), tinytorch.ones(3, 1)
    with pytest.raises(ShapeError, match=r"margin_ranking_loss: \[\(3,\), \(3, 1\)"):
        F.margin_ranking_loss(row, column, row)
    with pytest.raises(ShapeError, match="triplet_margin_loss"):
        F.triplet_margin_loss(row, row, column)
    with pytest.raises(ShapeError, match=r"target \(3, 1\) \(3,\)"):
        F.multi_margin_loss(tinytorch.ones(3, 4), column.long())
    with pytest.raises(ShapeError, match=r"gaussian_nll_loss: var \(2,\) for input \(3,\)"):
        F.gaussian_nll_loss(row, row, tinytorch.ones(2))
    with pytest.raises(ValueError, match=r"var must not be negative, not -1\.0"):
        F.gaussian_nll_loss(row, row, tinytorch.tensor([1.0, -1.0, 1.0]))
