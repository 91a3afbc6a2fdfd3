"""Codes: formulas, ranges, packing, and values that have none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tinytorch.compression import (
    Calibration,
    choose_qparams,
    dequantize,
    pack_int4,
    quantize,
    unpack_int4,
)


@pytest.fixture
def weights():
    """Normal values with planted outliers, as real layers have them."""
    x = np.random.default_rng(0).standard_normal((6, 128)).astype(np.float32)
    x[1] *= 30
    x[2, 5] = 40
    return x


@pytest.mark.parametrize("granularity", ["tensor", "channel", "group"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [8, 4])
def test_no_value_in_the_range_is_off_by_more_than_half_a_step(
    weights, bits, symmetric, granularity
):
    qparams = choose_qparams(weights, bits, symmetric=symmetric, granularity=granularity)
    codes = quantize(weights, qparams)
    error = np.abs(qparams.grouped(dequantize(codes, qparams) - weights))
    assert (error <= qparams.scale[..., None] * 0.502).all()
    assert codes.min() >= qparams.low and codes.max() <= qparams.high


def test_a_range_wider_than_the_largest_float_has_a_scale():
    x = np.array([[3e38, -3e38, 1e38]], np.float32)
    q = choose_qparams(x, symmetric=False)
    assert np.abs(dequantize(quantize(x, q), q) - x).max() <= q.scale[0, 0]


def test_affine_codes_are_pytorchs(weights):
    qparams = choose_qparams(weights, symmetric=False)
    theirs = torch.fake_quantize_per_channel_affine(
        torch.from_numpy(weights), torch.from_numpy(qparams.scale[:, 0]),
        torch.from_numpy(qparams.zero_point[:, 0]), 0, 0, 255,
    ).numpy()  # fmt: skip
    ours = dequantize(quantize(weights, qparams), qparams)
    # PyTorch multiplies with the reciprocal: a tie may fall to the other side
    assert (np.abs(ours - theirs) <= qparams.scale * 1.01).all()
    assert np.isclose(ours, theirs, rtol=1e-5, atol=1e-6).mean() > 0.99
    assert (dequantize(quantize(np.zeros_like(weights), qparams), qparams) == 0).all()


def test_finer_scales_have_smaller_errors_where_there_are_outliers(weights):
    errors = []
    for granularity in ("tensor", "channel", "group"):
        qparams = choose_qparams(weights, granularity=granularity)
        errors.append(np.square(dequantize(quantize(weights, qparams), qparams) - weights).mean())
    assert errors[0] > 2 * errors[1] > 2 * errors[2]


def test_calibration_by_error_has_the_least_and_by_percentile_ignores_outliers():
    x = np.random.default_rng(0).standard_normal((1, 4096))
    x[0, 0] = 12.0  # beyond this the codes of the others are coarse
    errors = {}
    for method in ("range", "percentile", "error"):
        qparams = choose_qparams(x, 4, calibration=Calibration(method))
        errors[method] = np.square(dequantize(quantize(x, qparams), qparams) - x).mean()
    assert errors["error"] < 0.5 * errors["range"]
    low, high = Calibration("percentile", 99.0).bounds(x, 8, symmetric=False)
    assert -3 < low[0] < -2 and 2 < high[0] < 3


def test_int4_round_trip_and_places():
    codes = np.random.default_rng(0).integers(-8, 8, (3, 64)).astype(np.int8)
    packed = pack_int4(codes)
    assert packed.nbytes * 2 == codes.nbytes and packed.dtype == np.uint8
    np.testing.assert_array_equal(unpack_int4(packed), codes)
    assert packed[0, 0] == (codes[0, 0] & 15) + ((codes[0, 16] & 15) << 4)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: choose_qparams(np.array([[1.0, np.nan]])), "1 of 2 values .* nan at .0, 1."),
        (lambda: choose_qparams(np.array([[-np.inf, 2.0]])), "-inf at .0, 0."),
        (lambda: choose_qparams(np.zeros((0, 3))), "no values"),
        (lambda: choose_qparams(np.ones((2, 40)), granularity="group"), "32 does not divide .* 40"),
        (lambda: choose_qparams(np.ones((2, 40)), granularity="row"), "'row'"),
        (lambda: choose_qparams(np.ones((2, 40)), 9), "bits 9"),
        (lambda: Calibration("median"), "'median'"),
        (lambda: Calibration("percentile", 3), "percentile 3"),
        (lambda: quantize(np.array([[np.nan]]), choose_qparams(np.ones((1, 1)))), "1 of 1"),
        (lambda: pack_int4(np.full((1, 32), 9)), "from 9 to 9"),
        (lambda: pack_int4(np.zeros((1, 33))), "33"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize("shape", [(5, 4), (4, 8), (8, 3)])
def test_the_scales_of_another_shape_are_refused(shape):
    params = choose_qparams(np.ones((8, 4), np.float32), granularity="group", group_size=2)
    for call in (quantize, dequantize):
        with pytest.raises(ValueError, match=rf"values \({shape[0]}, {shape[1]}\) .* \(8, 2\)"):
            call(np.zeros(shape, np.int8), params)
