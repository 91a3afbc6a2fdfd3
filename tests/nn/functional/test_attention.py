from __future__ import annotations

import numpy as np
import pytest
import torch.nn.functional as TF

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.errors import DTypeError, ShapeError


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
@pytest.mark.parametrize("shapes", [[(4, 3), (5, 3), (5, 2)], [(2, 2, 4, 3)] * 3])
def test_equals_pytorch(agree, check_twice, rng, options, shapes):
    arrays = [rng.standard_normal(shape) for shape in shapes]
    agree(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options),
        lambda q, k, v: TF.scaled_dot_product_attention(q, k, v, **options),
        *arrays,
    )
    if len(shapes[0]) == 2:
        check_twice(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), *arrays)


@pytest.mark.parametrize("kind", ["bool", "float", "rows", "infinite rows"])
def test_masks_equal_pytorch(agree, rng, kind):
    arrays = [rng.standard_normal((2, 3, 4)) for _ in range(3)]
    mask = rng.random((3, 3)) < 0.6
    mask[0, 0] = mask[2, 1] = True
    mask[1] = kind not in ("rows", "infinite rows")  # else this query sees no key
    if kind == "float":
        mask = rng.standard_normal((3, 3))
    if kind == "infinite rows":
        mask = np.where(mask, 0.0, -np.inf)
    agree(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, tinytorch.tensor(mask)),
        lambda q, k, v: TF.scaled_dot_product_attention(q, k, v, _torch(mask)),
        *arrays,
    )


def _torch(array):
    import torch

    return torch.from_numpy(array)


def test_grouped_queries_equal_pytorch(agree, rng):
    arrays = [rng.standard_normal((2, heads, 3, 4)) for heads in (6, 2, 2)]
    agree(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        lambda q, k, v: TF.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        *arrays,
    )


def test_dropout():
    tinytorch.manual_seed(0)
    q, v = tinytorch.ones(1, 4), tinytorch.eye(1000)
    out = F.scaled_dot_product_attention(q, tinytorch.ones(1000, 4), v, dropout_p=0.25)
    values = set(out.numpy().ravel().round(6))
    assert values == {0.0, np.float32(1 / 750).round(6)}
    assert 0.2 < (out == 0).float().mean().item() < 0.3


def test_dropped_weights_are_the_same_in_the_backward(rng):
    q, k, v = (tinytorch.tensor(rng.standard_normal((2, 4, 5, 3))) for _ in range(3))
    direction = tinytorch.tensor(rng.standard_normal(v.shape))

    def loss(values):
        tinytorch.manual_seed(0)
        return (F.scaled_dot_product_attention(q, k, values, dropout_p=0.5) * direction).sum()

    leaf = v.clone().requires_grad_()
    loss(leaf).backward()
    # it is linear in the values: the difference is the gradient, if the same weights are dropped
    other = tinytorch.tensor(rng.standard_normal(v.shape))
    change = loss(v + other) - loss(v)
    np.testing.assert_allclose((leaf.grad * other).sum().item(), change.item(), rtol=1e-9)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_a_query_that_sees_nothing_gives_zeros_and_gradients_of_zero(backend, rng):
    mask = tinytorch.tensor([[True, True], [False, False]])
    for each in (mask, tinytorch.where(mask, 0.0, -np.inf)):
        q, k, v = (
            tinytorch.tensor(rng.standard_normal((2, 3)), requires_grad=True) for _ in range(3)
        )
        with tinytorch.using_backend(backend):
            out = F.scaled_dot_product_attention(q, k, v, each)
            out[1].sum().backward()
        assert (out[1] == 0).all() and (out[0] != 0).all()
        assert all((x.grad == 0).all() for x in (q, k, v))


def test_a_mask_can_be_trained(agree, check_twice, rng):
    arrays = [rng.standard_normal(shape) for shape in ((2, 3, 4), (2, 5, 4), (2, 5, 2), (3, 5))]
    agree(F.scaled_dot_product_attention, TF.scaled_dot_product_attention, *arrays)
    check_twice(F.scaled_dot_product_attention, *arrays)


def test_dimensions_in_front_broadcast(agree, rng):
    arrays = [rng.standard_normal(shape) for shape in ((2, 3, 4), (3, 1, 5, 4), (5, 6))]
    arrays[2] = rng.standard_normal((2, 5, 6))
    agree(
        F.scaled_dot_product_attention,
        lambda q, k, v: TF.scaled_dot_product_attention(q, k, v),
        *arrays,
    )


def test_errors():
    x, mask = tinytorch.ones(2, 3, 4), tinytorch.ones(3, 3)
    with pytest.raises(ShapeError, match=r"query \(2, 3, 4\) must be \(..., l, e\), key \(2, 3, 5"):
        F.scaled_dot_product_attention(x, tinytorch.ones(2, 3, 5), x)
    with pytest.raises(ValueError, match="either attn_mask or is_causal"):
        F.scaled_dot_product_attention(x, x, x, mask, is_causal=True)
    with pytest.raises(ShapeError, match="2 query heads cannot share the heads of"):
        k = tinytorch.ones(3, 3, 4)
        F.scaled_dot_product_attention(x, k, k, enable_gqa=True)
    with pytest.raises(ShapeError, match=r"mask \(4, 3\) does not broadcast to the scores \("):
        F.scaled_dot_product_attention(x, x, x, tinytorch.ones(4, 3))
    with pytest.raises(DTypeError, match=r"attn_mask must be bool, or floats to add, not int64"):
        F.scaled_dot_product_attention(x, x, x, mask.long())
    with pytest.raises(DTypeError, match=r"takes floating-point tensors, not int64; use x.float"):
        F.scaled_dot_product_attention(x.long(), x.long(), x.long())
    with pytest.raises(ValueError, match=r"p must be from 0 to 1, not 1.5"):
        F.scaled_dot_product_attention(x, x, x, dropout_p=1.5)
