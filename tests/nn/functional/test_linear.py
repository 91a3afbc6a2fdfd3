from __future__ import annotations

import numpy as np
import pytest
import torch.nn.functional as TF
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.errors import ShapeError


@given(
    batch=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    features=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    bias=st.booleans(),
)
def test_equals_pytorch(agree, batch, features, bias):
    rng = np.random.default_rng(len(batch))
    arrays = [rng.standard_normal((*batch, features[0])), rng.standard_normal(features[::-1])]
    if bias:
        arrays.append(rng.standard_normal(features[1]))
    agree(F.linear, TF.linear, *arrays)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 3), (0, 3)])
def test_a_weight_of_one_output(agree, rng, shape):
    agree(F.linear, TF.linear, rng.standard_normal(shape), rng.standard_normal(3))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinity_and_nan(agree, rng, value):
    x = rng.standard_normal((3, 2))
    x[1, 1] = value
    agree(F.linear, TF.linear, x, rng.standard_normal((4, 2)), rng.standard_normal(4))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 3)])
def test_derivatives(check_twice, rng, shape):
    arrays = rng.standard_normal(shape), rng.standard_normal((4, 3)), rng.standard_normal(4)
    check_twice(F.linear, *arrays)
    check_twice(F.linear, *arrays[:2])


def test_errors():
    x = tinytorch.ones(5, 3)
    text = r"linear: input \(5, 3\) and weight \(2, 4\) do not fit"
    with pytest.raises(ShapeError, match=text):
        F.linear(x, tinytorch.ones(2, 4))
    with pytest.raises(ShapeError, match=r"linear: input \(5, 3\) and weight \(3,\)"):
        F.linear(x, tinytorch.ones(3), tinytorch.ones(1))
    with pytest.raises(ShapeError, match=r"linear: bias \(3,\) must have shape \(2,\)"):
        F.linear(x, tinytorch.ones(2, 3), tinytorch.ones(3))
