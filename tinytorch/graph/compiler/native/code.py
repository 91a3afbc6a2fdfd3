"""`Code`: the text of a native function while it is being written, and what the text refers to.

    def step(table):
        (x, weight, product, ...) = words(table, 12)     # addresses
        gemm_f32(32, 128, 784, x, 3136, 4, ...)          # product = matmul(x, weight) ...

The text holds sizes and no addresses: those come in a table of int64, so the compiled function can
be kept on disk, and serve other processes.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinytorch.backends.optimized.symbols import symbol
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.graph.compiler.schedule import Schedule, Step
from tinytorch.graph.layout import Buffer, Memory, StridedView, contiguous_view
from tinytorch.graph.memory import ALIGNMENT
from tinytorch.graph.node import Node

REALS: dict[str, Any] = {"float32": np.float32, "float64": np.float64}
COMMENT_COLUMN = 60
RESERVED = frozenset(
    (
        *("words", "table", "step", "outside", "me", "part"),
        *("arrive", "take", "done", "begin", "end", "abandon"),
    )
)


class Unsupported(Exception):
    """The reason why there is no native code for a step.

    Attributes:
        lacking: the steps of a whole schedule, each with its reason.
    """

    lacking: Sequence[tuple[Node, str]] = ()


@dataclass(frozen=True)
class Word:
    """An entry of the table: where an address comes from.

    Attributes:
        kind: "view" in a buffer of the schedule; "array", number `index` of those that the code
            keeps; "number", which is `index` itself; "barrier", a record of `barrier`; "scratch"
            number `index` for packing.
        buffer, offset: of a view.
        index: of an array.
    """

    kind: str
    buffer: Buffer | None = None
    offset: int = 0
    index: int = 0


class Code:
    """Collects statements, names of addresses, and the functions that are called.

    Args:
        schedule: whose steps are written.
        count: of threads that the code is for.
        may_call_library: NumPy's BLAS may compute products (`gemm.library`); only on one thread, as
            the number of threads of that library is one for the whole process.

    Attributes:
        calls_library: it computes one.
        lines: the statements.
        checks: those that come before all others.
        words: the table, by name.
        functions: what the text calls, by name.
        sources: the text of those that were generated, by name.
        arrays: int64 records and tables whose addresses the code gets; their owner keeps them.
        failures: what the code reports by numbers from 1: the name of an index, its bound, and
            where it is, if it is an input.
        arena_bytes: of the schedule's arena and, behind it, of temporary memory.
        part: of a step, where threads share it: which one is being written.
    """

    def __init__(self, schedule: Schedule, count: int = 1, may_call_library: bool = False) -> None:
        self.schedule = schedule
        self.may_call_library = may_call_library and count == 1
        self.calls_library = False
        self.count = count
        self.part = 0
        self.lines: list[str] = []
        self.checks: list[str] = []
        self.words: dict[str, Word] = {}
        self.functions: dict[str, Any] = {}
        self.sources: dict[str, str] = {}
        self.arrays: list[Array] = []
        self.failures: list[tuple[str, int, StridedView | None]] = []
        self._names: dict[tuple[str, Word], str] = {}
        self._hints = _hints(schedule)
        self._base = -(-schedule.arena_bytes // ALIGNMENT) * ALIGNMENT
        self.arena_bytes = self._base
        self._used = 0
        self.comment = ""

    # -- memory ------------------------------------------------------------------------------------

    def free_temporaries(self, used: int = 0) -> int:
        """Temporary memory, but for so many bytes, may be used again; returns how many were used.

        What runs at once must not share any.
        """
        before, self._used = self._used, used
        return before

    def begin(self, step: Step) -> None:
        """Begin the lines that compute this step."""
        self.comment = comment_of(step)
        self.name_output(step)

    def name_output(self, step: Step) -> None:
        """Call the address of the step's output by the step's name from now on."""
        if step.output.buffer.memory in (Memory.ARENA, Memory.OWN):
            self._hints[step.output.buffer, step.output.offset] = step.node.name

    def name_part(self, view: StridedView, whole: StridedView) -> None:
        """The address of a part of a view goes by the name of the whole, and a number."""
        known = self._hints.get((whole.buffer, whole.offset))
        if known is not None and view.offset != whole.offset:
            self._hints[view.buffer, view.offset] = f"{known}_part"

    def temporary(self, shape: Iterable[int], dtype: Any) -> StridedView:
        """A view for a value that only this step needs."""
        view = contiguous_view(
            Buffer(Memory.ARENA), self._base + self._used, TensorMeta(tuple(shape), dtype)
        )
        self._reserve(view.size * dtype.itemsize)
        return view

    def workspace(self, nbytes: int) -> str:
        """The address of so many bytes that only this step needs."""
        view = StridedView(Buffer(Memory.ARENA), self._base + self._used, (), (), None)  # type: ignore[arg-type]
        self._reserve(nbytes)
        return self.address(view)

    def _reserve(self, nbytes: int) -> None:
        self._used += -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        self.arena_bytes = max(self.arena_bytes, self._base + self._used)

    # -- names -------------------------------------------------------------------------------------

    def address(self, view: StridedView) -> str:
        """The name of a view's address."""
        hint = self._hints.get((view.buffer, view.offset), "temporary")
        return self._word(hint, Word("view", view.buffer, view.offset))

    def record(self, values: Iterable[int | Array]) -> str:
        """The name of the address of a record of int64; of an array in it its address is meant."""
        words = []
        for value in values:
            if isinstance(value, np.ndarray):
                array = np.ascontiguousarray(value, np.int64)
                self.arrays.append(array)
                value = array.ctypes.data
            words.append(int(value))
        for i, known in enumerate(self.arrays):
            if np.array_equal(known, words):
                return self._word("record", Word("array", index=i))
        self.arrays.append(np.array(words, np.int64))
        return self._word("record", Word("array", index=len(self.arrays) - 1))

    def length(self, number: int) -> str:
        """The name of a number that loops take. (Numba compiles a loop for each literal number.)"""
        return self._word(f"n{number}", Word("number", index=number))

    @property
    def barrier(self) -> str:
        """The name of the address of the record by which threads work together."""
        return self._word("barrier", Word("barrier"))

    @property
    def scratch(self) -> str:
        """The name of the address of the memory in which products pack their operands."""
        return self._word("scratch", Word("scratch", index=self.part))

    def _word(self, hint: str, word: Word) -> str:
        key = (hint, word)
        if key not in self._names:
            name = self._names[key] = self._unused(hint)
            self.words[name] = word
        return self._names[key]

    def _unused(self, hint: str) -> str:
        name = re.sub(r"\W", "_", hint) or "value"
        if name[0].isdigit() or keyword.iskeyword(name) or name in RESERVED:
            name = f"_{name}"
        found, number = name, 1
        while found in self.words or found in self.functions:
            number += 1
            found = f"{name}_{number}"
        return found

    # -- statements --------------------------------------------------------------------------------

    def call(self, name: str, real: Any, *arguments: Any) -> None:
        """A call of an op's symbol for one type."""
        self.call_function(*symbol(name, real), *arguments)

    def call_function(self, name: str, function: Any, *arguments: Any) -> None:
        """A call of a function by a name that is its own."""
        self.functions[name] = function
        self.statement(f"{name}({', '.join(map(str, arguments))})")

    def statement(self, text: str) -> None:
        """A line, with the comment of the present step."""
        comment, self.comment = self.comment, ""
        if comment and len(text) < COMMENT_COLUMN:
            text = f"{text:{COMMENT_COLUMN}}  # {comment}"
        elif comment:
            self.lines.append(f"# {comment}")
        self.lines.append(text)

    def function(self, hint: str, function: Any) -> str:
        """The name by which the text calls a function."""
        for name, known in self.functions.items():
            if known is function:
                return name
        name = self._unused(hint)
        self.functions[name] = function
        return name

    def check_index(self, view: StridedView, extent: int) -> None:
        """The function stops and reports an index outside of 0 .. extent - 1.

        An input is looked at before anything is written.

        Args:
            view: of indices in C order.
        """
        self.functions["outside"] = symbol("outside")[1]
        test = f"if outside({view.size}, {extent}, {self.address(view)}):"
        is_input = view.buffer.memory is Memory.INPUT
        target = self.checks if is_input else self.lines
        if test in self.checks:
            return
        self.failures.append((self.address(view), extent, view if is_input else None))
        failure = str(len(self.failures))
        if self.count > 1:
            failure = f"abandon({self.barrier}, {failure})"
        target += [test, f"    return {failure}"]

    def source(self) -> str:
        """The whole function."""
        names = ", ".join(self.words)
        head = [f"({names},) = words(table, {len(self.words)})"] if self.words else []
        body = [*head, *self.lines, "return 0"]
        return "def step(table):\n" + "".join(f"    {line}\n" for line in body)


def real_of(view: StridedView) -> Any:
    """np.float32 or np.float64.

    Raises:
        Unsupported: the view holds something else.
    """
    if view.dtype.name not in REALS:
        raise Unsupported(f"there are kernels for float32 and float64, not for {view.dtype.name}")
    return REALS[view.dtype.name]


def view_at(view: StridedView, shape: tuple[int, ...], strides: tuple[int, ...]) -> StridedView:
    """The same memory seen in another shape."""
    return replace(view, shape=shape, strides=strides)


def _hints(schedule: Schedule) -> dict[tuple[Buffer, int], str]:
    """Names for addresses: of the first value that is there."""
    hints: dict[tuple[Buffer, int], str] = {}
    for node, view in schedule.views.items():
        hints.setdefault((view.buffer, view.offset), node.name)
    return hints


def comment_of(step: Step) -> str:
    """name = op: shape, and the user's line."""
    line = step.node.meta.get("stack_trace")
    return f"{step.node.name} : {step.plan.meta}" + (f"  {line}" if line else "")
