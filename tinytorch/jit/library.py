"""The kernel library: the decorator that compiles a function, and the C symbols kernels export.

    @kernel
    def axpy(alpha, x, y):
        for i in range(x.size):
            y[i] += alpha * x[i]

A kernel is compiled for the types it is called with, at the first such call, and kept on disk
(`cache`). With NUMBA_DISABLE_JIT=1 the decorators return the function itself, to be stepped
through in a debugger.
"""

from __future__ import annotations

import itertools
import linecache
import os
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any, TypeVar, cast, overload

import llvmlite.binding as llvm
import numba
import numpy as np
from numba import types
from numba.core.bytecode import FunctionIdentity
from numba.core.codegen import JITCodeLibrary

from tinytorch.collector import collector_paused
from tinytorch.jit import threads
from tinytorch.jit.c_functions import CFunction, c_symbol
from tinytorch.jit.cache import KernelCache, cache_info, clear_cache
from tinytorch.jit.cpu import use_whole_registers

__all__ = [
    "FASTMATH",
    "JIT",
    "cache_info",
    "clear_cache",
    "compile_source",
    "export",
    "exported",
    "kernel",
    "warm_up",
    "warm_ups",
]

F = TypeVar("F", bound=Callable[..., Any])

_config: Any = numba.config  # numba makes its attributes at run time

# Numba tells functions of one name and type apart by a number that it counts up from 1 in every
# process. Machine code out of the cache has the numbers of the processes that made it: that of two
# loops with the same name could have the same symbol, and one would run in place of the other. So
# every process counts from a place of its own, a fork as well.
_identity: Any = FunctionIdentity


def _count_from_elsewhere() -> None:
    _identity._unique_ids = itertools.count(int.from_bytes(os.urandom(6), "big"))


_count_from_elsewhere()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_count_from_elsewhere)

JIT = not _config.DISABLE_JIT
use_whole_registers()

# Reassociation lets LLVM vectorise a sum. `nnan` and `ninf` are left out: NaN stays NaN.
FASTMATH = frozenset({"reassoc", "nsz", "arcp", "contract", "afn"})


@overload
def kernel(function: F) -> F: ...
@overload
def kernel(
    *,
    fastmath: frozenset[str] = FASTMATH,
    parallel: bool = False,
    force_inline: bool = False,
    inner: bool = False,
    refcounts: bool = True,
    nogil: bool = True,
) -> Callable[[F], F]: ...
def kernel(
    function: F | None = None,
    *,
    fastmath: frozenset[str] = FASTMATH,
    parallel: bool = False,
    force_inline: bool = False,
    inner: bool = False,
    refcounts: bool = True,
    nogil: bool = True,
) -> F | Callable[[F], F]:
    """Compile a function with the flags that all kernels share, and cache the result on disk.

    Division by zero gives infinity or NaN as in NumPy (an exception would also prevent vector
    code), and the kernel releases the interpreter lock.

    Args:
        fastmath: which liberties LLVM may take with floating point; none for code whose rounding
            matters, such as the polynomials of `elementwise.math`.
        parallel: `prange` loops run on several threads. Such a kernel takes the number of threads
            as an argument and is called only through `threads`.
        force_inline: always inline into callers, so that their loops can be vectorised. Such a
            kernel is called from kernels only.
        inner: the kernel is called from kernels only, and needs no entry for Python, which takes
            longer to compile than a short kernel.
        refcounts: count references to arrays, atomically, wherever one is passed on. A kernel that
            makes no array, and calls none that does, needs none.
        nogil: release the interpreter lock, which takes 50 ns.
    """

    def compile_lazily(function: F) -> F:
        if not JIT:
            return np.errstate(all="ignore")(function)
        options: dict[str, Any] = {
            "error_model": "numpy",
            "fastmath": set(fastmath),
            "nogil": nogil,
            "parallel": parallel,
            "forceinline": force_inline,
            # entry points that nobody uses would double the time to compile
            "no_cfunc_wrapper": True,
            "no_cpython_wrapper": inner or force_inline,
            "_nrt": refcounts,
        }
        dispatcher: Any = numba.njit(**options)(function)
        dispatcher._cache = KernelCache(function, lambda: _prepare(function, parallel), fastmath)
        dispatcher._compilation_chain_init_hook = _no_extensions
        _hasten(dispatcher._compiler)
        _compile_for_all_integers(dispatcher._compiler)
        _take_read_only_arrays(dispatcher)
        return cast(F, dispatcher)

    return compile_lazily if function is None else compile_lazily(function)


def _prepare(function: Any, parallel: bool) -> None:
    """Register what the machine code of `function` refers to."""
    if parallel:
        threads.select_layer()
    _register_symbols(function)


def _no_extensions() -> None:
    """Numba's extensions are initialised when a kernel is compiled, not when one is called."""


def _hasten(compiler: Any, module: type[JITCodeLibrary] | None = None) -> None:
    """Make numba's `compiler` pause the collector, and optimise each module only as a whole.

    Compiling makes many objects that stay. And numba runs the passes on each function before they
    run on the module, which repeats them: a third of what LLVM does for a large kernel.
    """
    compile_slowly = compiler.compile

    @collector_paused()
    def compile_whole(arguments: Any, return_type: Any) -> Any:
        codegen = compiler.targetdescr.target_context.codegen()
        before = codegen._library_class  # of a kernel that calls this one, or numba's
        codegen._library_class = module or _WholeModule
        try:
            return compile_slowly(arguments, return_type)
        finally:
            codegen._library_class = before

    compiler.compile = compile_whole


def _compile_for_all_integers(compiler: Any) -> None:
    """Have numba compile a kernel once for integers, and not again for each constant it is given.

    LLVM knows the constants of a call where the kernel is inlined into the caller.
    """
    fold = compiler.fold_argument_types

    def fold_without_literals(arguments: Any, keywords: Any) -> Any:
        signature, found = fold(arguments, keywords)
        return signature, tuple(
            kind.literal_type if isinstance(kind, types.IntegerLiteral) else kind for kind in found
        )

    compiler.fold_argument_types = fold_without_literals


def _take_read_only_arrays(dispatcher: Any) -> None:
    """Have read-only arrays run the code for others: as types of their own they would have a kernel
    of two operands compiled four times.

    Kernels write to arrays that were just made, or that `check_not_read_only` has looked at.
    """
    compile_for = dispatcher._compile_for_args

    def compile_for_writable(*arguments: Any) -> Any:
        fixed = [isinstance(a, np.ndarray) and not a.flags.writeable for a in arguments]
        if not any(fixed):
            return compile_for(*arguments)
        kinds = [dispatcher.typeof_pyval(a) for a in arguments]
        code = dispatcher.compile(
            tuple(
                kind.copy(readonly=False) if is_fixed else kind
                for kind, is_fixed in zip(kinds, fixed, strict=True)
            )
        )
        dispatcher._insert([kind._code for kind in kinds], code, False)
        return code

    dispatcher._compile_for_args = compile_for_writable


class _WholeModule(JITCodeLibrary):
    """Machine code whose functions are optimised with their module."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout


class _EmittedModule(_WholeModule):
    """Machine code of vector instructions that are as they should be: LLVM's level 1, once."""

    def _optimize_final_module(self) -> None:
        codegen: Any = self._codegen
        passes, builder = codegen._module_pass_manager(
            opt=1, loop_vectorize=False, slp_vectorize=False
        )
        passes.run(self._final_module, builder)


def compile_source(name: str, source: str, namespace: dict[str, Any], **options: Any) -> Any:
    """Compile the function `name` that the text `source` defines, as `kernel` does.

    The text is registered with `linecache`, so tracebacks and debuggers show it.

    Args:
        name: the function to take from the source.
        source: Python source.
        namespace: the globals the source may use.
        options: as for `kernel`.
    """
    filename = f"<tinytorch {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    scope = {**namespace, "__name__": __name__}  # numba imports the module again from its cache
    exec(compile(source, filename, "exec"), scope)
    return kernel(**options)(scope[name])


class _Export:
    """A kernel under a C name. It is compiled and registered when first needed."""

    def __init__(
        self, symbol: str, signature: Any, function: FunctionType, is_emitted: bool
    ) -> None:
        self.symbol = symbol
        self.function = function
        self.signature = signature
        self.is_emitted = is_emitted
        self.callback: Any = None

    def register(self) -> None:
        if self.callback is None:
            options = {"error_model": "numpy", "fastmath": set(FASTMATH), "nogil": True}
            callback: Any = CFunction(self.function, self.signature, options)
            callback._cache = KernelCache(self.function, lambda: _register_symbols(self.function))
            _hasten(callback._compiler, _EmittedModule if self.is_emitted else _WholeModule)
            callback.compile()
            llvm.add_symbol(self.symbol, callback.address)
            self.callback = callback  # its code lives as long as this


exports: dict[str, _Export] = {}


def exported(value: Any) -> _Export | None:
    """The export that kernels call as `value`, what `export` returned; None for anything else."""
    symbol = getattr(value, "symbol", None)
    return exports.get(symbol) if isinstance(symbol, str) else None


def export(
    symbol: str, signature: Any, *, is_emitted: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Export a function as the C symbol `symbol`, for other kernels to call without inlining it.

    A large kernel is then compiled once, not once in each caller: generated code that calls it
    compiles in a fraction of a second. The decorated name has the symbol as an attribute; call it
    from kernels only. The symbol is registered whenever a kernel that refers to it is about to be
    loaded.

    Args:
        symbol: the C name; `tinytorch_` in front keeps it apart from other libraries.
        signature: a numba signature, `types.void(types.intp, types.intp)`. A record of integers
            (a NamedTuple, see `operands`) is several parameters in C.
        is_emitted: the function is one call of a `vector_intrinsic` whose instructions LLVM has to
            translate and not to improve: a third of the optimizer's time, for the same code.

    Raises:
        ValueError: the symbol is exported already.
    """

    def declare(function: Callable[..., Any]) -> Any:
        if not JIT:
            return function
        assert isinstance(function, FunctionType)
        known = exports.get(symbol)
        # an import that was interrupted (Ctrl-C) runs again, and exports the same functions again
        if known is not None and not _same_definition(known.function, function):
            raise ValueError(f"the symbol {symbol!r} is exported already; choose another name")
        if known is None or known.callback is None:  # else its code is in use
            exports[symbol] = _Export(symbol, signature, function, is_emitted)
        return c_symbol(symbol, signature)

    return declare


def _same_definition(a: FunctionType, b: FunctionType) -> bool:
    definitions = [
        (f.__module__, f.__qualname__, f.__code__.co_filename, f.__code__.co_firstlineno)
        for f in (a, b)
    ]
    return definitions[0] == definitions[1]


def _register_symbols(function: Any, seen: set[int] | None = None) -> None:
    """Register the exported symbols that `function` refers to, also through other kernels."""
    seen = set() if seen is None else seen
    if id(function) in seen:
        return
    seen.add(id(function))
    for value in _referenced(function):
        if hasattr(value, "py_func"):  # another kernel
            _register_symbols(value.py_func, seen)
        elif (called := exported(value)) is not None:
            called.register()


def _referenced(function: FunctionType) -> Iterator[Any]:
    """The global and closure values that a function's code names; `module.name` is looked up."""
    names = function.__code__.co_names
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            yield from (getattr(value, attribute, None) for attribute in names)
        else:
            yield value
    for cell in function.__closure__ or ():
        yield cell.cell_contents


_warm_ups: list[Callable[[], object]] = []


def warm_up(function: F) -> F:
    """Register a function of no arguments that calls a module's kernels once on small arrays.

    `precompile.load_library` runs them all; what they call is thereby compiled, or loaded.
    """
    _warm_ups.append(function)
    return function


def warm_ups() -> tuple[Callable[[], object], ...]:
    """The functions that `warm_up` was given, in that order."""
    return tuple(_warm_ups)
