"""NumPy's functions that write into memory they are given, against those that bring their own."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from tinytorch.backends import reference, reference_out
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.dtypes import float32, meta_of_array, tensor_meta
from tinytorch.op import OPS, Op
from tinytorch.testing.op_samples import admitted_dtypes, draw_sample

OUT = [op for op in OPS.values() if reference_out.find_kernel(op) is not None]


@pytest.mark.parametrize("op", OUT, ids=lambda op: op.name)
def test_out_kernels_do_what_the_reference_does(op: Op):
    """Also where the result takes the memory of an input."""
    random = Random(op.name)
    kernel: Callable[..., Any] = reference.find_kernel(op)  # type: ignore[assignment]
    writes: Callable[..., Any] = reference_out.find_kernel(op)  # type: ignore[assignment]
    for _ in range(60):
        sample = draw_sample(op.name, random, "edges", random.choice(admitted_dtypes(op.name)))
        inputs = [x.item() if isinstance(x, np.generic) else x for x in sample.inputs]
        operands = [meta_of_array(x) if isinstance(x, np.ndarray) else type(x) for x in inputs]
        plan = op.plan(operands, sample.params)
        if plan.casts is not None:
            continue
        expected = np.asarray(kernel(*inputs, **sample.params))
        out = np.full(plan.meta.shape, 7, plan.meta.dtype.dtype)
        with np.errstate(all="ignore"):
            writes(*inputs, out, **sample.params)
        assert_equal(out, expected)
        for i, x in enumerate(inputs if op.kind == "elementwise" else []):
            if isinstance(x, np.ndarray) and (x.shape, x.dtype) == (out.shape, out.dtype):
                given = [*inputs[:i], np.array(x), *inputs[i + 1 :]]
                with np.errstate(all="ignore"):
                    writes(*given, given[i], **sample.params)
                assert_equal(given[i], expected)


def assert_equal(a: np.ndarray, b: np.ndarray) -> None:
    """But for the last bits: NumPy's loops over ordered memory are others than over strided."""
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    rtol = 4 * np.finfo(a.dtype).eps if a.dtype.kind == "f" else 0
    np.testing.assert_allclose(a, b, rtol, 0)


class OneMethod(NumpyBackend):
    def matmul(self, a: Any, b: Any) -> Any:
        return np.einsum("ik,kj->ij", a, b)


def test_only_numpys_own_kernels_have_a_form_that_writes():
    plan = OPS["matmul"].plan([tensor_meta((2, 2), float32)] * 2, {})
    assert NumpyBackend().specialize_out(plan) is np.matmul
    assert OneMethod().specialize_out(plan) is None
