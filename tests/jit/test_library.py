from __future__ import annotations

import ctypes
import gc
import math
import os
import subprocess
import sys
import textwrap
import traceback

import numpy as np
import pytest
from numba import types
from numba.core.caching import NullCache
from numba.core.errors import TypingError
from numba.extending import intrinsic

from tinytorch.jit import library
from tinytorch.jit.library import compile_source, export, kernel
from tinytorch.jit.operands import MATRIX, Matrix

needs_jit = pytest.mark.skipif(not library.JIT, reason="NUMBA_DISABLE_JIT is set")


@kernel
def divide(a, b):
    return a / b


@kernel
def count_nan(x):
    count = 0
    for i in range(x.size):
        if math.isnan(x[i]):
            count += 1
    return count


@needs_jit
@pytest.mark.parametrize("order", ["read-only first", "writable first"])
def test_a_read_only_array_runs_the_code_for_others(order):
    @kernel
    def add(a, b, out):
        for i in range(a.size):
            out[i] = a[i] + b[i]

    writable, out = np.arange(3.0), np.empty(3)
    fixed = writable.copy()
    fixed.flags.writeable = False
    calls = [(fixed, writable), (writable, fixed), (fixed, fixed), (writable, writable)]
    for a, b in calls if order == "read-only first" else reversed(calls):
        for _ in range(2):  # by the path that compiles, and by the one that finds it
            out[:] = 0
            add(a, b, out)
            assert out.tolist() == [0, 2, 4]
    assert len(add.overloads) == 1
    add(fixed[::2], fixed[1:], out)
    assert len(add.overloads) == 2  # by layout: rows that are no longer contiguous


def test_division_by_zero_is_ieee():
    assert divide(np.float64(1), np.float64(0)) == math.inf
    assert math.isnan(divide(np.float64(0), np.float64(0)))


def test_fast_arithmetic_keeps_nan():
    assert count_nan(np.array([1, np.nan, np.inf, np.nan] * 20, np.float32)) == 40


@needs_jit
def test_an_export_is_compiled_when_a_kernel_that_calls_it_is():
    @export("tinytorch_test_square", types.intp(types.intp))
    def square(x):
        return x * x

    @export("tinytorch_test_fourth", types.intp(types.intp))
    def fourth(x):
        return square(square(x))

    assert library.exports["tinytorch_test_square"].callback is None

    @kernel
    def inner(x):
        return fourth(x) + 1

    @kernel
    def outer(x):
        return inner(x)

    assert outer(3) == 82
    assert library.exports["tinytorch_test_square"].callback is not None


class Labelled:
    """Of another library: its `symbol` is no name of a C function."""

    def __init__(self, symbol: object) -> None:
        self.symbol = symbol


@needs_jit
@pytest.mark.parametrize("symbol", [[1], None, "tinytorch_test_unknown", 3])
def test_a_value_with_another_kind_of_symbol_is_no_export(symbol):
    value = Labelled(symbol)
    assert library.exported(value) is None

    def refers():
        return value

    library._register_symbols(refers)  # also where the symbol cannot be hashed


@needs_jit
@pytest.mark.parametrize("is_emitted", [False, True])
def test_a_record_is_several_parameters_of_a_c_function(is_emitted):
    @export(
        f"tinytorch_test_place_{is_emitted}",
        types.intp(types.intp, MATRIX, types.intp),
        is_emitted=is_emitted,
    )
    def place(scale, matrix, index):
        return scale * (matrix.address + index * matrix.row) - matrix.column

    @kernel
    def call(index):
        return place(2, Matrix(100, 10, index), index)

    assert call(3) == 2 * 130 - 3  # of Python's types, constants among them
    made = library.exports[f"tinytorch_test_place_{is_emitted}"].callback
    from_c = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)(made.address)
    assert from_c(2, 100, 10, 3, 3) == 257

    @kernel
    def wrong(index):
        return place(2, (index, index), index)

    with pytest.raises(TypingError):  # two fields in place of three
        wrong(3)


@needs_jit
def test_a_kernel_is_compiled_once_for_all_constants(monkeypatch):
    monkeypatch.setattr(library, "KernelCache", lambda *_: NullCache())  # nothing is on disk

    @kernel
    def scaled(x, factor):
        return x * factor

    @kernel
    def total(x):
        return scaled(x, 2) + scaled(x, 3) + scaled(x, x)

    assert total(4) == 8 + 12 + 16
    assert len(scaled.overloads) == 1


@needs_jit
def test_a_symbol_is_exported_once():
    @export("tinytorch_test_once", types.intp(types.intp))
    def first(x):
        return x

    with pytest.raises(ValueError, match="tinytorch_test_once"):

        @export("tinytorch_test_once", types.intp(types.intp))
        def second(x):
            return x


CALLER = """
from numba import types
from numba.extending import intrinsic
from tinytorch.jit import library
from tinytorch.jit.library import compile_source, export, kernel

@export("tinytorch_test_triple", types.intp(types.intp))
def triple(x):
    return 3 * x

TEXT = "def generated(x):\\n    return triple(x) + 1\\n"
generated = compile_source("generated", TEXT, globals())
print(generated(5), library.cache_info().compiled)
"""


@pytest.mark.slow
@needs_jit
def test_cached_code_that_calls_an_export_runs_in_a_fresh_process(tmp_path):
    # without its symbol registered first, loading such code ends the process with a signal
    (tmp_path / "caller.py").write_text(CALLER)
    env = {**os.environ, "TINYTORCH_CACHE_DIR": str(tmp_path / "cache")}
    for expected in ("16 2", "16 0"):
        done = subprocess.run(
            [sys.executable, "caller.py"], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == expected


MIXERS = """
import sys
import textwrap
from tinytorch.jit.library import compile_source

MIX = "".join("    x ^= (x << 3) + constant\\n" for _ in range(100))  # too long to be inlined

def make(constant):
    text, same = "def mix(x):\\n" + MIX + "    return x\\n", {"fastmath": frozenset()}
    mix = compile_source("mix", text, {"constant": constant}, **same)
    text = "def caller(x):\\n    return mix(x)\\n"
    return mix, compile_source("caller", text, {"mix": mix}, **same)

made = {constant: make(constant) for constant in (1, 2)}
for which, constant in sys.argv[1:]:
    print(made[int(constant)][which == "c"](10))
"""


@pytest.mark.slow
@needs_jit
def test_functions_of_one_name_stay_apart_in_the_cache(tmp_path):
    # the second process compiles one, and loads a caller that has the other one inside
    (tmp_path / "mixers.py").write_text(MIXERS)
    env = {**os.environ, "TINYTORCH_CACHE_DIR": str(tmp_path / "cache")}
    printed = []
    for calls in (["m1", "c1"], ["m2", "c1"]):
        command = [sys.executable, "mixers.py", *calls]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed += done.stdout.split()
    one, called, two, again = printed
    assert one == called == again != two


@needs_jit
def test_generated_source_shows_in_tracebacks():
    function = compile_source("broken", "def broken(x):\n    return x.no_such_thing\n", {})
    with pytest.raises(Exception) as caught:
        function(1.0)
    assert "no_such_thing" in str(caught.value)
    plain = function.py_func
    with pytest.raises(AttributeError) as caught:
        plain(1.0)
    assert "return x.no_such_thing" in "".join(traceback.format_exception(caught.value))


def test_generated_functions_of_one_text_keep_their_constants():
    text = "def f(x):\n    return x + constant\n"
    one, two = (compile_source("f", text, {"constant": c}) for c in (1, 2))
    assert (one(10), two(10)) == (11, 12)


def test_warm_ups_are_kept_in_order(monkeypatch):
    monkeypatch.setattr(library, "_warm_ups", [])

    @library.warm_up
    def first():
        pass

    @library.warm_up
    def second():
        pass

    assert library.warm_ups() == (first, second)


def test_an_import_that_was_interrupted_can_be_repeated():
    """Ctrl-C while the kernels are being defined; the same process then computes."""
    program = """
        import tinytorch
        from tinytorch.jit import library

        real, count = library.export, 0

        def export(*args, **options):
            global count
            count += 1
            if count == 12:
                raise KeyboardInterrupt
            return real(*args, **options)

        library.export = export
        for _ in range(2):
            try:
                tinytorch.set_backend("optimized")
                result = tinytorch.ones(3, 4) @ tinytorch.ones(4, 2)
            except KeyboardInterrupt:
                print("interrupted", count)
        print(result.sum().item())
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["interrupted", "12", "24.0"], done.stderr


def test_the_collector_is_paused_while_numba_compiles():
    seen = []

    @intrinsic
    def look(typing_context):
        seen.append(gc.isenabled())
        return types.void(), lambda context, builder, *_: context.get_dummy_value()

    def function():
        look()

    kernel(function)._compiler.compile((), None)  # the cache is not asked
    assert seen and not any(seen)
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forks_number_their_functions_differently():
    """The number is part of a symbol's name, and code of several processes meets in the cache."""
    program = """
        import os
        from tinytorch.jit.library import _identity

        def number():
            reader, writer = os.pipe()
            if os.fork() == 0:
                os.write(writer, str(next(_identity._unique_ids)).encode())
                os._exit(0)
            os.wait()
            return os.read(reader, 100)

        assert number() != number()
    """
    code = textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
