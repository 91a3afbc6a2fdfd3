"""What PyTorch refuses of shapes and values, every function here refuses too, and in words.

Each function is called as in `benchmarks/ops.py`, with one argument changed at a time: a dimension
more or less, none of it left, an element out of range, NaN, a number that is too small. What goes
through in silence there is a broadcast that nobody meant, or a number from nowhere.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import tinytorch
from tests.changed_arguments import CRUDE, NO_KERNEL, changed_calls, error_of, run_in

#: Functions that take more than PyTorch's on purpose, or without harm.
TAKES_MORE = {
    "F.adaptive_avg_pool1d": "a batch of any number of dimensions",
    "F.adaptive_avg_pool2d": "as above",
    "F.adaptive_max_pool1d": "as above",
    "F.adaptive_max_pool2d": "as above",
    "F.embedding_bag": "bags of no length, of which PyTorch says only that a step must be nonzero",
    "F.fold": "one size for height and width",
    "F.gaussian_nll_loss": "one variance for all, as a 0-d tensor",
    "flipud": "nothing to turn in a number",
    "index_add": "a number is a vector of one",
    "index_put": "a value with more leading dimensions of 1, as x[index] = value",
    "pad": "a function, which torch.pad is not",
    "repeat_interleave": "a number is a vector of one",
    "roll": "nothing to turn in a number",
    "swapaxes": "as transpose",
    "transpose": "of a number there is nothing to exchange",
    "unique": "rows without elements",
    "unique_consecutive": "rows without elements, and a number as one of them",
}
#: For whom ZeroDivisionError says what was wrong.
DIVIDE = ("floor_divide", "fmod", "remainder")
#: PyTorch's writes beyond its arrays for labels that are out of range.
CRASHES = "F.ctc_loss"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "optimized"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_what_pytorch_refuses_is_refused(benchmark: Any, dtype: str, backend: str) -> None:
    with tinytorch.using_backend(backend):
        _refuses(benchmark, dtype)


def _refuses(benchmark: Any, dtype: str) -> None:
    accepted: list[tuple[str, str]] = []
    crude, count = [], 0
    for name in sorted(set(benchmark.functions()) - {CRASHES}):
        for dim in benchmark.dims_of(name)[:2]:
            base = benchmark.call_of(name, benchmark.Values(benchmark.TINY, dtype, dim=dim))
            for what, call in changed_calls(base):
                theirs = error_of(partial(run_in, benchmark, name, call, ours=False))
                # in any case: what kernels are given in place of numbers must not end the process
                ours = error_of(partial(run_in, benchmark, name, call, ours=True))
                if theirs is None or any(words in str(theirs) for words in NO_KERNEL):
                    continue
                count += 1
                if ours is None:
                    accepted.append((name, f"{what}: PyTorch: {str(theirs)[:150]}"))
                elif isinstance(ours, CRUDE) and name not in DIVIDE:
                    crude.append(f"{name}, {what}: {ours!r:.150}")
    assert count > 500
    new = [f"{name}, {what}" for name, what in accepted if name not in TAKES_MORE]
    assert not new, "\n".join(new)
    assert not crude, "\n".join(crude)
    if dtype == "float32":  # what is in the list takes more indeed
        assert TAKES_MORE.keys() - {name for name, _ in accepted} == set()
