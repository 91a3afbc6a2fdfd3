"""What every backend must do: give, for each op, what the NumPy backend gives.

Floating-point results are compared with the NumPy backend in float64, within what rounding in the
sample's dtype can do; everything else must be equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.op_samples import Sample
from tinytorch.backends import ComputeBackend, find_backend
from tinytorch.dispatch import apply
from tinytorch.op import Op
from tinytorch.state import using_backend

# Sums of products: the error is within eps times their length times the sum of absolute values.
SUMS = {
    *("sum", "cumsum", "fold", "scatter_add", "matmul", "linear", "linear_weight"),
    *("conv2d", "conv2d_input", "conv2d_weight"),
    *("avg_pool2d", "avg_pool2d_backward", "max_pool2d_backward"),
}
# Elsewhere errors are within so many eps of the result, plus the second times eps of 1.
DEFAULT = (16, 0)
ROUNDING = {
    "erf": (16, 4),
    "pow": (64, 0),
    "gelu": (32, 128),
    "gelu_backward": (64, 2048),
    "softmax": (64, 1),
    "log_softmax": (64, 64),
    "softmax_backward": (64, 64),
    "log_softmax_backward": (64, 256),
    "cross_entropy": (64, 64),
    "cross_entropy_backward": (64, 64),
    **dict.fromkeys(["layer_norm", "batch_norm"], (256, 1024)),
    **dict.fromkeys(["layer_norm_backward", "batch_norm_backward"], (4096, 65536)),
    **dict.fromkeys(["layer_norm_weight", "batch_norm_weight"], (256, 4096)),
}


def run(backend: str | ComputeBackend, op: Op, inputs: Any, params: dict[str, Any]) -> Any:
    """The result of an op, through the door, as an array."""
    with using_backend(backend):
        return apply(op, *inputs, **params).numpy()


def assert_conforms(backend: str | ComputeBackend, op: Op, sample: Sample) -> None:
    """The backend gives what NumPy gives, and leaves the inputs as they were."""
    before = [np.array(x) for x in sample.inputs]
    result = run(backend, op, sample.tensors(), sample.params)
    for x, copy in zip(sample.inputs, before, strict=True):
        np.testing.assert_array_equal(np.asarray(x), copy, f"{op.name} changed its input")
    expected = run("numpy", op, sample.tensors(), sample.params)
    assert result.dtype == expected.dtype and result.shape == expected.shape
    if result.dtype.kind != "f" or (op.kind in ("movement", "creation") and op.name != "fold"):
        np.testing.assert_array_equal(result, expected)
    elif result.size:
        _assert_close(op, sample, result)


def _assert_close(op: Op, sample: Sample, result: Any) -> None:
    precise = Sample(tuple(_precise(x, result.dtype) for x in sample.inputs), sample.params)
    exact = run("numpy", op, precise.tensors(), sample.params)
    finite = np.isfinite(exact)
    with np.errstate(over="ignore"):
        special = exact.astype(result.dtype)[~finite]
    np.testing.assert_array_equal(result[~finite], special, "infinities and NaN")
    got, exact = result[finite].astype(np.float64), exact[finite]
    bound = _error_bound(op, precise, result.dtype, exact, finite)
    wrong = ~(np.abs(got - exact) <= bound + 4 * np.finfo(result.dtype).tiny)
    assert not wrong.any(), (
        f"{op.name}: {got[wrong][:3]} should be {exact[wrong][:3]}, within {bound[wrong][:3]}"
    )


def _error_bound(op: Op, precise: Sample, dtype: Any, exact: Any, finite: Any) -> Any:
    eps = float(np.finfo(dtype).eps)  # a float16 would overflow below
    if op.name not in SUMS:
        relative, offset = ROUNDING.get(op.name, DEFAULT)
        return relative * eps * np.abs(exact) + offset * eps
    length = 4 + max(np.size(x) for x in precise.inputs)
    absolute = Sample(tuple(np.asarray(abs(x)) for x in precise.inputs), precise.params)
    if op.name == "max_pool2d_backward":  # where the largest elements stand must stay
        absolute.inputs = (absolute.inputs[0], precise.inputs[1])
    return length * eps * run("numpy", op, absolute.tensors(), precise.params)[finite]


def _precise(x: Any, dtype: np.dtype[Any]) -> Any:
    """The same values in float64: a Python number is first rounded as the tensors are."""
    if isinstance(x, np.ndarray):
        return x.astype(np.float64) if x.dtype.kind == "f" else x
    return float(dtype.type(x))


def all_backends() -> list[str]:
    """Every registered backend, loaded or not."""
    from tinytorch.backends import list_backends

    return list_backends()


def load(name: str) -> ComputeBackend:
    """The backend; a test that needs one whose package is not installed is skipped."""
    import pytest

    from tinytorch.errors import MissingExtraError

    try:
        return find_backend(name)
    except MissingExtraError as error:
        pytest.skip(str(error))
