"""What is particular to the naive backend; test_conformance.py has what all backends share."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tinytorch
from tinytorch.backends.naive import NaiveBackend, NaiveCallWarning, cost
from tinytorch.backends.naive.lists import lanes, scalar_of, to_array
from tinytorch.op import OPS

backend = NaiveBackend()


def test_it_is_the_default():
    assert isinstance(tinytorch.backends.find_backend(tinytorch.backends.DEFAULT_BACKEND),
                      NaiveBackend)  # fmt: skip


def test_matmul_is_the_definition(rng):
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    rows, columns = a.tolist(), b.T.tolist()  # floats: `sum` rounds less from Python 3.12 on
    c = [[sum(x * y for x, y in zip(r, c, strict=True)) for c in columns] for r in rows]
    np.testing.assert_array_equal(backend.matmul(a, b), c)


def test_conv2d_is_the_definition(rng):
    x, w, b = rng.standard_normal((2, 4, 5, 6)), rng.standard_normal((6, 2, 2, 3)), np.arange(6.0)
    stride, padding, dilation, groups = (2, 1), (1, 2), (2, 1), 2
    got = backend.conv2d(x, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups)

    def element(n, c, i, j):
        inside = 0 <= i < 5 and 0 <= j < 6
        return x[n, c, i, j] if inside else 0.0

    for n, o, i, j in np.ndindex(got.shape):
        total = b[o] + sum(
            w[o, c, p, q]
            * element(n, o // 3 * 2 + c, i * 2 - 1 + p * 2, j * 1 - 2 + q * 1)
            for c in range(2) for p in range(2) for q in range(3)
        )  # fmt: skip
        assert abs(got[n, o, i, j] - total) < 1e-12


def test_gradients_of_conv2d_are_adjoint(rng):
    # <conv(x, w), g> is linear in each: the same number by all three
    p = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 3}
    x, w = rng.standard_normal((2, 3, 6, 7)), rng.standard_normal((6, 1, 3, 2))
    y = backend.conv2d(x, w, **p)
    g = rng.standard_normal(y.shape)
    total = (y * g).sum()
    dx = backend.conv2d_input(g, w, input_size=(6, 7), **p)
    dw = backend.conv2d_weight(x, g, kernel_size=(3, 2), **p)
    assert dx.shape == x.shape and dw.shape == w.shape
    np.testing.assert_allclose([(dx * x).sum(), (dw * w).sum()], total, rtol=1e-12)


def test_pooling_is_the_definition():
    x = np.array([[[[1.0, 5, 2], [5, 0, 3], [4, 4, 4]]]])
    p = {"kernel_size": (2, 2), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    assert backend.max_pool2d(x, **p).tolist() == [[[[5, 5], [5, 4]]]]
    spread = backend.max_pool2d_backward(np.array([[[[1.0, 10], [100, 1000]]]]), x, **p)
    # the first of equal elements wins
    assert spread.tolist() == [[[[0, 11, 0], [100, 0, 0], [0, 1000, 0]]]]
    del p["dilation"]
    assert backend.avg_pool2d(x, **p).tolist() == [[[[2.75, 2.5], [3.25, 2.75]]]]


def test_rounding_and_wrapping_happen_on_storing():
    assert to_array([0.1, 1e300], (2,), np.dtype(np.float32)).tolist() == [
        float(np.float32(0.1)),
        np.inf,
    ]
    assert to_array([2**31, -(2**31) - 1], (2,), np.dtype(np.int32)).tolist() == [
        -(2**31),
        2**31 - 1,
    ]
    assert to_array([2**63, 3 * 2**64 + 5], (2,), np.dtype(np.int64)).tolist() == [-(2**63), 5]
    assert to_array([], (0, 2), np.dtype(bool)).shape == (0, 2)
    assert to_array([1, 0], (2,), bool).tolist() == [True, False]


def test_integers_wrap_like_numpy():
    a = np.array([2**31 - 1, -(2**31), 7], np.int32)
    with np.errstate(all="ignore"):
        for name, wanted in {"add": a + a, "mul": a * a, "neg": -a, "abs": abs(a)}.items():
            operands = [a] * len(OPS[name].inputs)
            got = backend.elementwise(OPS[name], *operands)
            assert got.dtype == np.int32
            np.testing.assert_array_equal(got, wanted)
    big = np.array([2**62] * 4)
    assert backend.reduction(OPS["sum"], big, dims=(0,), keepdim=False) == 0


def test_a_number_is_rounded_as_its_tensor_is():
    x = tinytorch.tensor([0.1])
    with tinytorch.using_backend(backend):
        assert (x == 0.1).item() and not (x < 0.1).item()
    assert scalar_of(0.1, np.dtype(np.float64)) == 0.1
    assert scalar_of(2**40, np.dtype(np.int32)) == 2**40


def test_sums_are_more_precise_than_the_dtype():
    x = np.full(10_000, 0.1, np.float32)
    total = backend.reduction(OPS["sum"], x, dims=(0,), keepdim=False)
    assert abs(float(total) - 10_000 * float(np.float32(0.1))) < 1e-4


def test_lanes():
    a = np.arange(6).reshape(2, 3)
    assert lanes(a, 0) == [[0, 3], [1, 4], [2, 5]]
    assert lanes(a, 1) == [[0, 1, 2], [3, 4, 5]]
    assert lanes(np.zeros((2, 0, 3)), 1) == [[]] * 6


# -- the warning -----------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch):
    monkeypatch.setattr(cost, "_warned", set())


def test_a_large_call_warns_once_with_its_size_and_the_alternative(fresh, monkeypatch):
    monkeypatch.setattr(cost, "WARN_SECONDS", 1e-5)
    a, b = np.ones((20, 30)), np.ones((30, 40))
    with pytest.warns(NaiveCallWarning) as caught:
        backend.matmul(a, b)
        backend.matmul(a, b)
    assert len(caught) == 1
    assert str(caught[0].message) == (
        "matmul of size 20x30x40 on the naive backend is 24,000 multiply-adds, about 0.0006 s; "
        'tinytorch.set_backend("numpy") or set_backend("optimized") is faster'
    )
    with pytest.warns(NaiveCallWarning, match="40x30x20 on the naive backend is 24,000"):
        backend.matmul(b.T, a.T)


@pytest.mark.parametrize("call", [
    lambda: backend.elementwise(OPS["exp"], np.ones(2000)),
    lambda: backend.reduction(OPS["sum"], np.ones(2000), dims=(0,), keepdim=False),
    lambda: backend.conv2d(np.ones((1, 2, 16, 16)), np.ones((4, 2, 3, 3)), stride=(1, 1),
                           padding=(0, 0), dilation=(1, 1), groups=1),
    lambda: backend.avg_pool2d(np.ones((1, 2, 32, 32)), kernel_size=(2, 2), stride=(1, 1),
                               padding=(0, 0)),
])  # fmt: skip
def test_every_long_loop_warns(call, fresh, monkeypatch):
    monkeypatch.setattr(cost, "WARN_SECONDS", 1e-5)
    with pytest.warns(NaiveCallWarning):
        call()


def test_what_a_lesson_does_is_not_warned_of(fresh):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backend.matmul(np.ones((32, 64)), np.ones((64, 32)))
        assert not cost._warned
