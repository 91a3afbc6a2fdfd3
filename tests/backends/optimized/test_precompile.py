from __future__ import annotations

import gc
import json
import os
import subprocess
import sys

import pytest

from tinytorch.backends.optimized import precompile
from tinytorch.jit.library import JIT

PROGRAM = """
from tinytorch.backends.optimized.precompile import load_library
from tinytorch.jit.cache import cache_info
load_library()
info = cache_info()
print(info.entries, info.compiled, info.loaded, info.compile_seconds)
"""


@pytest.mark.slow
@pytest.mark.skipif(not JIT, reason="NUMBA_DISABLE_JIT is set")
def test_the_library_is_compiled_once(tmp_path):
    """By a program, and what is then missing by `tito cache warm`."""

    def python(*arguments):
        done = subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "TINYTORCH_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=1800,
        )
        assert done.returncode == 0, done.stderr
        return done

    def run():
        done = python("-c", PROGRAM)
        *counts, seconds = done.stdout.split()
        return done.stderr, *map(int, counts), float(seconds)

    said, entries, compiled, _, seconds = run()
    # one line off a terminal, where progress cannot be drawn
    assert said.startswith("tinytorch: compiling kernels, once") and said.count("\n") == 1
    # each takes a tenth of a second or more to compile: a new one should be worth it (those of
    # batch_norm with few positions are: it takes a fifth of the time)
    assert 60 < entries < 165 and compiled > 30 and seconds > 0
    for kernel in sorted(tmp_path.rglob("*.bin"))[::8]:
        kernel.unlink()
    warmed = json.loads(python("-m", "tito", "cache", "warm", "--json").stdout)
    assert warmed["compiled"] > 0
    said, again, compiled, loaded, seconds = run()
    assert (said, again, compiled, seconds) == ("", warmed["entries"], 0, 0.0) and loaded > 15


class Helper:
    """In place of a process."""

    def __init__(self, log):
        self.log = log
        log.append("started")

    def terminate(self):
        self.log.append("terminated")

    def wait(self):
        self.log.append("gone")


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_helper_is_called_for_what_must_be_compiled(monkeypatch, cores, compiles, fails):
    log = []

    def first():
        log.append("first")
        precompile.progress.compiled += compiles

    def second():
        log.append("second")
        precompile.progress.compiled += compiles
        if fails:
            raise ZeroDivisionError

    monkeypatch.setattr(precompile, "warm_ups", lambda: (first, second))
    monkeypatch.setattr(precompile.threads, "cores", lambda: cores)
    monkeypatch.setattr(precompile, "_start_helper", lambda: Helper(log))
    monkeypatch.setattr(precompile.progress, "compiled", 0)
    if fails:
        with pytest.raises(ZeroDivisionError):
            precompile.load_library()
    else:
        precompile.load_library()
    if compiles and cores > 1:
        assert log == ["first", "started", "second", "terminated", "gone"]
    else:
        assert log == ["first", "second"]
    assert gc.isenabled()


def test_the_helper_begins_at_the_other_end(monkeypatch):
    log = []
    functions = tuple(lambda i=i: log.append(i) for i in range(3))
    monkeypatch.setattr(precompile, "warm_ups", lambda: functions)
    precompile.help_to_load_library()
    assert log == [2, 1, 0]
