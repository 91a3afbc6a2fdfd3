"""A small vocabulary for writing vector code in LLVM IR from Python.

A numba intrinsic emits instructions into the function that is being compiled. `VectorEmitter` gives
those instructions short names for one element type and vector width. Addresses and strides are
integers in bytes, so that any layout (also transposed, reversed, broadcast, unaligned) is just a
number.

Every intrinsic has a *twin*, the same thing in a few lines of NumPy: what it means, and what runs
with NUMBA_DISABLE_JIT=1.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tinytorch.dtypes import Array
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.library import JIT

Value = Any
"""An LLVM value (llvmlite has no type annotations)."""

_alloca: Any = cgutils.alloca_once

I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))

AHEAD = 6144
"""Bytes by which memory is asked for ahead of its use: at 30 GB/s what comes in 200 ns."""


# Functions of numba that have no type annotations.
_unpack: Callable[..., Any] = cgutils.unpack_tuple
_declare: Callable[..., Any] = cgutils.get_or_insert_function
_star_arguments: Callable[..., Any] = types.StarArgTuple


def i64(value: int) -> Value:
    """A 64-bit integer constant."""
    return ir.Constant(I64, value)


def vector_intrinsic(twin: Callable[..., None]) -> Callable[[Callable[..., None]], Any]:
    """Make a function that emits LLVM IR callable from kernels.

        @vector_intrinsic(twin)
        def name(e: VectorEmitter, x: Value, y: Value) -> None: ...

        name(np.float32, x, y)          # in a kernel; x and y are integers, or records of them

    Args:
        twin: twin(dtype, x, y) does the same in NumPy, and takes over when the JIT is disabled.
    """

    def declare(emit: Callable[..., None]) -> Any:
        if not JIT:
            return twin

        @intrinsic
        def call(typing_context: Any, dtype: Any, *arguments: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                e = VectorEmitter(builder, dtype.dtype, host_vector_unit().register_bytes)
                given = zip(arguments, _unpack(builder, values[1]), strict=True)
                emit(e, *(_as_record(builder, kind, value) for kind, value in given))
                return context.get_dummy_value()

            return types.void(dtype, _star_arguments(arguments)), generate

        return call

    return declare


def _as_record(builder: Any, kind: Any, value: Any) -> Any:
    """The value of an argument; of a NamedTuple the same of its fields' values."""
    is_record = isinstance(kind, types.BaseNamedTuple)
    return kind.instance_class(*_unpack(builder, value)) if is_record else value


def _emit_address(typing_context: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        return builder.ptrtoint(array.data, I64)

    return types.intp(x), generate


def _address_twin(x: Array) -> int:
    return x.ctypes.data


_address: Any = intrinsic(_emit_address) if JIT else _address_twin
address: Callable[[Array], int] = _address
"""address(x): where the first element of an array lies."""


def memory(
    dtype: type[np.generic], address: int, shape: tuple[int, ...], strides: tuple[int, ...] = ()
) -> Array:
    """The memory at an address as an array: what twins read and write.

    Args:
        address: of the element with all indices zero.
        shape, strides: as NumPy has them, strides in bytes; the last stride may be left out where
            elements are adjacent.
    """
    if 0 in shape:
        return np.empty(shape, dtype)
    itemsize = np.dtype(dtype).itemsize
    strides = strides if len(strides) == len(shape) else (*strides, itemsize)
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    size = high - low + itemsize
    raw: Any = (ctypes.c_char * size).from_address(int(address + low))
    return np.ndarray(shape, dtype, raw, int(-low), strides)


def _as_written(module: Value) -> Value:
    """Metadata for a loop that LLVM is to leave as it is.

    It would do two rounds of most in one and add one for what is left: three copies, seldom any
    faster, to compile.
    """
    loop = module.add_metadata([module.add_metadata(["llvm.loop.unroll.disable"])])
    if loop.operands[0] is not loop:
        loop.operands = (loop, *loop.operands)  # itself first: so LLVM knows it as a loop's
    return loop


class VectorEmitter:
    """Emits instructions on vectors of one floating-point type.

    Args:
        builder: the llvmlite IRBuilder of the function being compiled.
        dtype: numba's float32 or float64.
        register_bytes: bytes of one vector.
    """

    def __init__(self, builder: Value, dtype: Any, register_bytes: int) -> None:
        self.builder = builder
        self.dtype = dtype
        self.element = {4: ir.FloatType(), 8: ir.DoubleType()}[dtype.bitwidth // 8]
        self.itemsize = dtype.bitwidth // 8
        self.register_bytes = register_bytes
        self.lanes = register_bytes // self.itemsize
        self.vector = ir.VectorType(self.element, self.lanes)
        self.mask = ir.VectorType(I1, self.lanes)
        self.zeros = self.constant(0.0)
        self.suffix = f"v{self.lanes}f{dtype.bitwidth}"

    def narrowed(self, register_bytes: int) -> VectorEmitter:
        """An emitter in the same place for vectors of at most so many bytes."""
        return VectorEmitter(self.builder, self.dtype, min(register_bytes, self.register_bytes))

    # -- integers and addresses -------------------------------------------------------------------

    def add(self, x: Value, y: Value | int) -> Value:
        """Integer x + y."""
        return self.builder.add(x, i64(y) if isinstance(y, int) else y)

    def mul(self, x: Value, y: int) -> Value:
        """Integer x * y with a constant y; no instruction for 0 and 1."""
        if y == 0:
            return i64(0)
        return x if y == 1 else self.builder.mul(x, i64(y))

    def opaque(self, x: Value) -> Value:
        """x, with its origin hidden from LLVM's optimizer (an empty piece of assembly)."""
        kind = ir.FunctionType(x.type, [x.type])
        return self.builder.asm(kind, "", "=r,0", [x], side_effect=False)

    def pointer(self, address: Value) -> Value:
        """A byte pointer from an integer address."""
        return self.builder.inttoptr(address, I8.as_pointer())

    def at(self, pointer: Value, offset: Value | int) -> Value:
        """The pointer `offset` bytes further on."""
        return self.builder.gep(pointer, [i64(offset) if isinstance(offset, int) else offset])

    # -- memory -----------------------------------------------------------------------------------

    def load_scalar(self, pointer: Value, kind: Value = None) -> Value:
        """Load one element (or a value of the LLVM type `kind`) from memory."""
        typed = self.builder.bitcast(pointer, (kind or self.element).as_pointer())
        return self.builder.load(typed, align=1)

    def store_scalar(self, value: Value, pointer: Value) -> None:
        """Store one element to memory."""
        self.builder.store(value, self.builder.bitcast(pointer, value.type.as_pointer()), align=1)

    def load(self, pointer: Value, mask: Value = None) -> Value:
        """A vector from memory; lanes outside the mask are not touched and read as zero."""
        typed = self.builder.bitcast(pointer, self.vector.as_pointer())
        if mask is None:
            return self.builder.load(typed, align=1)
        arguments = [typed, ir.Constant(I32, 1), mask, self.zeros]
        return self.call(f"masked.load.{self.suffix}.p0", self.vector, arguments)

    def stream(self, value: Value, pointer: Value) -> None:
        """A vector to memory and past the caches, to an address that is aligned to vectors.

        The lines that it fills are not read first, and take the place of none in a cache: for
        results so large that a cache would not keep them.
        """
        typed = self.builder.bitcast(pointer, self.vector.as_pointer())
        stored = self.builder.store(value, typed, align=self.register_bytes)
        yes = self.builder.module.add_metadata([ir.Constant(I32, 1)])
        stored.set_metadata("nontemporal", yes)

    def store(self, value: Value, pointer: Value, mask: Value = None) -> None:
        """A vector to memory; lanes outside the mask are not written."""
        typed = self.builder.bitcast(pointer, self.vector.as_pointer())
        if mask is None:
            self.builder.store(value, typed, align=1)
            return
        if host_vector_unit().has_masks:
            arguments = [value, typed, ir.Constant(I32, 1), mask]
            self.call(f"masked.store.{self.suffix}.p0", ir.VoidType(), arguments)
            return
        bits = self.builder.bitcast(mask, ir.IntType(self.lanes))
        self._store_lanes(value, pointer, bits, 0, self.lanes)

    def _store_lanes(self, value: Value, pointer: Value, bits: Value, at: int, count: int) -> None:
        """`count` lanes from `at` on as one store if the bits of all are set, else by halves.

        Without registers for masks, a masked store of vectors takes a core of AMD 12 cycles and
        more, also where all lanes are stored.
        """
        build, place = self.builder, self.at(pointer, at * self.itemsize)
        wanted = ir.Constant(bits.type, ((1 << count) - 1) << at)
        are_set = build.icmp_unsigned("==", build.and_(bits, wanted), wanted)
        with build.if_else(are_set) as (whole, halves):
            with whole:
                part = self.shuffle(value, value, range(at, at + count))
                if count == 1:
                    part = build.extract_element(value, ir.Constant(I32, at))
                self.store_scalar(part, place)
            with halves:
                for first in range(at, at + count, max(count // 2, 1)) if count > 1 else ():
                    self._store_lanes(value, pointer, bits, first, count // 2)

    def places(self, count: int) -> list[Value]:
        """Pointers to memory of this call's own for so many vectors, one after the other."""
        memory = self.builder.bitcast(_alloca(self.builder, self.vector, count), I8.as_pointer())
        return [self.at(memory, i * self.register_bytes) for i in range(count)]

    def store_first(self, rows: Sequence[Value], pointer: Value, stride: Value, n: Value) -> None:
        """The first `n` lanes of each vector to a row of memory; `stride` is from row to row.

        Without registers for masks, single elements: as many parts as `store` makes of each vector
        would take longer to compile than all else in a kernel.
        """
        targets = [self.at(pointer, self.mul(stride, r)) for r in range(len(rows))]
        if host_vector_unit().has_masks:
            for row, target in zip(rows, targets, strict=True):
                self.store(row, target, self.first_lanes(n))
            return
        is_all = self.builder.icmp_signed("==", n, i64(self.lanes))
        with self.builder.if_else(is_all) as (whole, part):
            with whole:
                for row, target in zip(rows, targets, strict=True):
                    self.store(row, target)
            with part:
                held = self.places(len(rows))
                for row, place in zip(rows, held, strict=True):
                    self.store(row, place)

                def element(state: list[Value]) -> list[Value]:
                    self.store_scalar(self.load_scalar(state[0]), state[1])
                    return [self.at(place, self.itemsize) for place in state]

                def row_of(state: list[Value]) -> list[Value]:
                    self.loop(n, state, element)
                    return [self.at(state[0], self.register_bytes), self.at(state[1], stride)]

                self.loop(i64(len(rows)), [held[0], pointer], row_of)

    def prefetch(self, pointer: Value, write: bool = False, level: int = 1) -> None:
        """Ask for the cache line at an address, into the cache of a level; any address will do."""
        arguments = [pointer, *(ir.Constant(I32, int(n)) for n in (write, 4 - level, 1))]
        self.call("prefetch.p0", ir.VoidType(), arguments)

    def far_ahead(self, pointer: Value, nbytes: Value, least: int = AHEAD) -> Value:
        """Where memory is asked for: `nbytes`, those of a tile, further on, and at least so many.

        The rows of a tile lie one after the other and are read side by side, which the processor's
        prefetchers do not foresee; the tiles together are one stream.
        """
        is_short = self.builder.icmp_signed("<", nbytes, i64(least))
        return self.at(pointer, self.builder.select(is_short, i64(least), nbytes))

    def ask_ahead(self, pointer: Value, nbytes: int, level: int = 1) -> Value:
        """Ask for so many bytes, into the cache of a level; the pointer after them."""
        for line in range(0, max(nbytes, 64), 64):
            self.prefetch(self.at(pointer, line), level=level)
        return self.at(pointer, nbytes)

    # -- vectors ----------------------------------------------------------------------------------

    def splat(self, scalar: Value) -> Value:
        """A vector whose lanes are all one scalar (a broadcast instruction)."""
        undefined = ir.Constant(ir.VectorType(scalar.type, self.lanes), ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
        return self.shuffle(first, undefined, [0] * self.lanes)

    def constant(self, value: float) -> Value:
        """A vector whose lanes are all one constant."""
        return ir.Constant(self.vector, [float(value)] * self.lanes)

    def shuffle(self, x: Value, y: Value, lanes: Sequence[int]) -> Value:
        """Lane i of the result is lane lanes[i] of x followed by y."""
        indices = ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))
        return self.builder.shuffle_vector(x, y, indices)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """x * y + z with one rounding."""
        return self.call(f"fma.{self.suffix}", self.vector, [x, y, z])

    def floor(self, relu: Value) -> Value:
        """The lower bound of results (a scalar): 0 if relu is set, otherwise minus infinity."""
        low = ir.Constant(self.element, float("-inf"))
        is_set = self.builder.icmp_signed("!=", relu, i64(0))
        return self.builder.select(is_set, ir.Constant(self.element, 0.0), low)

    def at_least(self, x: Value, low: Value) -> Value:
        """max(x, low) of scalars or lane by lane; NaN in x stays NaN."""
        return self.builder.select(self.builder.fcmp_ordered("<", x, low), low, x)

    def sums(self, vectors: Sequence[Value | None]) -> Value:
        """Lane i of the result is the sum of the lanes of vectors[i] (whatever, where None).

        Halves are added, then quarters, ...: in each round two vectors become one.
        """
        tree = list(vectors) + [None] * (self.lanes - len(vectors))
        size = self.lanes // 2
        while size:
            own = [i if not i & size else self.lanes + i - size for i in range(self.lanes)]
            far = [i + size if not i & size else self.lanes + i for i in range(self.lanes)]
            for i in range(size):
                x, y = tree[i], tree[i + size]
                if y is not None:
                    x = y if x is None else x
                    tree[i] = self.builder.fadd(self.shuffle(x, y, own), self.shuffle(x, y, far))
                elif x is not None:
                    tree[i] = self.builder.fadd(x, self.shuffle(x, x, far))
            size //= 2
        return tree[0]

    def folded(self, x: Value, combine: Callable[[Value, Value], Value]) -> Value:
        """All lanes combined into one scalar: halves, then quarters, ..."""
        lanes = self.lanes
        while lanes > 1:
            lanes //= 2
            upper = self.shuffle(x, x, range(lanes, 2 * lanes))
            x = combine(self.shuffle(x, x, range(lanes)), upper)
        return self.builder.extract_element(x, ir.Constant(I32, 0))

    def vectors_of(self, count: Value) -> tuple[Value, Value]:
        """Of `count` elements how many vectors are before the last, and the mask of the last."""
        whole = self.builder.sdiv(self.add(count, -1), i64(self.lanes))
        return whole, self.first_lanes(self.builder.sub(count, self.mul(whole, self.lanes)))

    def first_lanes(self, count: Value | int) -> Value:
        """The mask of lanes 0 .. count-1; count may be below 0 or above the number of lanes."""
        indices = ir.Constant(ir.VectorType(I32, self.lanes), list(range(self.lanes)))
        if isinstance(count, int):
            return ir.Constant(self.mask, [int(i < count) for i in range(self.lanes)])
        bound = self.splat(self.builder.trunc(count, I32))
        return self.builder.icmp_signed("<", indices, bound)

    def call(self, name: str, result: Value, arguments: list[Value]) -> Value:
        """Call LLVM's intrinsic of that name."""
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        module = self.builder.module
        function = _declare(module, kind, f"llvm.{name}")
        return self.builder.call(function, arguments)

    # -- control flow -----------------------------------------------------------------------------

    def loop(
        self,
        count: Value,
        initial: Sequence[Value],
        body: Callable[[list[Value]], list[Value]],
        unroll: bool = False,
    ) -> list[Value]:
        """Run `body` count times on values that stay in registers.

        Args:
            count: number of rounds; zero or less gives back `initial`.
            initial: the values before the first round.
            body: emits one round; from the values before it to the values after it.
            unroll: whether LLVM may make one round of several, if it thinks that this pays.

        Returns:
            The values after the last round.
        """
        build = self.builder
        before = build.block
        head, after = build.append_basic_block("loop"), build.append_basic_block("after")
        build.cbranch(build.icmp_signed(">", count, i64(0)), head, after)
        build.position_at_end(head)
        state = [build.phi(value.type) for value in (count, *initial)]
        following = [build.sub(state[0], i64(1)), *body(state[1:])]
        tail = build.block
        again = build.cbranch(build.icmp_signed(">", following[0], i64(0)), head, after)
        if not unroll:
            again.set_metadata("llvm.loop", _as_written(build.module))
        for phi, first, later in zip(state, (count, *initial), following, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(later, tail)
        build.position_at_end(after)
        return self._merge(before, initial, tail, following[1:])

    def either(
        self, condition: Value, yes: Callable[[], list[Value]], no: Callable[[], list[Value]]
    ) -> list[Value]:
        """The values of `yes` where the condition holds, otherwise those of `no`."""
        build = self.builder
        with build.if_else(condition) as (then, otherwise):
            with then:
                left, after_yes = yes(), build.block
            with otherwise:
                right, after_no = no(), build.block
        return self._merge(after_yes, left, after_no, right)

    def _merge(
        self, left: Value, x: Sequence[Value], right: Value, y: Sequence[Value]
    ) -> list[Value]:
        """x when coming from the block `left`, y when coming from `right` (phi nodes)."""
        merged = [self.builder.phi(value.type) for value in x]
        for phi, one, other in zip(merged, x, y, strict=True):
            phi.add_incoming(one, left)
            phi.add_incoming(other, right)
        return merged

    def switch(self, value: Value, cases: Mapping[int, Callable[[], None]]) -> None:
        """A jump table: run the case that equals `value`, or nothing."""
        build = self.builder
        end = build.append_basic_block("end")
        table = build.switch(value, end)
        for number, emit in cases.items():
            block = build.append_basic_block("case")
            table.add_case(i64(number), block)
            build.position_at_end(block)
            emit()
            build.branch(end)
        build.position_at_end(end)


def _fence_twin(dtype: Any, is_needed: int) -> None:
    """NumPy's stores are seen in their order."""


@vector_intrinsic(_fence_twin)
def fence(e: VectorEmitter, is_needed: Value) -> None:
    """Wait, if `is_needed` is not 0, until what went past the caches (`VectorEmitter.stream`) is
    where other threads see it: what this one stores afterwards may be seen before it."""
    with e.builder.if_then(e.builder.icmp_signed("!=", is_needed, i64(0))):
        e.builder.fence("seq_cst")
