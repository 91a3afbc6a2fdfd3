"""What PyTorch refuses of shapes and values, every function here refuses too, and in words.

Each function is called as in `benchmarks/ops.py`, with one argument changed at a time: a dimension
more or less, none of it left, an element out of range, NaN, a number that is too small. What goes
through in silence there is a broadcast that nobody meant, or a number from nowhere.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

#: Functions that take more than PyTorch's on purpose, or without harm.
TAKES_MORE = {
    "F.adaptive_avg_pool1d": "a batch of any number of dimensions",
    "F.adaptive_avg_pool2d": "as above",
    "F.adaptive_max_pool1d": "as above",
    "F.adaptive_max_pool2d": "as above",
    "F.conv1d": "no output channels",
    "F.conv2d": "no output channels",
    "F.fold": "one size for height and width",
    "F.gaussian_nll_loss": "one variance for all, as a 0-d tensor",
    "flipud": "nothing to turn in a number",
    "index_add": "a number is a vector of one",
    "index_put": "a value with more leading dimensions of 1, as x[index] = value",
    "index_select": "a number has no slice, and PyTorch's wants one",
    "pad": "a function, which torch.pad is not",
    "repeat_interleave": "a number is a vector of one",
    "roll": "nothing to turn in a number",
    "transpose": "of a number there is nothing to exchange",
    "unique": "rows without elements",
}
#: PyTorch's writes beyond its arrays for labels that are out of range.
CRASHES = "F.ctc_loss"
#: What PyTorch says where it lacks a kernel, a type or a default, and nothing is wrong.
NO_KERNEL = (
    "not implemented for",
    "dtype",
    "data type",
    "scalar type",
    "Long",
    "int64_t",
    "long int",
    "Integral",
    "Integer",
    "must be int",
    "must be Number",
    "must be tuple of ints",
    "invalid combination of arguments",
    "missing 1 required positional argument",
)


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import ops

    return ops


def _arrays(array: Any) -> Iterator[tuple[str, Any]]:
    """An array with other elements, and in other shapes."""
    odd = (np.nan, np.inf, -3.0, 0.0, 2.0) if array.dtype.kind == "f" else (-1, 10**6, -(10**6), 0)
    if array.dtype.kind in "fi" and array.size:
        for value in odd:
            changed = array.copy()
            changed.flat[0] = value
            yield f"an element {value}", changed
    yield "a dimension more in front", array[None].copy()
    if array.ndim:
        yield "a dimension more at the end", array[..., None].copy()
        yield "no rows", array[:0].copy()
        yield "no columns", array[..., :0].copy()
        yield "one column", array[..., :1].copy()
        yield "a column less", array[..., :-1].copy()
    if array.ndim > 1 and array.shape[0]:
        yield "the first row", array[0].copy()
    if array.size:
        yield "a number", np.asarray(array.flat[0])


def _changed(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, np.ndarray):
        yield from _arrays(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from ((repr(n), n) for n in (-1, -2, -100, 100, 0))
    elif isinstance(value, float):
        yield from ((repr(n), n) for n in (float("nan"), float("inf"), -1.0, 0.0, 1.0, 2.0))
    elif isinstance(value, (tuple, list)):
        kind = type(value)
        for i, each in enumerate(value):
            for what, other in _changed(each):
                yield f"[{i}] {what}", kind([*value[:i], other, *value[i + 1 :]])
        yield "nothing in it", kind()
        yield "one more", kind([*value, *value[:1]])
        yield "one less", value[:-1]


def _calls(base: Any) -> Iterator[tuple[str, Any]]:
    for i, value in enumerate(base.args):
        for what, other in _changed(value):
            args = (*base.args[:i], other, *base.args[i + 1 :])
            yield f"argument {i}: {what}", type(base)(args, base.options)
    for name, value in base.options.items():
        for what, other in _changed(value):
            yield f"{name}: {what}", type(base)(base.args, {**base.options, name: other})


def _error(run: Any) -> Exception | None:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            run()
    except Exception as error:  # whatever PyTorch raises
        return error
    return None


def _run(benchmark: Any, name: str, call: Any, *, ours: bool) -> Any:
    library = benchmark.OURS if ours else (torch, torch.nn.functional)
    make = partial(benchmark.ours_of if ours else benchmark.theirs_of, requires_grad=False)
    call = copy.deepcopy(call)
    args = benchmark.as_tensors(call.args, make, library[0])
    options = {k: benchmark.as_tensors(v, make, library[0]) for k, v in call.options.items()}
    return benchmark.of_library(name, *library)(*args, **options)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_what_pytorch_refuses_is_refused(benchmark: Any, dtype: str) -> None:
    accepted: list[tuple[str, str]] = []
    crude, count = [], 0
    for name in sorted(set(benchmark.functions()) - {CRASHES}):
        for dim in benchmark.dims_of(name)[:2]:
            base = benchmark.call_of(name, benchmark.Values(benchmark.TINY, dtype, dim=dim))
            for what, call in _calls(base):
                theirs = _error(partial(_run, benchmark, name, call, ours=False))
                if theirs is None or any(words in str(theirs) for words in NO_KERNEL):
                    continue
                count += 1
                ours = _error(partial(_run, benchmark, name, call, ours=True))
                if ours is None:
                    accepted.append((name, f"{what}: PyTorch: {str(theirs)[:150]}"))
                elif isinstance(ours, (AttributeError, AssertionError, KeyError)):
                    crude.append(f"{name}, {what}: {ours!r:.150}")
    assert count > 500
    new = [f"{name}, {what}" for name, what in accepted if name not in TAKES_MORE]
    assert not new, "\n".join(new)
    assert not crude, "\n".join(crude)
    if dtype == "float32":  # what is in the list takes more indeed
        assert TAKES_MORE.keys() - {name for name, _ in accepted} == set()
