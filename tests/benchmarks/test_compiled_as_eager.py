"""Every function, compiled, gives what it gives without: results, gradients, errors.

Each is called as in `benchmarks/ops.py`, and with each of its options.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.changed_arguments import calls_with_options
from tinytorch.errors import TinyTorchError

#: Drawn at random, or with no numbers that mean anything.
DRAWN = (
    *("rand", "normal", "bernoulli", "multinomial", "dropout", "rrelu", "poisson", "gumbel"),
    *("empty", "trunc_normal", "attention(dropout_p=0.5"),
)
#: Whose results' shapes follow from values, which a compiled function does not have.
BY_VALUES = (
    *("argwhere", "bincount", "histc", "histogram", "masked_select", "nonzero", "unique"),
    *("unique_consecutive", "F.embedding", "F.one_hot", "F.max_unpool2d"),
)
CORES = 2


@pytest.fixture
def benchmark() -> Any:
    import ops

    return ops


def _calls(benchmark: Any, name: str, dtype: str) -> Iterator[tuple[str, Any]]:
    for dim in benchmark.dims_of(name)[:2]:
        base = benchmark.call_of(name, benchmark.Values(benchmark.TINY, dtype, dim=dim))
        yield name, base
    function = benchmark.of_library(name, *benchmark.OURS)
    if not isinstance(function, tinytorch.DType):
        for what, call in calls_with_options(base, function):
            yield f"{name}({what})", call


def _outcome(benchmark: Any, name: str, call: Any, *, compiled: bool) -> Any:
    """The arrays of results and gradients, or the error."""

    def make(array: Any) -> Any:
        return benchmark.ours_of(array.copy(), requires_grad=True)

    args = benchmark.as_tensors(call.args, make, tinytorch)
    options = {k: benchmark.as_tensors(v, make, tinytorch) for k, v in call.options.items()}
    function = benchmark.of_library(name, *benchmark.OURS)

    def run(args: Any, options: Any) -> Any:
        return function(*args, **options)

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            out = benchmark.tensors((tinytorch.compile(run) if compiled else run)(args, options))
            leaves = [
                t for t in benchmark.tensors([*args, *options.values()])
                if t.requires_grad and t.is_leaf
            ]  # fmt: skip
            outs = [t for t in out if t.requires_grad]
            rng = np.random.default_rng(2)
            seeds = [
                tinytorch.tensor(rng.standard_normal(tuple(t.shape)), dtype=t.dtype) for t in outs
            ]
            grads = benchmark.our_gradients(outs, leaves, seeds) if outs and leaves else ()
            return [None if t is None else t.detach().numpy().copy() for t in (*out, *grads)]
    except Exception as error:
        return error


def _difference(name: str, eager: Any, compiled: Any) -> str:
    if isinstance(eager, Exception) or isinstance(compiled, Exception):
        if type(eager) is type(compiled):
            return ""
        if name in BY_VALUES and isinstance(compiled, TinyTorchError):
            return ""
        return f"{eager!r:.150}; compiled {compiled!r:.150}"
    if len(eager) != len(compiled):
        return f"{len(eager)} tensors; compiled {len(compiled)}"
    for a, b in zip(eager, compiled, strict=True):
        if a is None or b is None:
            if a is not b:
                return "a gradient, or none"
        elif a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype} {a.shape}; compiled {b.dtype} {b.shape}"
        elif not np.allclose(a, b, 1e-4, 1e-5, equal_nan=True):
            at = np.argmax(~np.isclose(a, b, 1e-4, 1e-5, equal_nan=True))
            return f"element {at} of {a.shape}: {a.flat[at]}; compiled {b.flat[at]}"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(CORES))
def test_a_compiled_function_gives_the_same(benchmark: Any, part: int) -> None:
    other, count = [], 0
    with tinytorch.using_backend("optimized"):
        for name in sorted(benchmark.functions())[part::CORES]:
            for what, call in _calls(benchmark, name, "float32"):
                if any(word in what for word in DRAWN):
                    continue
                eager = _outcome(benchmark, name, call, compiled=False)
                if isinstance(eager, TypeError):  # before anything of a tensor is looked at
                    continue
                compiled = _outcome(benchmark, name, call, compiled=True)
                count += 1
                if difference := _difference(name, eager, compiled):
                    other.append(f"{what}: {difference}")
    assert count > 500
    assert not other, "\n".join(other)
