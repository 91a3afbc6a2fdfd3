"""Functions that are compiled when a kernel first reaches them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.optimized.child import run_script
from tinytorch.jit.library import JIT

needs_jit = pytest.mark.skipif(not JIT, reason="there is nothing to compile")

WAYS = """
from numba import types
from tinytorch.jit.cache import cache_info
from tinytorch.jit.deferred import Deferred
from tinytorch.jit.library import export, kernel

SIGNATURE = types.intp(types.intp, types.intp)

@export("tinytorch_test_sum", SIGNATURE)
def total(a, b):
    return a + b

@export("tinytorch_test_difference", SIGNATURE)
def difference(a, b):
    return a - b

ways = Deferred(total, missing=-1), Deferred(difference, missing=-2)
first, second = (way.call for way in ways)

@kernel
def either(subtract, a, b):
    return second(a, b) if subtract else first(a, b)

print(either(True, 7, 3), either(False, 7, 3))
ways[1].load()
print(either(True, 7, 3), either(False, 7, 3), cache_info().compiled)
ways[0].load(), ways[0].load()
print(either(True, 7, 3), either(False, 7, 3), cache_info().compiled)
"""


@pytest.mark.slow
@needs_jit
def test_a_way_is_compiled_when_it_is_loaded_and_loaded_from_the_cache(tmp_path: Path) -> None:
    (tmp_path / "ways.py").write_text(WAYS)
    env = {**os.environ, "TINYTORCH_CACHE_DIR": str(tmp_path / "cache")}
    for compiled in ((2, 3), (0, 0)):
        done = subprocess.run(
            [sys.executable, "ways.py"], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        missing, one, both = done.stdout.splitlines()
        assert missing == "-2 -1"
        assert one == f"4 -1 {compiled[0]}"
        assert both == f"4 10 {compiled[1]}"


FIRST_PRODUCTS = """
import numpy as np
from tinytorch.backends.optimized.gemm.matmul import linear, matmul
from tinytorch.jit import threads
from tinytorch.jit.library import exports

threads.get_num_threads = lambda: 1
done = lambda: sorted(name for name, export in exports.items() if export.callback)
x, w = np.ones((2, 8), np.float32), np.ones((4, 8), np.float32)
assert (linear(x, w, np.zeros(4, np.float32)) == 8).all()
print(*done())
assert (matmul(x[:, :3], np.ones((3, 4), np.float32)) == 3).all()  # other ways
assert (matmul(np.ones((1, 999), np.float32), np.ones((2, 999), np.float32).T) == 999).all()
print(*done())
"""


FIRST_FORWARD = """
import numpy as np
import tinytorch
from tinytorch import nn
from tinytorch.jit.compile_progress import CompileProgress

names, begin = [], CompileProgress.begin
CompileProgress.begin = lambda self, name: (names.append(name.split(".")[-1]), begin(self, name))
tinytorch.set_backend("optimized")
layer = nn.Linear(8, 4)
assert not names
layer(tinytorch.tensor(np.ones((2, 8), np.float32)))
print(*names)
"""


@pytest.mark.slow
@needs_jit
def test_the_first_forward_of_a_layer_compiles_what_it_needs(tmp_path: Path) -> None:
    """Each kernel once, not again for the constants it is called with; and none for the layer."""
    names = run_script(FIRST_FORWARD, TINYTORCH_CACHE_DIR=str(tmp_path)).split()
    assert sorted(names) == [
        *("affine", "balanced", "blocks", "choose", "comes_from_l2"),
        *("costs_less_turned", "costs_of_tiles", "crosses_pages", "dots_cost_less"),
        *("even_tiles", "gemm_tile", "pack", "pack_block", "panel_columns", "panels_walk_badly"),
        *("row_bytes", "rows_at_once"),
        *("rows_collide", "rows_in_a_set", "rows_of_block", "steps_in_pages"),
        *("tiles", "tiles_of", "transposed", "walks_badly"),
    ]


@needs_jit
def test_a_product_compiles_only_the_way_it_takes() -> None:
    first, then = run_script(FIRST_PRODUCTS).splitlines()
    assert first.split() == [
        "tinytorch_gemm_tile_f32", "tinytorch_gemm_tiles_f32", "tinytorch_pack_f32"
    ]  # fmt: skip
    assert set(then.split()) - set(first.split()) == {
        "tinytorch_gemm_rows_f32", "tinytorch_sum_of_rows_f32", "tinytorch_gemm_dots_f32",
        "tinytorch_dot_tile_f32", "tinytorch_dots_with_rows_f32",
    }  # fmt: skip
