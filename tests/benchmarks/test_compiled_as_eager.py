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
from tests.changed_arguments import (
    DRAWN,
    arrays_of,
    calls_with_options,
    difference,
    function_in,
    gradients_of,
    tensors_in,
)
from tinytorch.errors import TinyTorchError

#: Whose results' shapes follow from values, which a compiled function does not have.
BY_VALUES = (
    *("argwhere", "bincount", "histc", "histogram", "masked_select", "nonzero", "unique"),
    *("unique_consecutive", "F.embedding", "F.embedding_bag", "F.one_hot", "F.max_unpool2d"),
)
CORES = 2


def _calls(benchmark: Any, name: str, dtype: str) -> Iterator[tuple[str, Any]]:
    for dim in benchmark.dims_of(name)[:2]:
        base = benchmark.call_of(name, benchmark.Values(benchmark.TINY, dtype, dim=dim))
        yield name, base
    function = function_in(benchmark, name, ours=True)
    if not isinstance(function, tinytorch.DType):  # tinytorch.int is one, and a method
        for what, call in calls_with_options(base, function):
            yield f"{name}({what})", call


def _outcome(benchmark: Any, name: str, call: Any, *, compiled: bool) -> Any:
    """The arrays of results and gradients, or the error."""
    args, options = tensors_in(benchmark, call, ours=True, requires_grad=True)
    function = function_in(benchmark, name, ours=True)

    def run(args: Any, options: Any) -> Any:
        return function(*args, **options)

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            out = (tinytorch.compile(run) if compiled else run)(args, options)
            gradients = gradients_of(benchmark, out, args, options, ours=True)
            return arrays_of([*benchmark.tensors(out), *gradients])
    except Exception as error:
        return error


def _difference(name: str, eager: Any, compiled: Any) -> str:
    if not isinstance(eager, Exception) and not isinstance(compiled, Exception):
        return difference(compiled, eager, 1e-4, 1e-5)
    has_no_values = name in BY_VALUES and isinstance(compiled, TinyTorchError)
    if type(eager) is type(compiled) or has_no_values:
        return ""
    return f"{eager!r:.150}; compiled {compiled!r:.150}"


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
                if found := _difference(name, eager, compiled):
                    other.append(f"{what}: {found}")
    assert count > 500
    assert not other, "\n".join(other)
