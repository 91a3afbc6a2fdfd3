"""Products with quantized weights: exact at full range, on each kind of vector unit."""

from __future__ import annotations

import numpy as np
import pytest
from llvmlite import binding

from tests.backends.optimized.child import run_script
from tinytorch.backends.optimized.quantized import linear as module, strassen
from tinytorch.backends.optimized.quantized.code_tile import STATIC
from tinytorch.backends.optimized.quantized.dots import OF_WORDS
from tinytorch.backends.optimized.quantized.linear import quantized_linear
from tinytorch.compression import dequantize, pack_int4
from tinytorch.compression.codes import QParams


def dynamic(x, codes):
    scale = np.full((len(codes), 1), 0.5, np.float32)
    return quantized_linear(x, codes, scale, bits=8, group_size=0, activation="dynamic")


@pytest.mark.slow_beyond(14)
@pytest.mark.parametrize("rows", [1, 3, 4, 6, 130])
@pytest.mark.parametrize("columns", [1, 31, 64, 1027])
def test_nothing_saturates_at_full_range(rows, columns):
    """255 * 127 + 255 * 127 does not fit into the 16 bits in which vpmaddubsw adds."""
    for value, code in ((127, -128), (-127, -128), (127, 127), (-127, 127)):
        x = np.full((rows, columns), value, np.float32)
        out = dynamic(x, np.full((70, columns), code, np.int8))
        np.testing.assert_array_equal(out, np.float32(value * code * columns * 0.5))


@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.parametrize("sign", [1, -1])
def test_nothing_saturates_where_both_ends_are_rounded_up(rows, sign):
    """127 steps from -63.5 to 63.5 are codes from 0 to 128, and 2 * 128 * -128 is -2^15."""
    x = np.full((rows, 1026), 63.5 * sign, np.float32)
    x[:, 0] *= -1
    for code in (-128, 127):
        out = dynamic(x, np.full((70, 1026), code, np.int8))
        np.testing.assert_array_equal(out, np.float32(64 * sign * 1024 * code * 0.5))


def test_rows_whose_ends_are_further_apart_than_a_float_holds():
    x = np.full((20, 8), 3e38, np.float32)
    x[:, ::2] *= -1
    weight = np.tile(np.array([0, 1], np.int8), (9, 4))
    np.testing.assert_allclose(dynamic(x / 4, weight), 3e38 / 2, rtol=1e-2)
    assert (dynamic(x, weight) == np.inf).all()  # four of them are too much, and two are not
    weight[:, 4:] = 0
    np.testing.assert_allclose(dynamic(x, weight), 3e38, rtol=1e-2)


@pytest.mark.slow
def test_static_codes_at_both_ends_of_their_range():
    for zero, value, code in ((0, 1e9, -128), (255, -1e9, -128), (100, 1e9, 127)):
        for rows in (2, 40):
            x = np.full((rows, 96), value, np.float32)
            weight, scale = np.full((70, 96), code, np.int8), np.ones((70, 1), np.float32)
            out = quantized_linear(
                x, weight, scale, np.zeros(70, np.float32), np.array([1, zero], np.float32),
                bits=8, group_size=0, activation="static",
            )  # fmt: skip
            wanted = ((255 if value > 0 else 0) - zero) * code * 96
            np.testing.assert_array_equal(out, np.float32(wanted))


@pytest.mark.slow
@pytest.mark.parametrize(("zero", "bias"), [(0, False), (100, True), (255, False)])
@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("n", [512, 523])
def test_static_codes_in_halves_are_the_same_to_the_last_bit(zero, bias, extreme, n, rng):
    """By Strassen's seven products where codes are words, as without VNNI."""
    m, k = 97, 512
    x = rng.integers(-300, 300, (m, k)).astype(np.float32)
    weight = rng.integers(-128, 128, (n, k)).astype(np.int8)
    if extreme:
        x, weight = np.sign(x) * 1000, np.where(weight < 0, -128, 127).astype(np.int8)
        x[3:5], weight[:40] = [[1000], [-1000]], -128
    scale = np.float32(2.0) ** rng.integers(-3, 4, (n, 1)).astype(np.float32)
    shift = rng.integers(-9, 9, n if bias else 0).astype(np.float32)
    codes = np.clip(np.rint(x) + zero, 0, 255)
    sums = (codes - zero).astype(np.int64) @ weight.T.astype(np.int64)
    wanted = sums.astype(np.float32) * scale.ravel() + (shift if bias else np.float32(0))
    out = quantized_linear(
        x, weight, scale, shift if bias else np.zeros(n, np.float32),
        np.array([1, zero], np.float32), bits=8, group_size=0, activation="static",
    )  # fmt: skip
    np.testing.assert_array_equal(out, wanted)
    if STATIC.form is OF_WORDS:
        assert strassen.is_faster(m, k, n)
        assert not strassen.is_faster(m, k + 2, n) and not strassen.is_faster(40, k, n)


def test_long_sums_of_words_do_not_overflow():
    x = np.ones((1, 70_000), np.float32)
    weight, scale = np.full((5, 70_000), -128, np.int8), np.ones((5, 1), np.float32)
    out = quantized_linear(x, weight, scale, bits=8, group_size=0, activation="float")
    np.testing.assert_allclose(out, -128 * 70_000, rtol=1e-5)


def test_rows_without_kernels_are_right_too():
    rng = np.random.default_rng(0)
    weight = rng.integers(-128, 128, (9, 40)).astype(np.int8)
    scale = np.full((9, 1), 0.5, np.float32)
    x = rng.standard_normal((3, 40)).astype(np.float32)
    x[1, 3] = np.nan
    for activation in ("float", "dynamic"):
        out = quantized_linear(x, weight, scale, bits=8, group_size=0, activation=activation)
        assert np.isnan(out[1]).all() and np.isfinite(out[[0, 2]]).all()
    x[1] = 0
    np.testing.assert_array_equal(dynamic(x, weight)[1], 0)


@pytest.mark.slow
def test_the_same_on_several_threads(monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(module.threads, "threads_for", lambda work: 1)
    weight = rng.integers(-128, 128, (333, 70)).astype(np.int8)
    xs = [rng.standard_normal((rows, 70)).astype(np.float32) for rows in (1, 50)]
    alone = [dynamic(x, weight) for x in xs]
    monkeypatch.setattr(module.threads, "threads_for", lambda work: 2)
    for x, expected in zip(xs, alone, strict=True):
        np.testing.assert_array_equal(dynamic(x, weight), expected)


@pytest.mark.slow
def test_static_codes_are_the_same_on_several_threads(monkeypatch, rng):
    """Large enough for products in halves, of two blocks, where codes are words."""
    weight = rng.integers(-128, 128, (4 * strassen.BLOCK + 5, 512)).astype(np.int8)
    x = rng.integers(-300, 300, (97, 512)).astype(np.float32)
    scale, bias = np.ones((len(weight), 1), np.float32), np.ones(len(weight), np.float32)
    found = []
    for count in (1, 2):
        monkeypatch.setattr(module.threads, "threads_for", lambda work, count=count: count)
        zero = np.array([1, 100], np.float32)
        options = {"bits": 8, "group_size": 0, "activation": "static"}
        found.append(quantized_linear(x, weight, scale, bias, zero, **options))
    np.testing.assert_array_equal(*found)


SCRIPT = """
import numpy as np
from tinytorch.backends.optimized.quantized.code_tile import DYNAMIC, STATIC
from tinytorch.backends.optimized.quantized.linear import quantized_linear
from tinytorch.compression import pack_int4, unpack_int4
from tinytorch.jit.cpu import host_vector_unit

rng = np.random.default_rng(0)
SIZES = ((1, 97, 9), (3, 64, 7), (5, 97, 70), (8, 161, 6), (20, 1030, 130), (96, 512, 523))
for rows, k, n in SIZES:
    x = rng.standard_normal((rows, k)).astype(np.float32)
    x[0] = 1
    for low in (-128, 127):
        weight = rng.integers(-128, 128, (n, k)).astype(np.int8)
        weight[-1] = low
        scale = rng.random((n, 1)).astype(np.float32)
        exact = x.astype(float) @ (weight * scale.astype(float)).T
        high, low = (np.maximum(y.max(1, keepdims=True), 0) / np.float32(127) for y in (x, -x))
        rounded = np.rint(x * (1 / (high + low))) * (high + low)
        out = quantized_linear(x, weight, scale, bits=8, group_size=0, activation="float")
        np.testing.assert_allclose(out, exact, rtol=1e-4, atol=3e-4 * np.abs(exact).max())
        out = quantized_linear(x, weight, scale, bits=8, group_size=0, activation="dynamic")
        exact = rounded.astype(float) @ (weight * scale.astype(float)).T
        np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())
        codes = np.clip(np.rint(x * np.float32(80)), -255, 0)
        codes[0] = -255
        out = quantized_linear(
            codes / np.float32(80), weight, scale, np.zeros(n, np.float32),
            np.array([1 / 80, 255], np.float32), bits=8, group_size=0, activation="static",
        )
        exact = codes.astype(float) / 80 @ (weight * scale.astype(float)).T
        np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())
    stored = -(-k // 32) * 32
    codes = rng.integers(-8, 8, (n, stored)).astype(np.int8)
    scale = rng.random((n, stored // 32)).astype(np.float32)
    exact = x.astype(float) @ (codes * np.repeat(scale, 32, 1).astype(float))[:, :k].T
    out = quantized_linear(x, pack_int4(codes), scale, bits=4, group_size=32, activation="float")
    np.testing.assert_allclose(out, exact, rtol=1e-4, atol=3e-4 * np.abs(exact).max())
print(host_vector_unit().name, DYNAMIC.form.name, STATIC.form.name)
"""
AVX512 = "+avx512f,+avx512bw,+avx512vl"
AVX2 = "+avx,+avx2,+fma,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt"


@pytest.mark.slow
def test_without_the_jit():
    assert run_script(SCRIPT, NUMBA_DISABLE_JIT="1").split()[0] in ("avx512", "avx2", "generic")


@pytest.mark.slow
@pytest.mark.exhaustive_beyond(2)
@pytest.mark.parametrize(
    ("features", "name"),
    [
        (AVX2, "avx2 byte word"),
        (f"{AVX2},{AVX512},+avx512vnni", "avx2 byte byte"),  # with 32 registers it would be avx512
        (f"{AVX2},{AVX512},+avx512dq", "avx512 byte word"),
        (f"{AVX2},+avxvnni", "avx2 byte byte"),
        ("+sse,+sse2", "generic word word"),
    ],
)
def test_on_other_vector_units(features, name, tmp_path):
    here = binding.get_host_cpu_features()
    if missing := [f for f in features.split(",") if not here.get(f[1:])]:
        pytest.skip(f"this processor has no {' '.join(missing)}")
    assert run_script(
        SCRIPT, NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES=features,
        TINYTORCH_CACHE_DIR=str(tmp_path),
    ) == name  # fmt: skip


def test_four_bits_are_read_as_the_codes_say():
    codes = np.arange(-8, 8, dtype=np.int8).repeat(4).reshape(1, 64).repeat(5, 0)
    qparams = QParams(np.full((5, 2), 0.25, np.float32), np.zeros((5, 2), np.int32), 4, True)
    x = np.eye(64, dtype=np.float32)
    for rows in (x[:1], x[1:4], x):
        out = quantized_linear(
            rows, pack_int4(codes), qparams.scale, bits=4, group_size=32, activation="float"
        )
        np.testing.assert_allclose(out, rows @ dequantize(codes, qparams).T, rtol=1e-4)
