"""Native code: a schedule as one function that numba compiles, over the kernel library's symbols.

The source is Python that can be read: a call of a C symbol for every heavy op, and a call of a
generated loop for elementwise ones. Compiled once, it is kept on disk for other processes.

    schedule = schedule_traced(traced, keeps=native.keeps)
    if not native.unsupported(schedule):
        run = native.build(schedule)
        results = run(values)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from tinytorch.backends.optimized import threads
from tinytorch.backends.optimized.gemm import SCRATCH_BYTES
from tinytorch.backends.optimized.library import JIT, compile_source, kernel
from tinytorch.backends.optimized.llvm import address
from tinytorch.backends.optimized.symbols.views import words
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.graph.compiler import native_groups, native_ops, native_passes  # noqa: F401
from tinytorch.graph.compiler.native_code import Code, Unsupported, Word, comment_of
from tinytorch.graph.compiler.native_loops import Loop, emit
from tinytorch.graph.compiler.places import Buffer, Memory, Place
from tinytorch.graph.compiler.schedule import Input, Role, Schedule
from tinytorch.graph.ir import Node
from tinytorch.graph.memory import ALIGNMENT
from tinytorch.op import Op

PASSES = ("pool_before_relu", "native_fusion", "early_updates")
"""Passes to run after all others."""


def keeps(node: Node) -> bool:
    """Whether native code runs a fused op as a whole."""
    body = native_groups.body_of(node.target)
    return body is not None or native_ops.knows(node.target.name)


def unsupported(schedule: Schedule) -> list[tuple[Node, str]]:
    """The steps for which there is no native code, and why."""
    return _write(schedule, parallel=False)[1]


def build(schedule: Schedule) -> NativeProgram:
    """Compile a schedule.

    Raises:
        Unsupported: `unsupported(schedule)` is not empty.
    """
    return NativeProgram(schedule)


def _write(schedule: Schedule, parallel: bool) -> tuple[Code, list[tuple[Node, str]]]:
    """The code of a schedule, and the steps that it lacks."""
    code, lacking = Code(schedule, parallel), []
    pending: Loop | None = None
    steps = deque(schedule.steps)
    while steps:
        step = steps.popleft()
        try:
            loop = native_ops.loop_of(step)
            if loop is not None:
                loop.comments = [comment_of(step)]
                loop.nodes = [(step.node, step.output)]
                if pending is not None and pending.takes(loop):
                    pending.append(loop)
                    continue
            _finish(code, pending)
            pending = loop
            if loop is not None:
                code.name_output(step)
                continue
            code.begin(step)
            if steps and native_ops.write_both(code, step, steps[0]):
                steps.popleft()
            else:
                native_ops.write(code, step)
        except Unsupported as reason:
            lacking.append((step.node, str(reason)))
    _finish(code, pending)
    return code, lacking


def _finish(code: Code, loop: Loop | None) -> None:
    if loop is not None:
        loop.forget(_is_needed)
        emit(code, loop)


def _is_needed(node: Node, inside: set[Node]) -> bool:
    """Something outside of these nodes uses the value, perhaps through a view."""
    for user in node.users:
        is_view = isinstance(user.target, Op) and user.target.view
        if user.op == "output" or (user not in inside and not is_view):
            return True
        if is_view and _is_needed(user, inside):
            return True
    return False


class _Frame:
    """What one call that is under way needs: memory, and the table of addresses.

    Attributes:
        table: the words that the code reads.
        seen: the arrays whose addresses stand in the table, by input.
    """

    def __init__(self, code: Code, scratch_threads: int) -> None:
        schedule = code.schedule
        nbytes = code.arena_bytes + ALIGNMENT + scratch_threads * SCRATCH_BYTES
        self.memory = np.empty(nbytes + ALIGNMENT, np.uint8)
        arena = self.memory.ctypes.data
        arena += -arena % ALIGNMENT
        scratch = arena + code.arena_bytes + -code.arena_bytes % ALIGNMENT
        self.table = np.zeros(max(len(code.words), 1), np.int64)
        self.words = memoryview(self.table)  # type: ignore[arg-type]
        self.address = self.table.ctypes.data
        self.seen: dict[int, Any] = {}
        self.numbers = {
            i: np.zeros(1, each.meta.dtype.dtype)
            for i, each in enumerate(schedule.inputs)
            if each.role.is_number
        }
        self.threads = list(code.words).index("threads") if "threads" in code.words else -1
        for position, word in enumerate(code.words.values()):
            self.table[position] = self._fixed(word, code, arena, scratch)

    def _fixed(self, word: Word, code: Code, arena: int, scratch: int) -> int:
        """The value of a word that is the same in every call, otherwise 0."""
        if word.kind == "array":
            return int(code.arrays[word.index].ctypes.data)
        if word.kind == "number":
            return word.index
        if word.kind == "scratch":
            return scratch
        if word.buffer is None:
            return 0
        if word.buffer.memory is Memory.ARENA:
            return arena + word.offset
        if word.buffer.memory is Memory.CONSTANT:
            return int(code.schedule.constants[word.buffer.index].ctypes.data) + word.offset
        if word.buffer.memory is Memory.INPUT and word.buffer.index in self.numbers:
            return int(self.numbers[word.buffer.index].ctypes.data)
        return 0


class NativeProgram:
    """A schedule as machine code.

    A call takes one value for each input of the schedule, arrays in C order or, for seeds and
    learning rates, numbers; it updates `schedule.written` in place and returns an array for each of
    `schedule.returns`. Several threads may call at once: each call under way has memory of its own.

    Attributes:
        source: the generated code: loops, then the function that calls them.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._threads = threads.get_num_threads()
        code, lacking = _write(schedule, parallel=self._threads > 1)
        if lacking:
            reasons = "; ".join(f"{node.name}: {reason}" for node, reason in lacking)
            raise Unsupported(f"no native code for {len(lacking)} steps: {reasons}")
        text = code.source()
        self.source = "\n\n".join([*code.sources.values(), text])
        self._code = code
        self._is_parallel = "threads" in code.words
        if self._is_parallel:
            threads.launch()
        self._step = _compiled("step", text, {"words": words, **code.functions}, (types.int64,))
        self._frames: deque[_Frame] = deque()
        slots = _slots(code)
        roles = [each.role for each in schedule.inputs]
        self._arrays = [
            (
                buffer.index, slots[buffer], roles[buffer.index] is Role.STATE,
                _address_of(schedule.inputs[buffer.index]),
            )
            for buffer in slots
            if buffer.memory is Memory.INPUT and not roles[buffer.index].is_number
        ]  # fmt: skip
        self._own = [
            (
                meta.shape,
                meta.dtype.dtype,
                slots.get(Buffer(Memory.OWN, i), []),
                _quick_address(meta),
            )
            for i, meta in enumerate(schedule.own)
        ]
        self._returns = [schedule.places[node] for node in schedule.returns]

    def __call__(self, values: Sequence[Any]) -> list[Array]:
        """Run it.

        Raises:
            IndexError: an index or label is out of range.
        """
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = _Frame(self._code, self._threads)
        table, seen = frame.words, frame.seen
        for i, slots, is_state, address_of in self._arrays:
            array = values[i]
            if seen.get(i) is array:
                continue
            start = address_of(array)
            for position, offset in slots:
                table[position] = start + offset
            if is_state:  # the same array in most calls
                seen[i] = array
        for i, cell in frame.numbers.items():
            cell[0] = values[i]
        own = []
        for shape, dtype, slots, address_of in self._own:
            array = np.empty(shape, dtype)
            start = address_of(array)
            for position, offset in slots:
                table[position] = start + offset
            own.append(array)
        if self._is_parallel:
            failure = threads.run_parallel(
                self._run_on, self._run_alone, min(self._threads, threads.get_num_threads()), frame
            )
        else:
            failure = self._step(frame.address)
        self._frames.append(frame)
        if failure:
            name, extent = self._code.failures[failure - 1]
            raise IndexError(f"{name} has an element that is not in 0 .. {extent - 1}")
        return [self._result(place, own, values) for place in self._returns]

    def _run_on(self, count: int, frame: _Frame) -> Any:
        frame.words[frame.threads] = count
        return self._step(frame.address)

    def _run_alone(self, frame: _Frame) -> Any:
        return self._run_on(1, frame)

    @staticmethod
    def _result(place: Place, own: list[Array], values: Sequence[Any]) -> Array:
        """The array that stands at a place of memory that the caller may have."""
        memory: Array = (own if place.buffer.memory is Memory.OWN else values)[place.buffer.index]
        if memory.shape == place.shape and memory.strides == place.strides and not place.offset:
            return memory
        return np.ndarray(place.shape, place.dtype.dtype, memory, place.offset, place.strides)


def _slots(code: Code) -> dict[Buffer, list[tuple[int, int]]]:
    """For each buffer that changes from call to call: words of the table, and offsets."""
    slots: dict[Buffer, list[tuple[int, int]]] = {}
    for position, word in enumerate(code.words.values()):
        if word.buffer is not None and word.buffer.memory in (Memory.INPUT, Memory.OWN):
            slots.setdefault(word.buffer, []).append((position, word.offset))
    return slots


def _compiled(name: str, source: str, names: dict[str, Any], signature: tuple[Any, ...]) -> Any:
    function = compile_source(name, source, names)
    return function.compile(signature) if JIT else function


def _address_of(each: Input) -> Callable[[Array], int]:
    """A function that gives the address of an input's array."""
    return _slow_address if each.role is Role.STATE else _quick_address(each.meta)


def _slow_address(x: Array) -> int:
    # costs microseconds; the arrays of parameters are the same in nearly every call
    start: int = x.__array_interface__["data"][0]
    return start


@cache
def _quick_address(meta: TensorMeta) -> Callable[[Array], int]:
    """The same, compiled for one dtype and number of dimensions."""
    if not JIT:
        return address
    kind = types.Array(from_dtype(meta.dtype.dtype), meta.ndim, "A")
    compiled: Any = kernel(_address)
    entry: Callable[[Array], int] = compiled.compile((kind,))
    return entry


def _address(x: Array) -> int:
    return address(x)
