"""From the text of a native function to machine code, in milliseconds.

The text is a list of calls, and needs no types inferred: everything is an int64, but for the
numbers that a symbol takes as float64. So it is not numba that compiles it. It is parsed, each
statement becomes the instruction that it is, and LLVM is asked for code without optimization: the
work is in the functions that are called. These numba has compiled, and keeps on disk.

    a, b = words(table, 2)              names of what is in the table
    f(a, 3, 0.5)                        a call; `x = f(a)` keeps its result
    if f(a): ... else: ...              also with `x == 0` and `x >= 0`
    while x >= 0: ...
    return 0
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types

from tinytorch.jit.c_functions import CFunction, c_types
from tinytorch.jit.library import exported
from tinytorch.jit.llvm import I64, i64

DOUBLE = ir.DoubleType()
NAME = "step"


class MachineCode:
    """A compiled function of one int64.

    Args:
        source: defines `step(table)`, as above.
        functions: what it calls, by name: symbols, and kernels, which take and return int64.

    Attributes:
        address: of the code, as long as this lives.
    """

    def __init__(self, source: str, functions: Mapping[str, Any]) -> None:
        self._callees = {name: _Callee(function) for name, function in functions.items()}
        definition = ast.parse(source).body[0]
        assert isinstance(definition, ast.FunctionDef)
        module = ir.Module(NAME)
        _Writer(module, self._callees).function(definition)
        machine = llvm.Target.from_default_triple().create_target_machine(opt=0)
        parsed = llvm.parse_assembly(str(module))
        self._engine = llvm.create_mcjit_compiler(parsed, machine)
        self._engine.finalize_object()
        self.address: int = self._engine.get_function_address(NAME)


class _Callee:
    """The address and C type of a function; all its integers are int64."""

    def __init__(self, function: Any) -> None:
        if (export := exported(function)) is not None:
            export.register()
            made = export.callback
        else:
            made = c_function(function)
        self.address: int = made.address
        signature = made._sig
        returned = ir.VoidType() if signature.return_type is types.void else I64
        self.arguments = [DOUBLE if a is types.float64 else I64 for a in c_types(signature.args)]
        self.pointer = ir.FunctionType(returned, self.arguments).as_pointer()


_made: dict[Any, Any] = {}  # C functions by the kernel that they are


def c_function(function: Any) -> Any:
    """A kernel of int64, as C calls it. It stays for good."""
    if function not in _made:
        code = function.py_func
        count = code.__code__.co_argcount
        returned = types.int64 if code.__annotations__.get("return") == "int" else types.void
        options = {
            "error_model": "numpy",
            "nogil": True,
            "fastmath": function.targetoptions["fastmath"],
        }
        made: Any = CFunction(code, returned(*[types.int64] * count), options)
        made._cache = function._cache
        made.compile()
        _made[function] = made
    return _made[function]


class _Writer:
    """Instructions for statements."""

    def __init__(self, module: Any, callees: Mapping[str, _Callee]) -> None:
        self._callees = callees
        kind = ir.FunctionType(I64, (I64,))
        self._function = ir.Function(module, kind, NAME)
        self._builder = ir.IRBuilder(self._function.append_basic_block())
        self._words: dict[str, Any] = {}  # values of the table
        self._variables: dict[str, Any] = {}

    def function(self, definition: ast.FunctionDef) -> None:
        """The whole."""
        self._block(definition.body)

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            match statement:
                case ast.Assign([ast.Tuple(names)], _):  # = words(table, n)
                    self._load([name.id for name in names if isinstance(name, ast.Name)])
                case ast.Assign([ast.Name(name)], value):
                    self._assign(name, self._value(value))
                case ast.Expr(value):
                    self._value(value)
                case ast.Return(value):
                    self._builder.ret(self._value(value))
                case ast.If(test, body, orelse):
                    self._if(test, body, orelse)
                case ast.While(test, body):
                    self._while(test, body)
                case _:
                    raise NotImplementedError(f"no code for `{ast.unparse(statement)}`")

    def _load(self, names: Sequence[str]) -> None:
        b = self._builder
        start = b.inttoptr(self._function.args[0], I64.as_pointer())
        self._words = {name: b.load(b.gep(start, [i64(i)])) for i, name in enumerate(names)}

    def _assign(self, name: str, value: Any) -> None:
        if name not in self._variables:
            with self._builder.goto_entry_block():
                self._variables[name] = self._builder.alloca(I64)
        self._builder.store(value, self._variables[name])

    def _if(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        append = self._function.append_basic_block
        then, otherwise, after = append(), append(), append()
        self._builder.cbranch(self._condition(test), then, otherwise)
        for block, statements in ((then, body), (otherwise, orelse)):
            self._builder.position_at_end(block)
            self._block(statements)
            self._jump(after)
        self._builder.position_at_end(after)

    def _while(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        append = self._function.append_basic_block
        look, inside, after = append(), append(), append()
        self._jump(look)
        self._builder.position_at_end(look)
        self._builder.cbranch(self._condition(test), inside, after)
        self._builder.position_at_end(inside)
        self._block(body)
        self._jump(look)
        self._builder.position_at_end(after)

    def _jump(self, block: Any) -> None:
        if not self._builder.block.is_terminated:
            self._builder.branch(block)

    def _condition(self, test: ast.expr) -> Any:
        match test:
            case ast.Compare(left, [ast.Eq() | ast.GtE() as operator], [right]):
                sign = "==" if isinstance(operator, ast.Eq) else ">="
                return self._builder.icmp_signed(sign, self._value(left), self._value(right))
        return self._builder.icmp_signed("!=", self._value(test), i64(0))

    def _value(self, expression: ast.expr | None) -> Any:
        match expression:
            case ast.Constant(int() as number):
                return i64(number)
            case ast.UnaryOp(ast.USub(), ast.Constant(int() as number)):
                return i64(-number)
            case ast.Name(name) if name in self._words:
                return self._words[name]
            case ast.Name(name) if name in self._variables:
                return self._builder.load(self._variables[name])
            case ast.Call(ast.Name(name), arguments):
                return self._call(self._callees[name], arguments)
        assert expression is not None
        raise NotImplementedError(f"no code for `{ast.unparse(expression)}`")

    def _call(self, callee: _Callee, arguments: Sequence[ast.expr]) -> Any:
        values = [
            ir.Constant(DOUBLE, float(ast.literal_eval(a))) if kind is DOUBLE else self._value(a)
            for a, kind in zip(arguments, callee.arguments, strict=True)
        ]
        function = self._builder.inttoptr(i64(callee.address), callee.pointer)
        return self._builder.call(function, values)
