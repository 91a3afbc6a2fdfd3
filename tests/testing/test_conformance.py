"""The conformance suite as users call it: it finds a wrong kernel, and says in which call."""

from __future__ import annotations

import numpy as np
import pytest

from tinytorch.backends.numpy import NumpyBackend
from tinytorch.testing import OpReport, check_backend
from tinytorch.testing.conformance import describe_call
from tinytorch.testing.source import Sample


class WrongForTransposed(NumpyBackend):
    def matmul(self, a, b):
        return np.matmul(np.asarray(a).ravel("K").reshape(a.shape), b)


class WrongDtype(NumpyBackend):
    def exp(self, x):
        return np.exp(x).astype(np.float64)


class Crash(NumpyBackend):
    def add(self, a, b):
        raise ZeroDivisionError("of mine")


class SameBuffer(NumpyBackend):
    def matmul(self, a, b):
        product = np.matmul(a, b)
        buffers = vars(self).setdefault("buffers", {})
        buffer = buffers.setdefault((product.shape, product.dtype), np.empty_like(product))
        np.copyto(buffer, product)
        return buffer


class InputItself(NumpyBackend):
    def abs(self, x):
        return x if (x > 0).all() else np.abs(x)


def test_numpy_conforms_to_itself() -> None:
    reports = list(check_backend("numpy", examples=2))
    assert all(report == OpReport(report.op, 2) for report in reports)


@pytest.mark.parametrize(
    ("backend", "op", "said"),
    [
        (WrongForTransposed(), "matmul", "Mismatched elements"),
        (WrongDtype(), "exp", "WrongDtype.exp returned float64"),
        (Crash(), "add", "ZeroDivisionError: of mine"),
        (SameBuffer(), "matmul", "the same memory at each call: the result before is overwritten"),
        (InputItself(), "abs", "gives the memory of its input: what is written into the result"),
    ],
)
def test_a_wrong_kernel_is_found(backend: NumpyBackend, op: str, said: str) -> None:
    wrong, right = check_backend(backend, ops=[op, "mul"], examples=60)
    assert wrong.op == op and said in str(wrong.problem) and "[" in str(wrong.call)
    assert right.problem is None


def test_the_seed_says_which_calls_are_drawn() -> None:
    def call(seed: int) -> str | None:
        return next(check_backend(Crash(), ops=["add"], seed=seed)).call

    assert call(1) == call(1)
    assert len({call(seed) for seed in range(5)}) > 1


def test_an_unknown_op_is_named() -> None:
    with pytest.raises(LookupError, match="no such op: nosuch; the ops are neg"):
        list(check_backend("numpy", ops=["nosuch"]))


def test_a_call_is_described_with_its_strides() -> None:
    sample = Sample((np.zeros((2, 3)).T, True), {"dim": -1})
    assert describe_call(sample) == "float64[3, 2] with strides (1, 3), True, dim=-1"
