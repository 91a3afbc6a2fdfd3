"""The benchmark of every function: none is forgotten, and it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch.dispatch import Mode
from tinytorch.op import OPS

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
#: Ops that no function of the public interface applies on its own.
APPLIED_ELSEWHERE = {
    "quantized_linear": "tinytorch.compression",
    "dynamic_update_slice": "the cache of a decoding step",
    "detach": "autograd",
    "max_pool2d_select": "the gradient of a gradient",
}


@pytest.fixture
def arguments():
    import op_arguments

    return op_arguments


def test_every_function_has_arguments(arguments) -> None:
    for name in arguments.functions():
        v = arguments.Values(arguments.TINY, dim=arguments.dims_of(name)[-1])
        assert arguments.call_of(name, v)


@pytest.mark.slow_beyond(2)
@pytest.mark.filterwarnings("ignore")  # of what PyTorch deprecates
@pytest.mark.parametrize(
    ("backend", "layout"),
    [
        ("numpy", "contiguous"),
        ("numpy", "transposed"),
        pytest.param("optimized", "contiguous", marks=pytest.mark.slow),
        pytest.param("optimized", "transposed", marks=pytest.mark.exhaustive),
    ],
)
def test_what_is_a_view_in_pytorch_is_one_and_nothing_else(
    arguments, monkeypatch, backend: str, layout: str
) -> None:
    """A write to a result reaches the arguments where it does in PyTorch; also the second time,
    when a program runs."""
    import ops

    monkeypatch.setattr("tinytorch.replay.function.HOT", 0)

    def shared(name: str, dim: int | None, library: Any, functional: Any, make: Any) -> list[bool]:
        v = arguments.Values(arguments.SMALL, layout=layout, dim=dim)
        call = arguments.call_of(name, v)
        function = arguments.of_library(name, library, functional)
        args = arguments.as_tensors(call.args, make, library)
        options = {k: arguments.as_tensors(x, make, library) for k, x in call.options.items()}
        given = [t.numpy() for t in ops.tensors(args)]
        function(*args, **options)
        outs = [t.numpy() for t in ops.tensors(function(*args, **options))]
        return [any(np.shares_memory(out, x) for x in given) for out in outs]

    compared = 0
    for name in arguments.functions():
        for dim in arguments.dims_of(name):
            try:
                expected = shared(name, dim, torch, torch.nn.functional, torch.from_numpy)
            except ops.REFUSALS:
                continue  # PyTorch has no such function, or not with these arguments
            with tinytorch.using_backend(backend):
                assert shared(name, dim, *arguments.OURS, tinytorch.from_numpy) == expected, name
            compared += 1
    assert compared > 300


def test_a_function_without_arguments_is_named_with_what_to_write(arguments, monkeypatch) -> None:
    def folded(x, creases):
        return x

    monkeypatch.setattr(arguments, "functions", lambda: {"folded": folded})
    with pytest.raises(LookupError, match=r"no arguments for folded.*'creases'.*BY_PARAMETER"):
        arguments.call_of("folded", arguments.Values(arguments.TINY))


@pytest.mark.slow
def test_every_op_of_the_table_is_measured_by_some_function(arguments) -> None:
    import ops

    applied = set()

    class Listen(Mode):
        decompose = False  # fused ops arrive whole

        def run(self, op, inputs, params, plan):
            applied.add(op.name)
            return self.below(op, inputs, params, plan)

    with tinytorch.using_backend("optimized"), Listen():
        for name in arguments.functions():
            dtype = "int64" if name.startswith("bitwise") else "float32"
            for backward in (False, True):
                v = arguments.Values(arguments.TINY, dtype, dim=arguments.dims_of(name)[-1])
                try:
                    step = ops.prepare(name, v, backward, ours=True)
                    _ = step and step()
                except ops.REFUSALS:
                    continue
    missing = OPS.keys() - applied - APPLIED_ELSEWHERE.keys()
    assert not missing, (
        f"no call of benchmarks/ops.py applies {sorted(missing)}: give the functions that do "
        f"arguments in benchmarks/op_arguments.py with which they do"
    )


@pytest.mark.slow
def test_functions_are_compared_with_pytorch() -> None:
    only = "exp,cumsum"
    command = [sys.executable, "ops.py", "--json", "--rounds=2", "--sizes=tiny", f"--only={only}"]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = {r["name"]: r for r in json.loads(done.stdout)["results"]}
    assert {r["group"] for r in results.values()} == set(only.split(","))
    assert "cumsum tiny, int64, transposed, dim 1" in results
    assert "exp tiny, float64, contiguous, backward" in results
    assert results["exp tiny, float32, contiguous"]["seconds"].keys() == {
        "ours", "numpy", "torch", "NumPy",
    }  # fmt: skip
