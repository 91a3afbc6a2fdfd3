"""C functions of numbers: how a kernel becomes one, and how kernels call one.

All their parameters are int64 or float64. A record, a NamedTuple of integers, is passed as its
fields one after another:

    def tile(k: int, a: Matrix) -> None          void tile(int64 k, int64 address, int64 row, ...)

Numba's own wrapper calls the kernel; here the kernel is inlined, so its arguments are moved once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import ccallback, cgutils
from numba.core.compiler import Compiler
from numba.extending import intrinsic

Value = Any

# Functions of numba that have no type annotations.
_unpack: Callable[..., Any] = cgutils.unpack_tuple
_declare: Callable[..., Any] = cgutils.get_or_insert_function
_star_arguments: Callable[..., Any] = types.StarArgTuple
_if_unlikely: Callable[..., Any] = cgutils.if_unlikely
_ccallback: Any = ccallback


def is_record(kind: Any) -> bool:
    """Whether a type of numba is a tuple."""
    return isinstance(kind, types.BaseTuple)


def c_types(kinds: Sequence[Any]) -> list[Any]:
    """The types of a C function's parameters, from those of a kernel."""
    flat = [field for kind in kinds for field in (kind.types if is_record(kind) else (kind,))]
    return [types.float64 if isinstance(kind, types.Float) else types.int64 for kind in flat]


def c_values(context: Any, builder: Any, kinds: Sequence[Any], values: Sequence[Value]) -> Any:
    """The arguments of a C function, from those of a call in a kernel."""
    found: list[Value] = []
    for kind, value in zip(kinds, values, strict=True):
        if is_record(kind):
            found += c_values(context, builder, kind.types, _unpack(builder, value))
        else:
            found.append(context.cast(builder, value, kind, c_types([kind])[0]))
    return found


def c_symbol(symbol: str, signature: Any) -> Any:
    """A C function as kernels call it: numba's own type, or an intrinsic where there are records.

    Both have the name as the attribute `symbol`.
    """
    parameters, returned = tuple(signature.args), signature.return_type
    if not any(map(is_record, parameters)):
        return types.ExternalFunction(symbol, signature)

    @intrinsic
    def call(typing_context: Any, *arguments: Any) -> Any:
        if list(map(_size, arguments)) != list(map(_size, parameters)):
            return None  # numba says which types do not fit

        def generate(context: Any, builder: Any, found: Any, values: Any) -> Any:
            flat = c_values(context, builder, arguments, _unpack(builder, values[0]))
            result = ir.VoidType() if returned is types.void else context.get_value_type(returned)
            kind = ir.FunctionType(result, [value.type for value in flat])
            called = builder.call(_declare(builder.module, kind, symbol), flat)
            return context.get_dummy_value() if returned is types.void else called

        return returned(_star_arguments(arguments)), generate

    made: Any = call
    made.symbol = symbol
    return made


def with_c_parameters(function: Callable[..., Any], signature: Any) -> Callable[..., Any]:
    """A function of Python with the parameters of its C function: the fields of records."""

    def call(*numbers: Any) -> Any:
        rest = iter(numbers)
        return function(
            *(
                kind.instance_class(*islice(rest, len(kind.types)))
                if is_record(kind)
                else next(rest)
                for kind in signature.args
            )
        )

    return call


def _size(kind: Any) -> int:
    """The number of fields; 0 for what is no record."""
    return len(kind.types) if is_record(kind) else 0


class _WithoutWrapper(_ccallback._CFuncCompiler):  # type: ignore[misc]
    def _customize_flags(self, flags: Any) -> Any:
        flags = super()._customize_flags(flags)
        flags.no_cfunc_wrapper = True
        return flags


class CFunction(_ccallback.CFunc):  # type: ignore[misc]
    """A kernel compiled as a C function; see `numba.cfunc`.

    Args:
        function: the kernel in Python.
        signature: a signature of numba.
        options: as for `numba.njit`.
    """

    def __init__(self, function: Callable[..., Any], signature: Any, options: Any) -> None:
        kinds = (signature.args, signature.return_type)
        super().__init__(function, kinds, {}, options)
        self._compiler = _WithoutWrapper(function, self._targetdescr, options, {}, Compiler)

    def _compile_uncached(self) -> Any:
        result = super()._compile_uncached()
        _add_c_function(result)
        return result


def _add_c_function(result: Any) -> None:
    """Add the C function to the module of a kernel, which is inlined into it."""
    context, kernel = result.target_context, result.fndesc
    module = context.create_module("c function")
    convention = context.call_conv
    kind = convention.get_function_type(kernel.restype, kernel.argtypes)
    inner = ir.Function(module, kind, kernel.llvm_func_name)
    packer = context.get_arg_packer(kernel.argtypes)
    returns = kernel.restype not in (types.void, types.none)
    returned = context.get_value_type(kernel.restype) if returns else ir.VoidType()
    outer = ir.Function(
        module, ir.FunctionType(returned, packer.argument_types), kernel.llvm_cfunc_wrapper_name
    )
    builder = ir.IRBuilder(outer.append_basic_block("entry"))
    status, out = convention.call_function(
        builder, inner, kernel.restype, kernel.argtypes,
        packer.from_arguments(builder, outer.args), attrs=("alwaysinline",),
    )  # fmt: skip
    with _if_unlikely(builder, status.is_error):
        _report(context, builder, status)
    if returns:
        builder.ret(out)
    else:
        builder.ret_void()
    result.library.add_ir_module(module)
    result.library._final_module.get_function(kernel.llvm_func_name).linkage = "internal"


def _report(context: Any, builder: Any, status: Any) -> None:
    """Write an error of a kernel, which C cannot hand on, to stderr, as `numba.cfunc` does."""
    python = context.get_python_api(builder)
    lock = python.gil_ensure()
    context.call_conv.raise_error(builder, python, status)
    name = python.string_from_string(context.insert_const_string(builder.module, "tinytorch"))
    python.err_write_unraisable(name)
    python.decref(name)
    python.gil_release(lock)
