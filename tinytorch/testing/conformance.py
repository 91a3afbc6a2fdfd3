"""What every backend must do: give, for each op, what the NumPy backend gives.

Floating-point results are compared with the NumPy backend in float64, within what rounding in the
sample's dtype can do; everything else must be equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from tinytorch.backends import ComputeBackend
from tinytorch.dispatch import apply
from tinytorch.op import OPS, Op
from tinytorch.state import using_backend
from tinytorch.testing.op_samples import admitted_dtypes, draw_sample
from tinytorch.testing.source import Sample

# Sums of products: the error is within eps times their length times the sum of absolute values.
SUMS = {
    *("sum", "cumsum", "fold", "scatter", "scatter_add", "matmul", "linear", "linear_weight"),
    *("conv2d", "conv2d_input", "conv2d_weight"),
    *("avg_pool2d", "avg_pool2d_backward", "max_pool2d_backward", "cumprod_backward"),
}
# Elsewhere errors are within so many eps of the result, plus the second times eps of 1.
DEFAULT = (16, 0)
ROUNDING = {
    "erf": (16, 4),
    "pow": (64, 0),
    "cross": (16, 64),
    "gelu": (32, 128),
    "gelu_backward": (64, 2048),
    "softmax": (64, 1),
    "log_softmax": (64, 64),
    "softmax_backward": (64, 64),
    "log_softmax_backward": (64, 256),
    "cross_entropy": (64, 64),
    "cross_entropy_backward": (64, 64),
    "ctc_loss": (16, 16),
    "ctc_loss_backward": (256, 16),
    **dict.fromkeys(["layer_norm", "batch_norm", "group_norm"], (256, 1024)),
    **dict.fromkeys(
        ["layer_norm_backward", "batch_norm_backward", "group_norm_backward"], (4096, 65536)
    ),
    **dict.fromkeys(["layer_norm_weight", "batch_norm_weight", "group_norm_weight"], (256, 4096)),
    "scaled_dot_product_attention": (256, 1024),
    "scaled_dot_product_attention_backward": (1024, 8192),
    "quantized_linear": (256, 16384),  # few rows are rounded to 16 bits of their largest value
}


def run(backend: str | ComputeBackend, op: Op, inputs: Any, params: dict[str, Any]) -> Any:
    """The result of an op, through dispatch, as an array.

    A user's op, in NumPy's loop, may warn of infinities and NaN: they are values here.
    """
    with using_backend(backend), np.errstate(all="ignore"):
        return apply(op, *inputs, **params).numpy()


def assert_conforms(backend: str | ComputeBackend, op: Op, sample: Sample) -> None:
    """The backend gives what NumPy gives, and leaves the inputs as they were."""
    before = [np.array(x) for x in sample.inputs]
    result = run(backend, op, sample.tensors(), sample.params)
    for x, copy in zip(sample.inputs, before, strict=True):
        np.testing.assert_array_equal(np.asarray(x), copy, f"{op.name} changed its input")
    expected = run("numpy", op, sample.tensors(), sample.params)
    if not _has_memory_of(expected, sample):
        assert not _has_memory_of(result, sample), (
            f"{op.name} gives the memory of its input: what is written into the result, as by "
            f"`y += 1`, would change that"
        )
    assert result.dtype == expected.dtype and result.shape == expected.shape
    if result.dtype.kind == "f" and op.kind in ("elementwise", "movement"):
        zero = (expected == 0) & (result == 0)
        np.testing.assert_array_equal(
            np.signbit(result[zero]), np.signbit(expected[zero]), f"{op.name}: signs of zeros"
        )
    if result.dtype.kind != "f" or (op.kind in ("movement", "creation") and op.name != "fold"):
        np.testing.assert_array_equal(result, expected)
    elif result.size:
        assert_close(op, sample, result)


def assert_own_memory(backend: str | ComputeBackend, op: Op, sample: Sample) -> None:
    """The result of a call stays what it is when the op is called again."""
    first = run(backend, op, sample.tensors(), sample.params)
    if not _has_memory_of(first, sample):
        second = run(backend, op, sample.tensors(), sample.params)
        assert not np.shares_memory(first, second), (
            f"{op.name} gives the same memory at each call: the result before is overwritten"
        )


def _has_memory_of(result: Any, sample: Sample) -> bool:
    return any(isinstance(x, np.ndarray) and np.shares_memory(result, x) for x in sample.inputs)


def assert_close(op: Op, sample: Sample, result: Any) -> None:
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
    if op.name not in SUMS or precise.params.get("reduce") == "none":
        relative, offset = ROUNDING.get(op.name, DEFAULT)
        return relative * eps * np.abs(exact) + offset * eps
    length = 4 + max(np.size(x) for x in precise.inputs)
    absolute = Sample(tuple(np.asarray(abs(x)) for x in precise.inputs), precise.params)
    if op.name == "max_pool2d_backward":  # the largest elements must stay where they are
        absolute.inputs = (absolute.inputs[0], precise.inputs[1])
    return length * eps * run("numpy", op, absolute.tensors(), precise.params)[finite]


def _precise(x: Any, dtype: np.dtype[Any]) -> Any:
    """The same values in float64: a Python number is first rounded as the tensors are."""
    if isinstance(x, np.ndarray):
        return x.astype(np.float64) if x.dtype.kind == "f" else x
    return x if isinstance(x, bool) else float(dtype.type(x))


@dataclass(frozen=True)
class OpReport:
    """The result of a backend on one op.

    Attributes:
        op: its name.
        examples: how many calls were compared.
        problem: what was wrong with the first call that did not conform; None if all did.
        call: that call, by the shapes and dtypes of its inputs and its parameters.
    """

    op: str
    examples: int
    problem: str | None = None
    call: str | None = None


def check_backend(
    backend: str | ComputeBackend,
    *,
    ops: Iterable[str] | None = None,
    examples: int = 25,
    seed: int = 0,
) -> Iterator[OpReport]:
    """Run the conformance suite on a backend, and yield a report on each op.

    Each op is called with generated inputs of every dtype that it takes: empty, 0-d, ragged,
    broadcast and non-contiguous arrays, ties, infinities, NaN. Results must have memory of their
    own, unless NumPy's are views of an input.

    Args:
        ops: their names; all of the table by default.
        examples: calls of each op.
        seed: of the generated inputs; the same seed draws the same calls.

    Raises:
        LookupError: there is no op of a name in `ops`.

    >>> [r.problem for r in check_backend("numpy", ops=["matmul"], examples=3)]
    [None]
    """
    names = list(OPS if ops is None else ops)
    if unknown := [name for name in names if name not in OPS]:
        raise LookupError(f"no such op: {', '.join(unknown)}; the ops are {', '.join(OPS)}")
    for name in names:
        yield _check_op(backend, name, examples, seed)


def _check_op(backend: str | ComputeBackend, name: str, examples: int, seed: int) -> OpReport:
    random = Random(f"{name} {seed}")
    dtypes = admitted_dtypes(name)
    for example in range(examples):
        sample = draw_sample(name, random, "edges", dtypes[example % len(dtypes)])
        try:
            with np.errstate(all="ignore"):  # infinities and NaN are among the inputs
                assert_conforms(backend, OPS[name], sample)
                if example < len(dtypes):
                    assert_own_memory(backend, OPS[name], sample)
        except Exception as error:  # whatever the kernel raises is the finding
            text = str(error).strip() or "no message"
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            return OpReport(name, example + 1, kind + text, describe_call(sample))
    return OpReport(name, examples)


def describe_call(sample: Sample) -> str:
    """The inputs of a call by dtype and shape, and its parameters.

    >>> describe_call(Sample((np.zeros((2, 3)), 1.5), {"dim": 0}))
    'float64[2, 3], 1.5, dim=0'
    """
    inputs = [
        f"{x.dtype}{list(x.shape)}{_layout(x)}" if isinstance(x, np.ndarray) else repr(x)
        for x in sample.inputs
    ]
    return ", ".join(inputs + [f"{key}={value!r}" for key, value in sample.params.items()])


def _layout(x: np.ndarray[Any, Any]) -> str:
    return (
        "" if x.flags.c_contiguous else f" with strides {tuple(s // x.itemsize for s in x.strides)}"
    )
