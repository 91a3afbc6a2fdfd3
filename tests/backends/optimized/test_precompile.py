from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tinytorch.backends.optimized.library import JIT

PROGRAM = """
from tinytorch.backends.optimized.precompile import load_library
from tinytorch.backends.optimized.library import cache_info
load_library()
info = cache_info()
print(info.compiled, info.loaded, info.compile_seconds)
"""


@pytest.mark.slow
@pytest.mark.skipif(not JIT, reason="NUMBA_DISABLE_JIT is set")
def test_the_library_is_compiled_once(tmp_path):
    def run():
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "TINYTORCH_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""  # progress is for terminals
        compiled, loaded, seconds = done.stdout.split()
        return int(compiled), int(loaded), float(seconds)

    compiled, _, seconds = run()
    assert compiled > 30 and seconds > 0
    compiled, loaded, seconds = run()
    assert (compiled, seconds) == (0, 0.0) and loaded > 15
