from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tinytorch
import tinytorch.nn.functional as F
from tinytorch import Generator
from tinytorch.autograd import grad
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.dispatch import Mode
from tinytorch.errors import ShapeError


@given(p=st.floats(0.1, 0.9), seed=st.integers(0, 999))
def test_elements_are_zero_or_scaled(p, seed):
    x = tinytorch.full((50, 40), 3.0, dtype="float64")
    out = F.dropout(x, p, generator=Generator(seed)).numpy()
    kept = out != 0
    np.testing.assert_allclose(out[kept], 3 / (1 - p))
    # five standard deviations of 2,000 coins
    assert abs(kept.mean() - (1 - p)) < 5 * np.sqrt(p * (1 - p) / 2000)


def test_the_gradient_passes_where_the_value_did():
    x = tinytorch.ones(1000, requires_grad=True)
    out = F.dropout(x, 0.3)
    out.sum().backward()
    assert x.grad.tolist() == out.tolist()


def test_out_of_training_and_at_the_ends():
    x = tinytorch.randn(5)
    assert F.dropout(x, 0.5, training=False) is x
    assert F.dropout(x, 0.0) is x
    assert F.dropout(x, 1.0).tolist() == [0] * 5
    assert F.dropout(tinytorch.zeros(0, 3)).shape == (0, 3)


def test_the_seed_determines_the_mask():
    x = tinytorch.ones(100)
    tinytorch.manual_seed(7)
    first, second = F.dropout(x), F.dropout(x)
    tinytorch.manual_seed(7)
    assert F.dropout(x).tolist() == first.tolist()
    assert second.tolist() != first.tolist()
    by_generator = [F.dropout(x, generator=Generator(3)).tolist() for _ in range(2)]
    assert by_generator[0] == by_generator[1]


def test_calls_of_one_kind_draw_anew():
    """Also where parts of them run as programs."""
    x = tinytorch.ones(4, 16, 2, 2, requires_grad=True)
    for draw in (F.dropout, F.dropout2d):
        tinytorch.manual_seed(3)
        replayed = [draw(x) for _ in range(80)]
        tinytorch.manual_seed(3)
        with tinytorch.using_backend(NumpyBackend()), Mode():  # a mode sees each op
            each = [draw(x) for _ in range(80)]
        assert [t.tolist() for t in replayed] == [t.tolist() for t in each]
        assert len({str(t.tolist()) for t in replayed}) == 80
        (gradient,) = grad(replayed[-1].sum(), x)
        assert gradient.tolist() == each[-1].tolist()


def test_dropout2d_drops_whole_channels():
    out = F.dropout2d(tinytorch.ones(20, 10, 3, 4), 0.4).numpy()
    flat = out.reshape(200, 12)
    assert (flat == flat[:, :1]).all()
    assert 0 < (flat[:, 0] == 0).sum() < 200


def test_derivatives(check_twice, rng):
    check_twice(lambda x: F.dropout(x**3, 0.4, generator=Generator(0)), rng.standard_normal((4, 5)))


@pytest.mark.parametrize("name", ["dropout", "dropout2d"])
def test_often_repeated_calls_drop_what_one_call_drops(name, rng):
    values, results = rng.standard_normal((2, 3, 4, 5)).astype(np.float32), {}
    for backend in ("numpy", "optimized"):
        generator, found = Generator(7), results.setdefault(backend, [])
        with tinytorch.using_backend(backend):
            for p in [0.25] * 9 + [0.75] * 9:
                x = tinytorch.tensor(values, requires_grad=True)
                out = getattr(F, name)(x, p, generator=generator)
                (out * out).sum().backward()
                found.append((out.tolist(), x.grad.tolist()))
    assert results["numpy"] == results["optimized"]
    assert results["numpy"][0] != results["numpy"][1]


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_p_must_be_a_probability(p):
    with pytest.raises(ValueError, match=f"dropout: p must be from 0 to 1, not {p}"):
        F.dropout(tinytorch.ones(2), p)


def test_dropout2d_needs_images():
    with pytest.raises(ShapeError, match=r"dropout2d: the input must be \(n, .* not \(2, 3\)"):
        F.dropout2d(tinytorch.ones(2, 3))
