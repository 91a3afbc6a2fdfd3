"""Functions that are compiled when a kernel first reaches them, not together with that kernel.

A kernel with several ways to its result refers to all of them, and would be ready only once all
are compiled, which takes seconds. `Deferred` puts the address of a way into memory of its own; the
kernel looks there, and where there is none it hands back to Python, which has the way compiled.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tinytorch.jit.c_functions import c_values
from tinytorch.jit.library import JIT, exports
from tinytorch.jit.llvm import I64, i64

_star_arguments: Callable[..., Any] = types.StarArgTuple
_unpack: Callable[..., Any] = cgutils.unpack_tuple
_local: Callable[..., Any] = cgutils.alloca_once_value


class Deferred:
    """An exported function of numbers, or records of them, compiled when it is first reached.

        ways = Deferred(dots, missing=1), Deferred(tiles, missing=2)
        first, second = (way.call for way in ways)

        @kernel
        def product(...):
            return first(...) if is_small else second(...)

        while missing := product(...):
            ways[missing - 1].load()

    Args:
        function: what `export` returned, for a function with an integer result.
        missing: what `call` returns, having done nothing, where the function is not loaded; a
            number that the function itself never returns.
    """

    def __init__(self, function: Any, missing: int) -> None:
        self._function = function
        self.call: Callable[..., int] = function
        if JIT:
            self._address = ctypes.c_int64(0)
            symbol = f"{function.symbol}_address"
            llvm.add_symbol(symbol, ctypes.addressof(self._address))
            self.call = _call_through(symbol, missing)

    def load(self) -> None:
        """Compile the function, or load it from the cache; from now on `call` calls it."""
        if JIT and not self._address.value:
            exported = exports[self._function.symbol]
            exported.register()
            self._address.value = exported.callback.address


def _call_through(symbol: str, missing: int) -> Any:
    """An intrinsic that calls the function whose address is in memory; `missing` without one."""

    @intrinsic
    def call(typing_context: Any, *arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            known = builder.module.globals.get(symbol)
            cell = known or ir.GlobalVariable(builder.module, I64, symbol)
            address = builder.load(cell)
            result = _local(builder, i64(missing))
            with builder.if_then(builder.icmp_signed("!=", address, i64(0)), likely=True):
                given = c_values(context, builder, arguments, _unpack(builder, values[0]))
                function = ir.FunctionType(I64, [I64] * len(given)).as_pointer()
                builder.store(builder.call(builder.inttoptr(address, function), given), result)
            return builder.load(result)

        return types.intp(_star_arguments(arguments)), generate

    return call
