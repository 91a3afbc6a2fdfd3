"""`NativeProgram`: compiled code, and how it is called with arrays and numbers.

The code reads addresses from a table. Those of the arena, constants and parameters hardly ever
change; a call writes those that do, and runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import is_, itemgetter
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from tinytorch.backends.optimized.gemm.panels import SCRATCH_BYTES
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.graph.compiler.native.code import Code, Word
from tinytorch.graph.compiler.native.machine_code import MachineCode
from tinytorch.graph.compiler.schedule import Role
from tinytorch.graph.layout import Buffer, Memory, StridedView
from tinytorch.graph.memory import ALIGNMENT
from tinytorch.jit import barrier, threads
from tinytorch.jit.barrier import LINE, barrier_bytes
from tinytorch.jit.blas import find_blas
from tinytorch.jit.library import JIT, compile_source, kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.thread_pool import process_pool, runner
from tinytorch.jit.views import words


class _Slots(NamedTuple):
    """Words of the table that follow the address of one array.

    Attributes:
        number: of the buffer among its kind.
        words: positions in the table, and offsets from the array's address.
        address_of: gives that address.
    """

    number: int
    words: list[tuple[int, int]]
    address_of: Callable[[Array], int]

    def point_to(self, array: Array, table: memoryview) -> None:
        """Write the addresses."""
        start = self.address_of(array)
        for position, offset in self.words:
            table[position] = start + offset


class _Frame:
    """What one call that is under way needs: memory, and the table of addresses.

    Attributes:
        words: the table.
        address: of the table.
        barrier: address of its record, which shares no line of the cache with anything else.
        state: the arrays of parameters and the like whose addresses are in it.
        numbers: for each input that is a number its index, and where the code reads it.
    """

    def __init__(self, code: Code, states: int) -> None:
        nbytes = code.arena_bytes + 2 * ALIGNMENT + code.count * SCRATCH_BYTES
        self._memory = np.empty(nbytes, np.uint8)
        arena = _aligned(self._memory.ctypes.data, ALIGNMENT)
        self._barrier = np.zeros(barrier_bytes(code.count) + LINE, np.uint8)
        self.barrier = _aligned(self._barrier.ctypes.data, LINE)
        scratch = _aligned(arena + code.arena_bytes, ALIGNMENT)
        cells = {
            i: np.zeros(1, each.meta.dtype.dtype)
            for i, each in enumerate(code.schedule.inputs)
            if each.role.is_number
        }
        self.numbers = [(i, memoryview(cell)) for i, cell in cells.items()]  # type: ignore[arg-type]
        self.state: tuple[Array | None, ...] = (None,) * states
        table = np.zeros(max(len(code.words), 1), np.int64)
        for position, word in enumerate(code.words.values()):
            table[position] = _fixed(word, code, arena, scratch, cells)
            if word.kind == "barrier":
                table[position] = self.barrier
        self.words = memoryview(table)  # type: ignore[arg-type]
        self.address: int = table.ctypes.data


def _aligned(address: int, step: int) -> int:
    return address + -address % step


def _fixed(word: Word, code: Code, arena: int, scratch: int, cells: dict[int, Array]) -> int:
    """The value of a word that is the same in every call of a frame, otherwise 0."""
    simple = {"number": word.index, "scratch": scratch + word.index * SCRATCH_BYTES}
    if word.kind in simple:
        return simple[word.kind]
    array = None
    if word.kind == "array":
        array = code.arrays[word.index]
    elif word.buffer is not None:
        memory, index = word.buffer.memory, word.buffer.index
        if memory is Memory.ARENA:
            return arena + word.offset
        if memory is Memory.CONSTANT:
            array = code.schedule.constants[index]
        elif memory is Memory.INPUT:
            array = cells.get(index)
    return 0 if array is None else int(array.ctypes.data) + word.offset


class NativeProgram:
    """A schedule as machine code.

    A call takes one value for each input of the schedule, arrays in C order or, for seeds and
    learning rates, numbers; it updates `schedule.written` in place and returns an array for each of
    `schedule.returns`. Several threads may call at once: each call under way has memory of its own.

    Args:
        code: complete.

    Attributes:
        source: the generated code: loops, then the function that calls them.
    """

    def __init__(self, code: Code) -> None:
        self._code = code
        text = code.source()
        self.source = "\n\n".join([*code.sources.values(), text])
        run = _run_serial if code.count == 1 else partial(_run_parallel, code.count)
        self._run: Callable[[_Frame], int] = run(text, code.functions)
        if code.calls_library:
            self._run = _limited(self._run)
        self._frames: deque[_Frame] = deque()
        schedule, changing = code.schedule, _changing(code)
        state, self._arguments = [], []
        for i, each in enumerate(schedule.inputs):
            views = changing.get(Buffer(Memory.INPUT, i), [])
            if not views or each.role.is_number:
                continue
            if each.role is Role.STATE:  # the same array in nearly every call
                state.append(_Slots(i, views, _slow_address))
            else:
                self._arguments.append(_Slots(i, views, _quick_address_of(each.meta)))
        self._state = state
        self._pick_state = _picker([slots.number for slots in state])
        self._own = [
            (meta, _Slots(i, changing.get(Buffer(Memory.OWN, i), []), _quick_address_of(meta)))
            for i, meta in enumerate(schedule.own)
        ]
        self._returns = [schedule.views[node] for node in schedule.returns]

    def __call__(self, values: Sequence[Any]) -> list[Array]:
        """Run it.

        Raises:
            IndexError: an index or label is out of range.
        """
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = _Frame(self._code, len(self._state))
        table = frame.words
        state = self._pick_state(values)
        if not all(map(is_, state, frame.state)):
            for slots, array in zip(self._state, state, strict=True):
                slots.point_to(array, table)
            frame.state = state
        for slots in self._arguments:
            slots.point_to(values[slots.number], table)
        for i, cell in frame.numbers:
            cell[0] = values[i]
        own = []
        for meta, slots in self._own:
            array = np.empty(meta.shape, meta.dtype.dtype)
            slots.point_to(array, table)
            own.append(array)
        failure = self._run(frame)
        self._frames.append(frame)
        if failure:
            raise self._index_error(*self._code.failures[failure - 1], values)
        return [_array_at(view, own, values) for view in self._returns]

    def _index_error(
        self, name: str, extent: int, view: StridedView | None, values: Sequence[Any]
    ) -> IndexError:
        has = "has an index" if view is None else f"has the index {_outlier(view, extent, values)}"
        return IndexError(f"{name} {has} that is not in 0 .. {extent - 1}")


def _outlier(view: StridedView, extent: int, values: Sequence[Any]) -> int:
    """An index in an input that is out of range."""
    indices = _array_at(view, [], values)
    return int(indices[(indices < 0) | (indices >= extent)][0])


def _array_at(view: StridedView, own: list[Array], values: Sequence[Any]) -> Array:
    """The array that is at a view of memory that the caller may have."""
    memory: Array = (own if view.buffer.memory is Memory.OWN else values)[view.buffer.index]
    if memory.shape == view.shape and memory.strides == view.strides and not view.offset:
        return memory
    return np.ndarray(view.shape, view.dtype.dtype, memory, view.offset, view.strides)


def _picker(indices: list[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that gives these elements of a sequence."""
    if len(indices) > 1:
        return itemgetter(*indices)
    return lambda values: tuple([values[i] for i in indices])


def _changing(code: Code) -> dict[Buffer, list[tuple[int, int]]]:
    """For each buffer that may change from call to call: words of the table, and offsets."""
    found: dict[Buffer, list[tuple[int, int]]] = {}
    for position, word in enumerate(code.words.values()):
        if word.buffer is not None and word.buffer.memory in (Memory.INPUT, Memory.OWN):
            found.setdefault(word.buffer, []).append((position, word.offset))
    return found


def _run_serial(source: str, functions: dict[str, Any]) -> Callable[[_Frame], int]:
    """A function that runs the code on a frame; without the JIT as the Python that it is."""
    if not JIT:
        interpreted = compile_source("step", source, {"words": words, **functions})
        return lambda frame: interpreted(frame.address)
    code, run = MachineCode(source, functions), runner()
    return lambda frame: run(code.address, frame.address)


def _limited(run: Callable[[_Frame], int]) -> Callable[[_Frame], int]:
    """Run code that calls NumPy's library with one thread for that library."""
    blas = find_blas()
    assert blas is not None

    def limited(frame: _Frame) -> int:
        with blas.limited(1):
            return run(frame)

    return limited


def _run_parallel(count: int, source: str, functions: dict[str, Any]) -> Callable[[_Frame], int]:
    """The same, of code for `count` threads, on as many as there may be at the time."""
    code = MachineCode(source, {**functions, **barrier.NAMES})

    def run(frame: _Frame) -> int:
        wanted = min(count, threads.get_num_threads())
        return process_pool().run(wanted, code.address, frame.address, frame.barrier, count)

    return run


def _slow_address(x: Array) -> int:
    start: int = x.__array_interface__["data"][0]
    return start


def _quick_address_of(meta: TensorMeta) -> Callable[[Array], int]:
    return _quick_address(meta.dtype.dtype, meta.ndim)


@cache
def _quick_address(dtype: np.dtype[Any], ndim: int) -> Callable[[Array], int]:
    """The address of an array of one dtype and number of dimensions, in a tenth of the time.

    Machine code of numba stays for good, so it is not made for each shape.
    """
    if not JIT:
        return address
    kind = types.Array(from_dtype(dtype), ndim, "A")
    compiled: Any = kernel(_address)
    entry: Callable[[Array], int] = compiled.compile((kind,))
    return entry


def _address(x: Array) -> int:
    return address(x)
