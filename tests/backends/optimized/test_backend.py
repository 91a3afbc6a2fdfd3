"""Which kernel the optimized backend chooses."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tinytorch
from tinytorch import ops
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.dispatch import apply


@pytest.mark.slow
@pytest.mark.parametrize("m", [4, 2])
def test_winograd_is_used_where_asked_for_and_where_it_fits(m: int) -> None:
    x, w = tinytorch.randn(8, 32, 24, 24), tinytorch.randn(32, 32, 3, 3)
    params = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    exact = OptimizedBackend()
    quick = OptimizedBackend(winograd=m)

    def both(x: tinytorch.Tensor = x, **changes: object) -> tuple[np.ndarray, np.ndarray]:
        results = []
        for backend in (exact, quick):
            with tinytorch.using_backend(backend):
                results.append(apply(ops.conv2d, x, w, **{**params, **changes}).numpy())
        return results[0], results[1]

    direct, winograd = both(x)
    assert np.abs(direct - winograd).max() < 1e-3
    assert (direct != winograd).any()  # other rounding: it did run
    direct, same = both(x[:1, :, :4, :4])  # so few tiles do not pay for the kernel's transform
    assert (direct == same).all()
    for changes in ({"stride": (2, 2)}, {"padding": (0, 0)}, {"dilation": (2, 2)}):
        direct, same = both(x, **changes)
        assert (direct == same).all()


def test_there_are_only_two_winograd_transforms() -> None:
    with pytest.raises(ValueError, match=r"winograd must be None or one of \[2, 4\]: 3"):
        OptimizedBackend(winograd=3)


def test_threads_are_set_through_the_package() -> None:
    before = tinytorch.get_num_threads()
    try:
        tinytorch.set_num_threads(1)
        assert tinytorch.get_num_threads() == 1
        with pytest.raises(ValueError, match="the number of threads must be between 1 and"):
            tinytorch.set_num_threads(0)
    finally:
        tinytorch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_third_power_is_two_products(dtype, rng):
    special = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e30, -1e-30]
    array = np.concatenate([rng.standard_normal(20), special]).astype(dtype)
    with tinytorch.using_backend(OptimizedBackend()), np.errstate(all="ignore"):
        x = tinytorch.from_numpy(array)
        for exponent in (3, 3.0):
            np.testing.assert_array_equal((x**exponent).numpy(), array * array * array)
        np.testing.assert_array_equal((x**3.5).numpy(), np.power(array, 3.5).astype(dtype))
        assert (tinytorch.tensor([2, -3]) ** 3).tolist() == [8, -27]


def _tried(a):  # type: ignore[no-untyped-def]
    try:
        return 1 / (1 + math.exp(-a))
    except OverflowError:
        return 0.0


def _named(a):  # type: ignore[no-untyped-def]
    try:
        return 1 / (1 + math.exp(-a))
    except OverflowError as _:
        return 0.0


def _walrus(a):  # type: ignore[no-untyped-def]
    return 0.0 if (b := -a) > 800 else 1 / (1 + math.exp(b))


def _recursive(a):  # type: ignore[no-untyped-def]
    return 1 / (1 + math.exp(-a)) if a >= 0 else math.exp(a) * _recursive(-a)


@pytest.mark.parametrize("definition", [_tried, _named, _walrus, _recursive])
def test_a_definition_that_cannot_be_compiled_is_looped(definition, monkeypatch) -> None:
    """A right answer to the exercise of module 03, for one."""
    monkeypatch.setattr(ops.sigmoid, "scalar", definition)
    with tinytorch.using_backend(OptimizedBackend()):
        x = tinytorch.tensor([-1000.0, 0.0, 2.0])
        with pytest.warns(RuntimeWarning, match=r"sigmoid runs as a slow loop in Python, as its "):
            assert x.sigmoid().tolist() == pytest.approx([0.0, 0.5, 1 / (1 + math.exp(-2))])
