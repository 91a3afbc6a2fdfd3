"""Borders of what a tensor has at its edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch.nn.functional as TF
from hypothesis import assume, given, settings, strategies as st

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.errors import ShapeError

MODES = {"reflect": 2, "circular": 3, "replicate": 4}  # the widest border of three elements


@pytest.mark.parametrize("mode", MODES)
@given(data=st.data(), dims=st.integers(1, 2), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_borders_equal_pytorch(agree, mode, data, dims, seed):
    sizes = data.draw(st.lists(st.integers(3, 5), min_size=dims, max_size=dims))
    width = st.integers(-1, MODES[mode])
    border = data.draw(st.lists(width, min_size=2 * dims, max_size=2 * dims))
    pairs = zip(border[::2], border[1::2], reversed(sizes), strict=True)
    kept = [(a, b, n + min(a, 0) + min(b, 0)) for a, b, n in pairs]
    assume(mode != "circular" or all(max(a, b) <= n for a, b, n in kept))
    x = np.random.default_rng(seed).standard_normal((2, 2, *sizes))
    agree(lambda x: F.pad(x, border, mode), lambda x: TF.pad(x, border, mode), x)


@pytest.mark.parametrize("mode", MODES)
def test_three_dimensions_and_two_times_differentiable(agree, check_twice, mode, rng):
    x, border = rng.standard_normal((1, 2, 3, 4, 3)), (1, 0, 2, 1, 0, 1)
    agree(lambda x: F.pad(x, border, mode), lambda x: TF.pad(x, border, mode), x)
    check_twice(lambda x: F.pad(x, (1, 2, 2, 1), mode) ** 3, rng.standard_normal((1, 3, 4)))


@pytest.mark.parametrize("mode", MODES)
def test_no_border_gives_a_copy(mode):
    x = tinytorch.ones(1, 2, 3)
    F.pad(x, (0, 0, 0, 0), mode).fill_(7.0)
    assert x.numpy().max() == 1.0


def test_a_border_that_is_too_wide_names_the_dimension():
    x = tinytorch.ones(2, 4, 3)
    for _ in range(2):  # also where the same has been asked before
        with pytest.raises(ShapeError, match=r"reflect border of 3 .* dimension 2 .* \(2, 4, 3\)"):
            F.pad(x, (3, 0), "reflect")
    with pytest.raises(ShapeError, match=r"circular border of 3 is too wide"):
        F.pad(x, (3, -1), "circular")  # of the two elements that are left
    with pytest.raises(ShapeError, match=r"-2 and -1 leave nothing of dimension 2 of \(2, 4, 3\)"):
        F.pad(x, (-2, -1, 1, 1), "replicate")
