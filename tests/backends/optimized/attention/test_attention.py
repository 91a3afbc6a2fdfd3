"""Attention by blocks against the definition in parts, on NumPy in float64."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tinytorch import ops
from tinytorch.backends.optimized.attention import attention, loops
from tinytorch.dispatch import apply
from tinytorch.jit import threads
from tinytorch.state import using_backend
from tinytorch.tensor import Tensor

FORWARD = ops.scaled_dot_product_attention
BACKWARD = ops.scaled_dot_product_attention_backward


def in_parts(op, inputs, params):
    wide = [
        Tensor(x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x)
        if isinstance(x, np.ndarray)
        else x
        for x in inputs
    ]
    with using_backend("numpy"):
        return apply(op, *wide, **params).numpy()


def check(q, k, v, *rest, is_causal=False, scale=0.3, dropout_p=0.0, rtol=None):
    params = {"is_causal": is_causal, "scale": scale, "dropout_p": dropout_p}
    tolerance = rtol or (2e-5 if q.dtype == np.float32 else 1e-12)
    out = attention.scaled_dot_product_attention(q, k, v, *rest, **params)
    expected = in_parts(FORWARD, (q, k, v, *rest), params)
    np.testing.assert_allclose(out, expected, atol=tolerance, rtol=tolerance)
    g = np.random.default_rng(1).standard_normal(out.shape).astype(q.dtype)
    flat = attention.scaled_dot_product_attention_backward(g, q, k, v, *rest, **params)
    expected = in_parts(BACKWARD, (g, q, k, v, *rest), params)
    largest = np.abs(expected).max(initial=1)
    np.testing.assert_allclose(flat, expected, atol=tolerance * largest, rtol=0)


def arrays(rng, dtype, lead, queries, keys, e, v):
    shapes = (*lead, queries, e), (*lead, keys, e), (*lead, keys, v)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.slow
@pytest.mark.parametrize("queries", [1, 2, 6])
@pytest.mark.parametrize("is_causal", [False, True])
def test_few_queries_and_keys_that_are_rows_of_a_cache(queries, is_causal):
    """One to six queries of a head of the keys are not packed; groups of heads share keys."""
    rng = np.random.default_rng(queries)
    q = rng.standard_normal((2, 6, queries, 20)).astype(np.float32)
    keys, values = rng.standard_normal((2, 2, 3, 700, 20)).astype(np.float32)[..., :300, :]
    mask = rng.random((2, 1, queries, 300)) < 0.7
    check(q, keys, values, is_causal=is_causal)
    check(q, keys, values, mask, is_causal=is_causal)


@pytest.mark.slow
@settings(max_examples=15)
@given(
    queries=st.integers(1, 220), keys=st.integers(1, 400), e=st.integers(1, 70),
    v=st.integers(1, 70), is_causal=st.booleans(), dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_any_sizes(queries, keys, e, v, is_causal, dtype, seed):
    rng = np.random.default_rng(seed)
    check(*arrays(rng, dtype, (), queries, keys, e, v), is_causal=is_causal)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_maximum_may_come_in_any_block_of_keys(rng, dtype, is_causal):
    keys = 2 * loops.KEYS + 5
    q, k, v = arrays(rng, dtype, (), keys if is_causal else 5, keys, 8, 8)
    for order in (np.linspace(0.1, 10, keys), np.linspace(10, 0.1, keys)):
        check(q, (k * order[:, None]).astype(dtype), v, is_causal=is_causal, rtol=1e-4)


@pytest.mark.parametrize("kind", ["bool", "float", "rows", "columns", "one"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_masks(rng, kind, is_causal):
    q, k, v = arrays(rng, np.float32, (2, 3), 50, loops.KEYS + 40, 16, 16)
    shape = {"rows": (3, 50, 1), "columns": (2, 1, 1, k.shape[2]), "one": (1, 1)}.get(
        kind, (50, k.shape[2])
    )
    mask = rng.random(shape) < 0.7
    if kind == "bool":
        mask[0] = False
        mask[1, : loops.KEYS] = False  # it sees nothing in the first block
    if kind == "float":
        mask = np.where(mask, rng.standard_normal(shape), -np.inf).astype(np.float32)
        mask[0] = -np.inf
    check(q, k, v, mask, is_causal=is_causal)
    check(q, k, v, np.asfortranarray(mask), is_causal=is_causal)


@pytest.mark.parametrize("kind", [np.bool_, np.float32])
@pytest.mark.parametrize(
    "shape", ["window", "padding", "causal", "bent", "last", "hole", "nothing"]
)
def test_blocks_of_keys_that_a_mask_hides(rng, shape, kind):
    """Whole blocks are left out, forward and backward; of dropout the others' numbers stay."""
    queries, keys = 130, 2 * loops.KEYS + 70
    i, j = np.arange(queries)[:, None], np.arange(keys)
    shown = {
        "window": (j > 3 * i) & (j <= 3 * i + 50),
        "padding": (j >= loops.KEYS + 3) & (j < loops.KEYS + 90) & (i >= 0),
        "causal": j <= i + 200,
        "bent": j * 20 < i * i,
        "last": (i == queries - 1) & (j > keys - 20),
        "hole": (j < 5) ^ (j > 2 * loops.KEYS + i // 2),
        "nothing": (j < 0) & (i < 0),
    }[shape]
    mask = shown if kind is np.bool_ else np.where(shown, 0.5, -np.inf).astype(kind)
    q, k, v = arrays(rng, np.float32, (2,), queries, keys, 12, 16)
    check(q, k, v, mask)
    check(q, k, v, mask, np.array(3), dropout_p=0.4)


@pytest.mark.slow_beyond(8)
@pytest.mark.parametrize("kind", [np.bool_, np.float32, np.float64])
@pytest.mark.parametrize("length", [5, 64, 130, loops.KEYS + 30])
def test_causal_order_by_a_mask_is_the_same_product(rng, kind, length):
    """What a mask hides above its diagonal is left out as it is by the argument: equal bits, and a
    value that is NaN reaches no more queries."""
    dtype = np.float64 if kind is np.float64 else np.float32
    q, k, v = arrays(rng, dtype, (3,), length, length, 16, 24)
    g = v.copy()
    v[:, length // 2] = np.nan
    shown = np.tri(length, dtype=bool)
    mask = shown if kind is np.bool_ else np.where(shown, 0, -np.inf).astype(kind)
    results = []
    for chosen, is_causal in ((None, True), (mask, False), (mask, True)):
        params = {"is_causal": is_causal, "scale": 0.3, "dropout_p": 0.0}
        out = attention.scaled_dot_product_attention(q, k, v, chosen, **params)
        flat = attention.scaled_dot_product_attention_backward(g, q, k, v, chosen, **params)
        results.append((out, flat))
    assert np.isfinite(results[0][0][:, : length // 8]).all()
    for out, flat in results[1:]:
        np.testing.assert_array_equal(out, results[0][0])
        np.testing.assert_array_equal(flat, results[0][1])


@pytest.mark.parametrize("kind", [np.bool_, np.float32])
def test_what_no_query_sees_may_be_anything(rng, kind):
    """A cache has room for tokens that are still to come."""
    params = {"is_causal": False, "scale": 0.3, "dropout_p": 0.0}
    keys, begin, end = 2 * loops.KEYS, loops.KEYS + 3, loops.KEYS + 90
    for queries in (1, 2, 40):
        q, k, v = arrays(rng, np.float32, (), queries, keys, 12, 16)
        shown = (np.arange(keys) >= begin) & (np.arange(keys) < end)
        mask = shown[None] if kind is np.bool_ else np.where(shown, 0, -np.inf).astype(kind)[None]
        expected = attention.scaled_dot_product_attention(q, k, v, mask, **params)
        k[~shown], v[: loops.KEYS], v[end:] = np.nan, np.nan, np.inf
        out = attention.scaled_dot_product_attention(q, k, v, mask, **params)
        np.testing.assert_array_equal(out, expected)
        flat = attention.scaled_dot_product_attention_backward(out, q, k, v, mask, **params)
        _, dk, dv = np.split(flat, [q.size, q.size + k.size])
        for of_keys in (dk.reshape(k.shape), dv.reshape(v.shape)):
            assert np.isfinite(of_keys[begin:end]).all()
            assert not of_keys[: loops.KEYS].any()
            assert not of_keys[end:].any()


@pytest.mark.parametrize("mask", [True, "bool"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dropout_drops_what_uniform_says(rng, mask, dtype):
    q, k, v = arrays(rng, dtype, (2, 2), 110, loops.KEYS + 30, 8, 12)
    given_mask = mask if mask is True else rng.random((110, k.shape[2])) < 0.8
    check(q, k, v, given_mask, np.array(-5), is_causal=mask is True, dropout_p=0.3)
    check(q, k, v, given_mask, np.array(7), dropout_p=1.0)


def test_groups_of_query_heads_share_a_head(rng):
    q, _, _ = arrays(rng, np.float32, (2, 6), 100, 1, 16, 1)
    _, k, v = arrays(rng, np.float32, (2, 2), 1, 70, 16, 20)
    mask = rng.random((6, 100, 70)) < 0.7
    check(q, k, v, is_causal=True)
    check(q, k, v, mask, np.array(3), dropout_p=0.2)


def test_any_strides(rng):
    q, k, v = (rng.standard_normal((2, 50, 3, 16)).astype(np.float32) for _ in range(3))
    check(*(np.swapaxes(x, 1, 2) for x in (q, k, v)), is_causal=True)
    check(*(x[:, ::-1, :, ::2].swapaxes(1, 2) for x in (q, k, v)))
    check(*(np.ascontiguousarray(x.mT).mT[:, :, :, None].swapaxes(1, 3) for x in (q, k, v)))
    check(*(np.broadcast_to(x[:1], x.shape) for x in (q, k, v)))


def test_nothing_to_attend_to_and_nothing_that_attends(rng):
    for lead, queries, keys, e, v in (
        ((2,), 0, 3, 4, 5), ((2,), 3, 0, 4, 5), ((0,), 3, 3, 4, 5), ((), 3, 2, 4, 0),
    ):  # fmt: skip
        check(*arrays(rng, np.float32, lead, queries, keys, e, v))


@pytest.mark.parametrize("length", [5, 37, 130, loops.KEYS + 30])
def test_nan_in_a_query_or_a_key_reaches_those_who_see_it_alone(rng, length):
    params = {"is_causal": True, "scale": 0.3, "dropout_p": 0.0}
    for position in (0, length // 2, length - 1):
        q, k, v = arrays(rng, np.float32, (), length, length, 8, 8)
        q[position, 3] = np.nan
        out = attention.scaled_dot_product_attention(q, k, v, **params)
        assert np.isnan(out).any(1).nonzero()[0].tolist() == [position]
        flat = attention.scaled_dot_product_attention_backward(v, q, k, v, **params)
        of_queries = np.isnan(flat.reshape(3, length, 8)[0])
        assert of_queries.any(1).nonzero()[0].tolist() == [position]
        q[position, 3], k[position, 2] = 0, np.nan
        out = attention.scaled_dot_product_attention(q, k, v, **params)
        assert np.isnan(out).any(1).nonzero()[0].tolist() == list(range(position, length))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_was_in_the_workspace_is_not_read(rng, is_causal, dtype, monkeypatch):
    def filled(shape, kind):
        block = np.full(shape[0] + 64, 255, kind)  # NaN in both dtypes
        return block[-block.ctypes.data % 64 :][: shape[0]]

    monkeypatch.setattr(attention, "workspace", filled)
    for length in (3, 7, 50, 97, loops.KEYS + 3):
        tensors = arrays(rng, dtype, (2,), length, length, 9, 10)
        check(*tensors, is_causal=is_causal)
        check(*tensors, True, np.array(3), is_causal=is_causal, dropout_p=0.3)
        check(*tensors, rng.random((length, length)) < 0.7, is_causal=is_causal)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_of_the_least_number_is_no_row_of_minus_infinity(rng, dtype):
    """Masks of programs that know no -inf: where all is hidden, all weigh the same."""
    q, k, v = arrays(rng, dtype, (), 20, 40, 8, 8)
    mask = np.full((20, 40), np.finfo(dtype).min, dtype)
    mask[3:, :30] = 0
    out = attention.scaled_dot_product_attention(
        q, k, v, mask, is_causal=False, scale=0.3, dropout_p=0.0
    )
    np.testing.assert_allclose(out[:3], np.broadcast_to(v.mean(0), (3, 8)), rtol=1e-5, atol=1e-6)
    check(q[3:], k, v, mask[3:])


def test_threads_give_the_same_bits(rng):
    q, k, v = arrays(rng, np.float32, (3, 5), 120, 120, 16, 16)
    params = {"is_causal": True, "scale": 0.25, "dropout_p": 0.0}
    results = []
    before = threads.get_num_threads()
    try:
        for count in (1, min(2, threads.cores())):
            threads.set_num_threads(count)
            out = attention.scaled_dot_product_attention(q, k, v, **params)
            flat = attention.scaled_dot_product_attention_backward(out, q, k, v, **params)
            results.append((out, flat))
    finally:
        threads.set_num_threads(before)
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_as_plain_python():
    """Without a compiler an index that is out of bounds is an error."""
    test = f"{__file__}::test_groups_of_query_heads_share_a_head"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", test],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


LONG = """
from pathlib import Path
import numpy as np
from tinytorch.backends.optimized.attention import attention
from tinytorch.jit import threads
threads.set_num_threads(1)
params = {"is_causal": True, "scale": 0.125, "dropout_p": 0.0}
def run(length):
    q = np.ones((1, 1, length, 64), np.float32)
    out = attention.scaled_dot_product_attention(q, q, q, **params)
    return attention.scaled_dot_product_attention_backward(out, q, q, q, **params)
def peak():
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x]
    return int(line.split()[1]) * 1024
run(64)
Path("/proc/self/clear_refs").write_text("5")  # the peak begins again at what there is
before = peak()
run(8192)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_grows_with_the_length_and_not_its_square():
    done = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, check=True)
    extra = int(done.stdout)
    given = 5 * 8192 * 64 * 4  # input, result and gradients
    assert given < extra < given + 30 * 2**20  # the scores of one head alone are 256 MiB
