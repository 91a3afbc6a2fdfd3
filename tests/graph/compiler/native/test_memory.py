"""A dropped trace leaves nothing behind: no program, no machine code, no loop of its own."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import weakref
from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch.graph.compiler.native import loop_text, machine_code, program
from tinytorch.jit.library import JIT
from tinytorch.tensor import Tensor

pytestmark = pytest.mark.skipif(not JIT, reason="about machine code")

NUMBERS = (0.3, 1e-7, -3.0, 3, 2.0, 1e40, float("inf"), float("-inf"), float("nan"), 0.0, 300)


def smooth(x: Tensor, scale: float) -> Tensor:
    h = (x * scale).relu()
    return ((h - h.mean()) ** 2).mean() / 3.7 + scale


def compiled(function: Any) -> Any:
    return tinytorch.compile(function, backend="optimized", mode="native", cache_size=64)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dtype", [tinytorch.float32, tinytorch.float64])
@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_that_loops_are_given_count_as_those_in_the_text(number, dtype, rng):
    x = tinytorch.tensor(rng.standard_normal((5, 6)), dtype=dtype)

    def all_kinds(x: Tensor) -> tuple[Tensor, ...]:
        sums = x + number, x / 0.7 - number
        return *sums, x * number, x.maximum(number), x.t() * number

    with np.errstate(all="ignore"):
        for ours, eager in zip(compiled(all_kinds)(x), all_kinds(x), strict=True):
            np.testing.assert_allclose(ours.numpy(), eager.numpy(), rtol=1e-6)


@pytest.mark.parametrize("exponent", [2, 3.0, 0.5, -1.5, 2.3, 40.0])
def test_exponents(exponent, rng):
    x = tinytorch.tensor(rng.uniform(0.5, 2.0, 9).astype(np.float32))
    ours = compiled(lambda x: (x + 0.25) ** exponent)(x)
    np.testing.assert_allclose(ours.numpy(), ((x + 0.25) ** exponent).numpy(), rtol=1e-5)


@pytest.mark.parametrize("number", [3, -7, 2**40 + 1, 2**62 + 1])
def test_integers_are_exact(number):
    x = tinytorch.tensor([1, -5, 9], dtype=tinytorch.int64)
    assert compiled(lambda x: x + number - 5)(x).tolist() == (x + number - 5).tolist()


def test_traces_that_differ_in_numbers_and_sizes_share_their_machine_code(rng):
    def run(size: int, scale: float) -> None:
        x = tinytorch.tensor(rng.standard_normal((size, 3)).astype(np.float32))
        ours = compiled(smooth)(x, scale)
        np.testing.assert_allclose(ours.item(), smooth(x, scale).item(), rtol=1e-5)

    run(5, 0.1)
    before = len(loop_text._compiled), len(machine_code._made), program._quick_address.cache_info()
    for size in (7, 9, 11):
        run(size, 0.1 * size)
    after = len(loop_text._compiled), len(machine_code._made), program._quick_address.cache_info()
    assert after[:2] == before[:2] and after[2].currsize == before[2].currsize


def test_programs_of_dropped_traces_are_freed(monkeypatch):
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    for kind in (machine_code.MachineCode, program.NativeProgram):

        def init(self: Any, *args: Any, begin: Any = kind.__init__) -> None:
            alive.add(self)
            begin(self, *args)

        monkeypatch.setattr(kind, "__init__", init)
    step = compiled(smooth)
    for size in range(5, 9):
        step(tinytorch.ones(size, 3, requires_grad=True), 0.3).backward()
    gc.collect()
    assert len(alive) >= 8
    del step
    gc.collect()
    assert not alive


SCRIPT = """
import ctypes, gc, json
import tinytorch

def kibibytes():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # else what is free but not given back to the system counts
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

def smooth(x, scale):
    h = (x * scale).relu()
    return ((h - h.mean()) ** 2).mean() / 3.7 + scale

def batch(first):
    step = tinytorch.compile(smooth, backend="optimized", mode="native", cache_size=64)
    for size in range(first, first + 20):  # two programs each: forward and backward
        step(tinytorch.ones(size, 3, requires_grad=True), size * 0.01).backward()

grown = []
for first in (33, 33, 33, 65 + 2, 131, 259):
    before = kibibytes()
    batch(first)
    grown.append(kibibytes() - before)
print(json.dumps(grown))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and trims glibc's heap")
def test_memory_does_not_grow_by_the_traces_that_were_dropped(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout)
    # 40 programs a batch: about 300 KiB, in LLVM's tables; with loops for each trace, 20,000
    assert sum(grown[1:3]) < 2 * 4_000, f"sizes that were seen: {grown} KiB"
    assert sum(grown[3:]) < 3 * 4_000, f"new sizes: {grown} KiB"
