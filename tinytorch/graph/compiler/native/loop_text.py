"""The text of loops for elementwise ops, generated from the scalar definitions of the op table.

    def loop_mul_sub(n, x0, x1, x2):
        a0 = view(float32, x0, n)
        a1 = view(float32, x1, 1)[0]
        a2 = view(float32, x2, n)
        for i in range(n):
            t0 = a0[i] * a1
            t1 = a2[i] - t0
            a2[i] = t1

A loop takes addresses and lengths, so one serves all views of a program that compute the same.
Numba keeps the machine code of a loop for good (about 0.5 MB), so a number such as 0.3, or the 1/n
of a mean, is an argument as well: traces that differ in numbers and sizes share their loops.
Operands of any strides are read in nested loops: dimensions that all operands walk through alike
are taken together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tinytorch.backends.optimized.elementwise.math import EXACT
from tinytorch.backends.optimized.elementwise.nest import collapse
from tinytorch.backends.optimized.elementwise.scalars import compile_scalar
from tinytorch.dtypes import DType
from tinytorch.graph.compiler.native.code import REALS, Code, real_of
from tinytorch.graph.compiler.native.copy_symbols import DIMENSIONS, copy_record
from tinytorch.graph.compiler.native.loops import Instruction, Loop, Operand, Value
from tinytorch.graph.compiler.native.strides import aligned_strides, disjoint_extents
from tinytorch.graph.layout import Memory, StridedView
from tinytorch.jit.library import compile_source
from tinytorch.jit.views import strided, view as array_at, words

OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**"}
"""Of floats: compiled, they do what IEEE 754 says, which the table has to spell out for Python. (At
each of the branches of `pow` LLVM would try to split the loop, which takes minutes.)"""

LARGEST_LITERAL_EXPONENT = 16


class _Text:
    """The source of a loop's function, and what it refers to.

    Division by a number of the call (Adam's correction of bias) is a multiplication by its inverse:
    one more rounding, in a tenth of the time.

    Args:
        numbers: the views of those numbers.
    """

    def __init__(self, loop: Loop, numbers: set[StridedView]) -> None:
        self.loop = loop
        pairs = [(i.operands[1], i.real) for i in loop.instructions if i.name == "div"]
        self._divisors = {
            o for o, real in pairs
            if isinstance(o, StridedView) and o in numbers and o.dtype.dtype == real
        }  # fmt: skip
        self.names: dict[str, Any] = {
            "view": array_at, "strided": strided, "words": words, "int32": np.int32
        }  # fmt: skip
        self.numbers: dict[tuple[str, int], float] = {}  # that are arguments, by type and bits
        self.views = list(dict.fromkeys((*loop.read(), *loop.written())))
        strides = [aligned_strides(view, loop.shape) for view in self.views]
        self.sizes, self.strides = collapse(loop.shape, strides)
        self.index = f"i{len(self.sizes) - 1}"
        written = set(loop.written())
        self.modes = []
        for view, own in zip(self.views, self.strides, strict=True):
            single = own[-1] == 0 and view not in written
            adjacent = own[-1] == view.dtype.itemsize or (self.sizes[-1] == 1 and not single)
            self.modes.append("one" if single else "row" if adjacent else "step")

    @property
    def is_flat(self) -> bool:
        return len(self.sizes) == 1 and "step" not in self.modes

    def record(self) -> list[int]:
        """Lengths, then the strides of each operand."""
        return [*self.sizes, *(s for own in self.strides for s in own)]

    def source(self, name: str) -> str:
        """The function; afterwards `numbers` has those that it reads from the record `numbers`."""
        depth = len(self.sizes)
        body = self._body(2 if self.is_flat else depth + 1)  # first: it says which numbers are used
        parameters = ", ".join(
            [f"x{k}" for k in range(len(self.views))] + ["numbers"] * bool(self.numbers)
        )
        loads = [
            f"    number{k} = view({kind}, numbers + {8 * k}, 1)[0]"
            for k, (kind, _) in enumerate(self.numbers)
        ]
        if self.is_flat:
            lines = [f"def {name}(n, {parameters}):", *loads]
            lines += self._opened("n", [f"x{k}" for k in range(len(self.views))], 1)
            return "\n".join([*lines, "    for i0 in range(n):", *body]) + "\n"
        counts = [f"n{d}" for d in range(depth)]
        steps = [f"s{k}_{d}" for k in range(len(self.views)) for d in range(depth)]
        lines = [
            f"def {name}(record, {parameters}):",
            f"    {', '.join((*counts, *steps))}, = words(record, {depth + len(steps)})",
            *loads,
        ]
        for d in range(depth - 1):
            lines.append("    " * (d + 1) + f"for i{d} in range(n{d}):")
        addresses = [
            " + ".join([f"x{k}", *(f"i{d} * s{k}_{d}" for d in range(depth - 1))])
            for k in range(len(self.views))
        ]
        lines += self._opened(f"n{depth - 1}", addresses, depth)
        lines.append("    " * depth + f"for {self.index} in range(n{depth - 1}):")
        return "\n".join([*lines, *body]) + "\n"

    def _opened(self, length: str, addresses: list[str], indent: int) -> list[str]:
        """Operands as arrays over the inner loop, or as numbers."""
        lines = []
        for k, (view, mode, at) in enumerate(zip(self.views, self.modes, addresses, strict=True)):
            kind = self._type(view.dtype)
            text = {
                "one": f"view({kind}, {at}, 1)[0]",
                "row": f"view({kind}, {at}, {length})",
                "step": f"strided({kind}, {at}, ({length},), (s{k}_{len(self.sizes) - 1},))",
            }[mode]
            lines.append("    " * indent + f"a{k} = {text}")
            if view in self._divisors:
                lines.append("    " * indent + f"inverse{k} = {kind}(1) / a{k}")
        return lines

    def _body(self, indent: int) -> list[str]:
        lines = [f"t{i.result.number} = {self._instruction(i)}" for i in self.loop.instructions]
        stores = []  # after all loads: a view that is read means its content before the round
        for k, (value, view) in enumerate(self.loop.stores):
            text = self._converted(value, view.dtype)
            if isinstance(value, StridedView):
                lines.append(f"c{k} = {text}")
                text = f"c{k}"
            stores.append(f"a{self.views.index(view)}[{self.index}] = {text}")
        lines += stores
        return ["    " * indent + line for line in lines]

    def _instruction(self, i: Instruction) -> str:
        if i.scalar is None:
            return self._converted(i.operands[0], i.real)
        arguments = [self._argument(operand, i) for operand in i.operands]
        if i.name == "div" and i.operands[1] in self._divisors:
            return f"{arguments[0]} * inverse{self.views.index(i.operands[1])}"
        if i.name in OPERATORS and np.dtype(i.real).kind == "f":
            return f"{arguments[0]} {OPERATORS[i.name]} {arguments[1]}"
        text = f"{self._scalar(i)}({', '.join(arguments)})"
        # True + True is True, also in a register that holds an integer
        return f"int32({text} != 0)" if i.name == "add" and i.result.dtype.name == "bool" else text

    def _argument(self, operand: Operand, i: Instruction) -> str:
        """An operand in the type that the instruction computes in; conditions stay bool."""
        if not isinstance(operand, (StridedView, Value)):
            is_logical = i.name.startswith("logical")
            return self._number(bool(operand) if is_logical else operand, i.real, i.name == "pow")
        text, kind = self._load(operand)
        return text if kind in (i.real, np.bool_) else f"{self._numpy(i.real)}({text})"

    def _load(self, operand: StridedView | Value) -> tuple[str, Any]:
        """An operand, and its type in the loop."""
        if isinstance(operand, Value):
            made = self.loop.instructions[operand.number]
            is_cast = made.scalar is None
            return f"t{operand.number}", operand.dtype.dtype.type if is_cast else made.real
        k = self.views.index(operand)
        element = f"a{k}" if self.modes[k] == "one" else f"a{k}[{self.index}]"
        return element, operand.dtype.dtype.type

    def _converted(self, operand: Operand, dtype: DType) -> str:
        if not isinstance(operand, (StridedView, Value)):
            return self._number(operand, dtype.dtype.type)
        text, kind = self._load(operand)
        if kind is dtype.dtype.type:
            return text
        return f"{text} != 0" if dtype.name == "bool" else f"{self._type(dtype)}({text})"

    def _number(self, number: float, real: Any, is_power: bool = False) -> str:
        """A number: in the text if that makes better code, else read from the record `numbers`."""
        value = float(number)
        if math.isfinite(value) and not _is_literal(value, is_power):
            key = (self._numpy(real), _bits(number, real))
            self.numbers.setdefault(key, number)
            return f"number{list(self.numbers).index(key)}"
        text = repr(number)
        if not math.isfinite(value):
            text = "nan" if math.isnan(value) else "inf" if value > 0 else "minus_inf"
            self.names[text] = value
        return f"{self._numpy(real)}({text})"

    def _type(self, dtype: DType) -> str:
        return self._numpy(dtype.dtype.type)

    def _numpy(self, kind: Any) -> str:
        name: str = np.dtype(kind).name
        self.names[name] = kind
        return name

    def _scalar(self, i: Instruction) -> str:
        assert i.scalar is not None
        kind = np.dtype(i.real).name
        name = i.name if kind == "float32" else f"{i.name}_{kind}"
        self.names[name] = _compiled_scalar(i.scalar, i.real)
        return name


def _is_literal(value: float, is_power: bool) -> bool:
    """0, 1 and powers of two are exact as factors, so LLVM multiplies where it would divide.

    Of `pow` it knows small exponents, and halves.
    """
    if is_power and abs(value) <= LARGEST_LITERAL_EXPONENT and (2 * value).is_integer():
        return True
    return value == 0 or abs(math.frexp(value)[0]) == 0.5


def _bits(number: float, real: Any) -> int:
    """A number of a type, in the first bytes of an int64."""
    slot = np.zeros(1, np.int64)
    with np.errstate(over="ignore"):  # a float32 is then infinite, as in compiled code
        slot.view(real)[0] = np.array(number).astype(real)
    return int(slot[0])


@cache
def _compiled_scalar(scalar: Callable[..., Any], real: Any) -> Any:
    return compile_scalar(scalar, real)


# Loops by text: what it names is the same everywhere. Numba would not free the code of one that is
# dropped here; how many there are is bounded by the kinds of loops, since sizes and numbers are
# arguments.
_compiled: dict[str, Any] = {}


def emit(code: Code, loop: Loop) -> None:
    """Write a call of the loop, and its function if there is none like it yet."""
    if not math.prod(loop.shape) or not loop.stores:
        return
    code.comment = "; ".join(loop.comments)
    if not loop.instructions and _copy(code, loop):
        return
    inputs = code.schedule.inputs
    numbers = {
        view
        for view in loop.read()
        if view.buffer.memory is Memory.INPUT and inputs[view.buffer.index].role.is_number
    }
    text = _Text(loop, numbers)
    name = "_".join(["loop", *(i.name for i in loop.instructions[:5])])
    source = text.source(name)
    if source not in _compiled:
        _compiled[source] = compile_source(name, source, text.names, fastmath=EXACT)
    called = code.function(name, _compiled[source])
    code.sources[called] = source
    first = code.length(text.sizes[0]) if text.is_flat else code.record(text.record())
    arguments = [first, *map(code.address, text.views)]
    if text.numbers:
        arguments.append(code.record(bits for _, bits in text.numbers))
        said = ", ".join(map(repr, text.numbers.values()))
        code.comment = "; ".join([*loop.comments, f"numbers {said}"])
    code.statement(f"{called}({', '.join(arguments)})")


def _copy(code: Code, loop: Loop) -> bool:
    """Write a loop that only copies as calls of a symbol; False if there is none for it.

    The calls follow one another, so none may read what one before it writes.
    """
    sources, targets = zip(*loop.stores, strict=True)
    if not all(disjoint_extents(targets[i], s) for k, s in enumerate(sources) for i in range(k)):
        return False
    walks = []
    for source, target in loop.stores:
        if not isinstance(source, StridedView) or source.dtype is not target.dtype:
            return False
        views = (source, target)
        sizes, steps = collapse(loop.shape, [aligned_strides(p, loop.shape) for p in views])
        if len(sizes) > DIMENSIONS or target.dtype.name not in REALS:
            return False
        walks.append((copy_record(sizes, *steps), views))
    for record, views in walks:
        code.call("copy", real_of(views[1]), code.record(record), *map(code.address, views))
    return True
