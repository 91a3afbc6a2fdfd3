"""Every public function beside PyTorch and NumPy: large and small, or in short rows (`--sizes
narrow`), each layout, dim and dtype.

Ratios are ours / PyTorch: 2.00 says that we take twice as long. One thread, CPU time, the fastest
of interleaved samples. "backward" is a forward pass that is recorded, and its gradients.
"""

import thread_count  # noqa: F401, I001 - before NumPy

import argparse
import contextvars
import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from op_arguments import (
    LARGE, NARROW, OURS, SMALL, TINY, Values, as_tensors, call_of, dims_of, functions, of_library,
)  # fmt: skip
from runner import Case, Result, as_json, measure

import tinytorch
from tinytorch.autograd import grad
from tinytorch.bench import format_table
from tinytorch.replay.function import HOT

BACKENDS = ("optimized", "numpy")
SIZES = {"large": LARGE, "small": SMALL, "narrow": NARROW, "tiny": TINY}
DTYPES = ("float32", "float64", "int64")
LAYOUTS = ("contiguous", "transposed")
LIMITS = (1.0, 1.3, 2.0, 5.0)
WARM = 2 * HOT  # calls before the first that counts: functions are replayed from then on
WARM_SECONDS = 2.0  # and no more: what takes so long is not replayed for what is between kernels
SAME = 1e-2  # of the largest element: a random number or another function would differ by more
REFUSALS = (TypeError, ValueError, RuntimeError, IndexError, AttributeError, ArithmeticError)
#: Results that need not agree: they are drawn, or hold whatever was in memory.
DRAWN = (
    *("rand", "drop", "empty", "normal", "multinomial", "bernoulli", "poisson", "gumbel"),
    "rrelu",
)


#: Whose gradient in PyTorch is another one: of ctc_loss that for the scores before log_softmax.
OTHER_GRADIENTS = ("F.ctc_loss",)


def tensors(value: Any) -> list[Any]:
    """The tensors among results or arguments, of either library."""
    if isinstance(value, (tinytorch.Tensor, torch.Tensor)):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for each in value for t in tensors(each)]
    return []


def ours_of(array: Any, requires_grad: bool) -> Any:
    tensor = tinytorch.from_numpy(array)
    return tensor.requires_grad_(requires_grad and tensor.is_floating_point())


def theirs_of(array: Any, requires_grad: bool) -> Any:
    tensor = torch.from_numpy(array)
    return tensor.requires_grad_(requires_grad and tensor.is_floating_point())


def our_gradients(outs: Sequence[Any], leaves: Sequence[Any], seeds: Sequence[Any]) -> Any:
    return grad(outs, leaves, seeds, allow_unused=True)


def their_gradients(outs: Sequence[Any], leaves: Sequence[Any], seeds: Sequence[Any]) -> Any:
    return torch.autograd.grad(outs, leaves, seeds, allow_unused=True)


def prepare(name: str, v: Values, backward: bool, *, ours: bool) -> Callable[[], Any] | None:
    """A call of the function in one library; None where there is nothing to differentiate."""
    library = OURS if ours else (torch, torch.nn.functional)
    make = partial(ours_of if ours else theirs_of, requires_grad=backward)
    call = call_of(name, v)
    function = of_library(name, *library)
    args = as_tensors(call.args, make, library[0])
    options = {k: as_tensors(x, make, library[0]) for k, x in call.options.items()}
    if not backward:
        return partial(function, *args, **options)
    leaves = [t for t in tensors(args) if t.requires_grad]
    outs = [t for t in tensors(function(*args, **options)) if t.requires_grad]
    if not leaves or not outs:
        return None
    rng = np.random.default_rng(1)
    from_array = tinytorch.from_numpy if ours else torch.from_numpy
    seeds = [
        from_array(np.asarray(rng.standard_normal(tuple(t.shape))).astype(v.dtype)) for t in outs
    ]
    gradients = our_gradients if ours else their_gradients

    def step() -> Any:
        results = [t for t in tensors(function(*args, **options)) if t.requires_grad]
        return gradients(results, leaves, seeds)

    return step


def on(backend: str, function: Callable[[], Any]) -> Callable[[], Any]:
    """The function in a context of its own, in which that backend is chosen."""
    context = contextvars.copy_context()
    context.run(tinytorch.using_backend(backend).__enter__)
    return partial(context.run, function)


def differs(name: str, ours: Any, theirs: Any, backward: bool) -> str:
    """In what the results differ; nothing if they agree or are not to."""
    if any(word in name for word in DRAWN) or (backward and name in OTHER_GRADIENTS):
        return ""
    for a, b in zip(tensors(ours), tensors(theirs), strict=False):
        x, y = (np.asarray(t.detach().numpy()) for t in (a, b))
        if x.shape != y.shape:
            return f"shape {x.shape}, PyTorch {y.shape}"
        if x.size and x.dtype.kind == "f" == y.dtype.kind:
            wanted, found = y.astype(np.float64), x.astype(np.float64)
            scale = float(np.max(np.abs(wanted), where=np.isfinite(wanted), initial=1e-30))
            with np.errstate(invalid="ignore"):
                close = np.isclose(found, wanted, 1e-2, SAME * scale, equal_nan=True)
            if not close.all():
                return f"{int((~close).sum())} of {x.size} elements"
    return ""


def numpys(name: str, v: Values) -> Callable[[], Any] | None:
    """NumPy's function of that name, if it takes the same arguments by position."""
    function = getattr(np, name, None)
    call = call_of(name, v)
    if not isinstance(function, np.ufunc) and name not in (
        "cumsum",
        "cumprod",
        "matmul",
        "sum",
        "prod",
    ):
        return None
    options = {{"dim": "axis"}.get(k, k): x for k, x in call.options.items()}
    run = partial(function, *call.args, **options)  # type: ignore[misc]
    try:
        with np.errstate(all="ignore"):
            run()
    except REFUSALS:
        return None
    return run


def cases(
    names: Sequence[str], sizes: Sequence[str], dtypes: Sequence[str], layouts: Sequence[str]
) -> Iterator[tuple[Case | None, str]]:
    """What to measure, or None and why not, one after the other."""
    each = itertools.product(names, sizes, dtypes, layouts)
    for name, size, dtype, layout in each:
        for dim in dims_of(name):
            for backward in (False, True) if dtype != "int64" else (False,):
                v = partial(Values, SIZES[size], dtype, layout, dim)
                words = [size, dtype, layout, *([] if dim is None else [f"dim {dim}"])]
                label = f"{name} {', '.join(words)}{', backward' * backward}"
                yield _case(name, v, backward, label)


def _case(
    name: str, v: Callable[[], Values], backward: bool, label: str
) -> tuple[Case | None, str]:
    try:
        theirs = prepare(name, v(), backward, ours=False)
        expected = theirs() if theirs else None
    except REFUSALS as error:
        return None, f"{label}: PyTorch refuses: {type(error).__name__}"
    if theirs is None:
        return None, ""
    contestants: dict[str, Callable[[], Any]] = {}
    try:
        for backend in BACKENDS:
            with tinytorch.using_backend(backend):
                function = prepare(name, v(), backward, ours=True)
            if function is None:
                return None, f"{label}: no gradient"
            contestants[backend] = on(backend, function)
            end = time.monotonic() + WARM_SECONDS
            for _ in range(WARM):
                contestants[backend]()
                if time.monotonic() > end:
                    break
            if wrong := differs(name, contestants[backend](), expected, backward):
                return None, f"{label}: the {backend} backend differs: {wrong}"
    except REFUSALS as error:
        return None, f"{label}: refused: {type(error).__name__}: {str(error)[:100]}"
    contestants["ours"] = contestants.pop("optimized")
    contestants["torch"] = theirs  # without a context, which only we pay for
    other = None if backward else numpys(name, v())
    if other is not None:
        contestants["NumPy"] = other
    return Case(name, label, contestants), ""


def of_torch(result: Result, backend: str) -> float:
    """The time on a backend over PyTorch's."""
    name = "ours" if backend == "optimized" else backend
    return result.seconds[name] / result.seconds["torch"]


def report(results: Sequence[Result], skipped: Sequence[str], worst: int) -> None:
    """The shares above the limits on each backend, then the slowest cases."""
    rows = []
    if not results:
        raise SystemExit("\n".join(["nothing could be measured:", *skipped]))
    for backend in BACKENDS:
        ratios = [of_torch(r, backend) for r in results]
        counts = [sum(x > limit for x in ratios) for limit in LIMITS]
        shares = [f"{n} ({100 * n / len(ratios):.0f} %)" for n in counts]
        rows.append([backend, str(len(ratios)), f"{statistics.median(ratios):.2f}", *shares])
    print("\nours / PyTorch, CPU time of one thread\n")
    print(format_table(["backend", "cases", "median", *(f"above {x:g}" for x in LIMITS)], rows))
    slower = [r for r in results if r.seconds["ours"] > 1.1 * r.seconds["numpy"]]
    print(f"\nslower on optimized than on numpy, by a tenth or more: {len(slower)}")
    for backend in BACKENDS:
        print(f"\nthe slowest on {backend}, ours / PyTorch")
        ordered = sorted(results, key=lambda r: of_torch(r, backend), reverse=True)
        print("\n".join(f"{of_torch(r, backend):8.2f}  {r.name}" for r in ordered[:worst]))
    if slower:
        print("\nthe slowest on optimized beside numpy")
        named = [(r.seconds["ours"] / r.seconds["numpy"], r.name) for r in slower]
        print("\n".join(f"{x:8.2f}  {name}" for x, name in sorted(named, reverse=True)[:worst]))
    wrong = [s for s in skipped if "refuses" not in s]
    if wrong:
        print(f"\nnot measured: {len(wrong)}")
        print("\n".join(f"  {s}" for s in wrong[:worst]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="functions, by name, with commas between")
    parser.add_argument("--sizes", default="large,small", help=f"of {', '.join(SIZES)}")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help=f"of {', '.join(DTYPES)}")
    parser.add_argument("--layouts", default=",".join(LAYOUTS), help=f"of {', '.join(LAYOUTS)}")
    parser.add_argument("--quick", action="store_true", help="float32, contiguous: minutes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worst", type=int, default=20, help="how many of the slowest to show")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(functions())
    if unknown := set(names) - functions().keys():
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}")
    dtypes, layouts = options.dtypes.split(","), options.layouts.split(",")
    if options.quick:
        dtypes, layouts = ["float32"], ["contiguous"]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results, skipped = [], []
    for case, reason in cases(names, options.sizes.split(","), dtypes, layouts):
        if case is None:
            skipped += [reason] * bool(reason)
            continue
        with np.errstate(all="ignore"):
            results.append(measure(case, clock="cpu", rounds=options.rounds, attempts=1))
    if options.json:
        print(as_json(results, skipped=skipped))
    else:
        report(results, skipped, options.worst)


if __name__ == "__main__":
    main()
