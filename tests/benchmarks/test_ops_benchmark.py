"""The benchmark of every function: none is forgotten, and it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
def arguments(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import op_arguments

    return op_arguments


def test_every_function_has_arguments(arguments) -> None:
    for name in arguments.functions():
        v = arguments.Values(arguments.TINY, dim=arguments.dims_of(name)[-1])
        assert arguments.call_of(name, v)


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
