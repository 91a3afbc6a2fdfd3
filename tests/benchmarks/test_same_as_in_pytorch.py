"""What PyTorch computes of odd arguments and with every option, every function here computes too.

Each function is called as in `benchmarks/ops.py`, then with one argument changed at a time, then
with each of its options: what both libraries take must give the same numbers, shapes and dtypes,
and, for arguments that are finite, the same gradients.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.changed_arguments import (
    DRAWN,
    arrays_of,
    calls_with_options,
    changed_calls,
    difference,
    function_in,
    gradients_of,
    tensors_in,
)

TOLERANCE = 2e-3, 2e-4
#: Where the numbers are others on purpose.
OTHER_VALUES = {
    "F.batch_norm": "a variance of infinity: a number over infinity, where PyTorch has NaN",
    "F.binary_cross_entropy_with_logits": "a target of infinity",
    "F.conv1d": "the border of zeros times NaN or infinity: PyTorch leaves it out",
    "F.conv2d": "as above",
    "F.conv_transpose1d": "as above",
    "F.conv_transpose2d": "as above",
    "F.gaussian_nll_loss": "a variance of infinity: log and quotient, of which PyTorch's is one",
    "F.gelu": "gelu of infinity is infinity",
    "F.group_norm": "a weight of infinity: PyTorch's factor and shift are infinite, their sum NaN",
    "F.multi_margin_loss": "scores of NaN give NaN",
    "F.pixel_unshuffle": "without elements, PyTorch leaves the shape as it is",
    "F.scaled_dot_product_attention": "dropout draws",
    "histogram": "a number between two bins, by the rounding of the edges",
    "logit": "eps of 1 or more: the bounds cross",
    "matrix_power": "infinity: in another order of products",
    "searchsorted": "NaN before other elements, which is no order",
    "std_mean": "the mean of infinity is infinity",
    "unique": "slices with NaN are equal to none in PyTorch, and come in another order",
    "var_mean": "as above",
}
#: Where only the gradients are.
OTHER_GRADIENTS = {
    "F.binary_cross_entropy": "by a target, where PyTorch's is infinite",
    "F.cosine_similarity": "of lengths below eps: PyTorch's takes no notice of the bound",
    "F.kl_div": "by a target of 0, where PyTorch's is NaN",
    "F.softplus": "beta of 0",
    "acosh": "outside of its domain",
    "fmod": "by 0",
    "index_put": "positions given twice: the last one counts, in PyTorch all",
    "logit": "outside of its domain",
    "scatter": "as index_put",
}
#: Integers that become floats where PyTorch's remain integers, and drop the fraction of a number.
OTHER_DTYPES = (
    *("addbmm", "addcmul", "addmm", "addmv", "baddbmm", "index_add", "F.hardtanh"),
    *("F.embedding", "F.hinge_embedding_loss", "F.local_response_norm"),
)
#: PyTorch's writes beyond its arrays for labels that are out of range.
CRASHES = "F.ctc_loss"


def _calls(benchmark: Any, name: str, dtype: str) -> Iterator[tuple[str, Any]]:
    for dim in benchmark.dims_of(name)[:2]:
        base = benchmark.call_of(name, benchmark.Values(benchmark.TINY, dtype, dim=dim))
        yield "as it is", base
        yield from changed_calls(base)
    function = function_in(benchmark, name, ours=True)
    if not isinstance(function, tinytorch.DType):  # tinytorch.int, a function in methods
        yield from calls_with_options(base, function)


def _outcome(benchmark: Any, name: str, call: Any, *, ours: bool, requires_grad: bool) -> Any:
    """The results and the gradients of the arguments; None where it is refused."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            args, options = tensors_in(benchmark, call, ours=ours, requires_grad=requires_grad)
            out = function_in(benchmark, name, ours=ours)(*args, **options)
            gradients = gradients_of(benchmark, out, args, options, ours=ours)
            return arrays_of(benchmark.tensors(out)), arrays_of(gradients)
    except Exception:  # what is refused is the subject of other tests
        return None


def _is_finite(what: str) -> bool:
    return not what.endswith(("element nan", "element inf"))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "optimized"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_what_both_take_gives_the_same(benchmark: Any, dtype: str, backend: str) -> None:
    with tinytorch.using_backend(backend):
        values, gradients, count = _compared(benchmark, dtype)
    assert count > 1000
    known = (*OTHER_VALUES, *(OTHER_DTYPES if dtype == "int64" else ()))
    new = [f"{name}, {what}" for name, what in values if name not in known]
    assert not new, "\n".join(new)
    new = [
        f"gradient of {name}, {what}"
        for name, what in gradients
        if name not in OTHER_VALUES.keys() | OTHER_GRADIENTS.keys()
    ]
    assert not new, "\n".join(new)
    if (dtype, backend) == ("float32", "numpy"):  # what is in the lists differs indeed
        assert OTHER_VALUES.keys() - {name for name, _ in values} == set()
        assert OTHER_GRADIENTS.keys() - {name for name, _ in gradients} == set()


def _compared(benchmark: Any, dtype: str) -> tuple[list[Any], list[Any], int]:
    """The names and calls with other results, those with other gradients, how many were taken."""
    values: list[tuple[str, str]] = []
    gradients: list[tuple[str, str]] = []
    count = 0
    floating = dtype != "int64"
    for name in sorted(set(benchmark.functions()) - {CRASHES}):
        if any(word in name for word in DRAWN):
            continue
        for what, call in _calls(benchmark, name, dtype):
            theirs = _outcome(benchmark, name, call, ours=False, requires_grad=floating)
            has_gradients = floating and theirs is not None and _is_finite(what)
            if floating and theirs is None:  # it may have no derivative
                theirs = _outcome(benchmark, name, call, ours=False, requires_grad=False)
            ours = _outcome(benchmark, name, call, ours=True, requires_grad=floating)
            if theirs is None or ours is None:
                continue
            count += 1
            if other := difference(ours[0], theirs[0], *TOLERANCE):
                values.append((name, f"{what}: {other}"))
            elif has_gradients and (other := difference(ours[1], theirs[1], *TOLERANCE)):
                gradients.append((name, f"{what}: {other}"))
    return values, gradients, count
