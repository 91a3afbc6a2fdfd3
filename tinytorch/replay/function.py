"""`replayed`: a function that counts its calls, and runs a program for those that are frequent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

from tinytorch import backends, dtype_rules, history, ops, shapes, tensor_class
from tinytorch.backends.base import ComputeBackend
from tinytorch.dispatch import apply, is_tensor, wrap
from tinytorch.dtypes import DType, TensorMeta
from tinytorch.history import Record, write_clock
from tinytorch.op import Op
from tinytorch.replay.fusion import is_light
from tinytorch.replay.program import compile_trace
from tinytorch.replay.trace import NotReplayable, Trace
from tinytorch.state import STATE, State, StateContext, is_grad_enabled
from tinytorch.tensor_class import SCALAR_TYPES

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

HOT = 32  # calls of one kind before a program is made, which takes about as long as so many calls
LARGEST = 2**16  # bytes of a tensor: on larger ones the time is in the kernels, not between them,
# so that a program pays only where it has other kernels: fewer, by fusion, or views alone
PROGRAMS = 4096  # kinds of calls that a backend remembers

_new: Any = object.__new__


class _Program:
    """What one kind of calls runs.

    Attributes:
        run: takes the arrays of the tensor arguments, gives that of the result.
        meta: of the result.
        op: the row of its record: its gradient is the second program. None if none is recorded.
        saved: for each tensor argument, whether its gradient reads it.
    """

    __slots__ = ("meta", "metas", "op", "run", "saved")

    def __init__(
        self,
        run: Any,
        metas: tuple[TensorMeta, ...],
        meta: TensorMeta,
        op: Op | None,
        saved: tuple[bool, ...],
    ) -> None:
        self.run, self.metas, self.meta, self.op, self.saved = run, metas, meta, op, saved


class _Several:
    """What calls run whose result is several tensors, none of which is recorded.

    Attributes:
        run: takes the arrays of the tensor arguments, gives those of the results.
        metas: of the results.
        make: the tuple, or what the function returns, from an iterable.
    """

    __slots__ = ("make", "metas", "run")

    def __init__(self, run: Any, metas: tuple[TensorMeta, ...], make: Any) -> None:
        self.run, self.metas, self.make = run, metas, make

    def wrapped(self, arrays: Any) -> Any:
        """The results as the function returns them."""
        if type(arrays) is not tuple:
            arrays = (arrays,)
        return self.make([wrap(a, meta) for a, meta in zip(arrays, self.metas, strict=True)])


def replayed(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Call only the kernels of a function that is called often with tensors of the same shapes.

    The function takes tensors, numbers, strings and tuples of whole numbers, and returns a tensor
    that it computed by ops. Which ops these are must follow from the shapes, dtypes and numbers.
    """

    @wraps(function)
    def call(*args: Any, **options: Any) -> Tensor:
        state = STATE.get()
        if state.mode is not None:
            return function(*args, **options)
        programs = (state.backend or backends.current or backends.default()).programs
        if programs is None:
            return function(*args, **options)
        try:
            if len(args) == 1 and not options:
                (a,) = args
                tensors: Any = args
                key: Any = (function, state.grad, a.meta, a._requires_grad)
            else:
                tensors, key = _key(function, state.grad, args, options)
            program = programs.get(key)
        except (AttributeError, TypeError):  # a list, an array: what has no key
            program = False
        if type(program) is not _Program:
            if program is False:
                return function(*args, **options)
            if type(program) is _Several:
                arrays = program.run(*[t._data for t in tensors])
                return function(*args, **options) if arrays is None else program.wrapped(arrays)
            return _called(function, key, program or 0, state, args, options)
        result = program.run(*[t._data for t in tensors])
        if result is None:
            return function(*args, **options)
        out = _new(tensor_class.tensor_class)
        out._data = result
        out.meta = program.meta
        out.grad = None
        op = program.op
        if op is None:
            out._requires_grad = False
            out.history = None
            return out  # type: ignore[no-any-return]
        out._requires_grad = True
        out.history = record = _new(Record)
        record.op = op
        record.params = {}
        record.edges = tuple([t.history or (t if t._requires_grad else None) for t in tensors])
        record.inputs = tuple(
            [t if s else None for t, s in zip(tensors, program.saved, strict=True)]
        )
        record.metas = program.metas
        record.meta = program.meta
        record.output = None
        record.clock = write_clock.now
        record.hooks = None
        return out  # type: ignore[no-any-return]

    call.replayed = function  # type: ignore[attr-defined]
    return call


def replay_all(functions: dict[str, Any], names: str, module: str) -> None:
    """Put `replayed(f)` in the place of each function `f` of these names.

    Args:
        functions: by name; a module's `globals()`, for example.
        module: in which they are found by their names, when one is unpickled.
    """
    for name in names.split():
        functions[name] = replayed(functions[name])
        functions[name].__module__ = module


def _key(
    function: Any, recording: bool, args: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[list[Any], tuple[Any, ...]]:
    """The tensors among the arguments, and what their program depends on."""
    tensors: list[Any] = []
    key: list[Any] = [function, recording]
    for a in args:
        _enter(a, tensors, key)
    for name, a in options.items():
        key.append((name,))  # unlike a string among the arguments
        _enter(a, tensors, key)
    return tensors, tuple(key)


def _enter(a: Any, tensors: list[Any], key: list[Any]) -> None:
    kind = type(a)
    if kind in SCALAR_TYPES:
        key += (kind, a or str(a))  # 0.0 and -0.0 are equal
    elif (
        a is None
        or kind is str
        or kind is DType
        or (kind is tuple and all([type(n) is int for n in a]))
    ):
        key.append(a)
    else:
        key += (a.meta, a._requires_grad)
        tensors.append(a)


def _called(function: Any, key: Any, calls: int, state: State, args: Any, options: Any) -> Tensor:
    """Run the function itself, and make a program for such calls when there were enough."""
    result = function(*args, **options)
    backend = state.backend or backends.default()
    programs = backend.programs
    assert programs is not None
    if len(programs) >= PROGRAMS:
        programs.clear()
    sizes = [t.meta.nbytes for t in (*args, *options.values(), result) if is_tensor(t)]
    largest = max(sizes, default=0)
    if calls < HOT:  # a call on large arrays takes as long as many others
        programs[key] = calls + 1 + largest // LARGEST
        return result  # type: ignore[no-any-return]
    programs[key] = False  # while it is made, and where it cannot be
    with suppress(Exception):  # it did run; so whatever it is, a trace is not possible
        programs[key] = make_program(function, backend, args, options, largest > LARGEST)
    return result  # type: ignore[no-any-return]


def make_program(
    function: Callable[..., Tensor],
    backend: ComputeBackend,
    args: tuple[Any, ...],
    options: Mapping[str, Any],
    must_be_light: bool = False,
) -> Any:
    """The program for calls with arguments like these.

    Args:
        must_be_light: the arrays are large, so the gradient must not do much work a second time.

    Raises:
        NotReplayable: a trace would not hold for the next call.
    """
    trace = Trace()
    try:
        return _program_of(trace, function, backend, args, options, must_be_light)
    finally:
        trace.clear()


def _program_of(
    trace: Trace,
    function: Callable[..., Tensor],
    backend: ComputeBackend,
    args: tuple[Any, ...],
    options: Mapping[str, Any],
    must_be_light: bool,
) -> Any:
    given = [*args, *options.values()]
    places = [i for i, a in enumerate(given) if is_tensor(a)]
    inputs = [trace.input(given[i].meta, given[i]._requires_grad) for i in places]
    call = _Call(function, len(args), tuple(options), given, places)
    old = STATE.get()
    with StateContext(State(None, None, backend, old.grad, old.phase)), trace:
        out: Any = call(inputs)
        slots = [t._data.index for t in inputs]
        _check_light(trace, must_be_light, backend)
        if isinstance(out, (tuple, list)):
            return _several(function.__name__, trace, inputs, out, backend)
        if not is_tensor(out):
            raise NotReplayable(f"{function.__name__} returns no tensor")
        result = trace.slot_of(out).index
        root = trace.root(result)
        if any(out is t for t in inputs) or root in slots[1:]:
            raise NotReplayable(f"{function.__name__} returns an argument, or a view of its second")
        run = compile_trace(trace, slots, [result], tuple(trace.guards), backend)
        metas = tuple([t.meta for t in inputs])
        if not out._requires_grad:
            return _Program(run, metas, out.meta, None, ())
        if out.history is None:
            raise NotReplayable(f"{function.__name__} returns a leaf that requires a gradient")
        g = trace.input(out.meta, False)
        leaves = [t for t in inputs if t._requires_grad]
        guards = tuple(trace.guards)
        gradients = history.grad([out], leaves, [g], allow_unused=True)
        _check_light(trace, must_be_light, backend)
        if not set(guards).issuperset(trace.guards):
            raise NotReplayable(f"the gradient of {function.__name__} depends on values")
    found = [t._data.index for t in gradients if t is not None]
    read = {n for step in trace.needed(found) for n in step.reads}
    saved = tuple([n in read for n in slots])
    used = [n for n, s in zip(slots, saved, strict=True) if s]
    back = compile_trace(trace, [g._data.index, *used], found, (), backend) if found else None
    by_leaf = iter(gradients)
    wanted = [t._requires_grad and next(by_leaf) is not None for t in inputs]
    of = [meta if has else None for meta, has in zip(metas, wanted, strict=True)]
    return _Program(run, metas, out.meta, _recorded_op(call, of, back, root == slots[0]), saved)


def _check_light(trace: Trace, must_be_light: bool, backend: ComputeBackend) -> None:
    if must_be_light and not is_light(trace.steps.values(), backend.fusible):
        raise NotReplayable("on large arrays the gradient, by ops run again, costs too much")


def _several(
    name: str, trace: Trace, inputs: Sequence[Tensor], outs: Any, backend: ComputeBackend
) -> _Several:
    if not outs or not all(map(is_tensor, outs)):
        raise NotReplayable(f"{name} returns no tensor")
    if any(t._requires_grad for t in outs) or len({*map(id, outs), *map(id, inputs)}) < len(
        outs
    ) + len(inputs):
        raise NotReplayable(f"{name} returns an argument, or several tensors with gradients")
    slots, results = ([trace.slot_of(t).index for t in tensors] for tensors in (inputs, outs))
    run = compile_trace(trace, slots, results, tuple(trace.guards), backend)
    make = getattr(type(outs), "_make", type(outs))
    return _Several(run, tuple([t.meta for t in outs]), make)


class _Call:
    """A call of a function, with other tensors in the places of its tensors."""

    def __init__(
        self,
        function: Any,
        positional: int,
        names: tuple[str, ...],
        given: Sequence[Any],
        places: Sequence[int],
    ) -> None:
        self.function, self._positional, self._names = function, positional, names
        self._places = places
        self._given = [None if is_tensor(a) else a for a in given]

    def __call__(self, tensors: Sequence[Tensor]) -> Tensor:
        given = list(self._given)
        for place, tensor in zip(self._places, tensors, strict=True):
            given[place] = tensor
        options = dict(zip(self._names, given[self._positional :], strict=True))
        return self.function(*given[: self._positional], **options)  # type: ignore[no-any-return]


def _recorded_op(
    call: _Call, metas: Sequence[TensorMeta | None], back: Callable[..., Any] | None, is_view: bool
) -> Op:
    """A row for the record of a program's result.

    Args:
        call: the function itself.
        metas: for each tensor argument what its gradient is like; None if it has none.
        back: the program of the gradients.
        is_view: the result is one of the first tensor.
    """

    def gradients(g: Tensor, record: Record, output: Any, position: int) -> Any:
        assert record.inputs is not None
        if is_grad_enabled() or STATE.get().mode is not None:
            return _by_ops(call, record, g, metas)
        if back is None:
            return [None] * len(metas)
        arrays = back(g._data, *[t._data for t in record.inputs if t is not None])
        if type(arrays) is not tuple:
            arrays = (arrays,)
        parts = iter(arrays)
        return [None if meta is None else wrap(next(parts), meta) for meta in metas]

    op = Op(call.function.__name__, " ".join(f"x{i}" for i in range(len(metas))), "replayed",
            shapes.broadcast, dtype_rules.numeric, lambda *_: 0, view=is_view)  # fmt: skip
    op.shared_vjp = gradients
    op.vjps = tuple(_part for _ in metas)
    return op


def _part(gradients: list[Any], record: Record, output: Any, position: int) -> Any:
    return gradients[position]


def _by_ops(
    call: _Call, record: Record, g: Tensor, metas: Sequence[TensorMeta | None]
) -> list[Tensor | None]:
    """The gradients by ops, which modes see and which can be differentiated again.

    The function runs once more, on what was saved. What was not saved no gradient depends on:
    zeros take its place.
    """
    recording = is_grad_enabled()
    old = STATE.get()
    assert record.inputs is not None
    with StateContext(State(old.mode, old.below, old.backend, True, old.phase)):
        tensors = []
        for saved, meta, wanted in zip(record.inputs, record.metas, metas, strict=True):
            x = saved
            if x is None:
                x = apply(ops.full, shape=meta.shape, value=meta.dtype.zero, dtype=meta.dtype)
            if wanted is not None:
                x._requires_grad = x._requires_grad or saved is None
                # an identity, so that its gradient is not that of what it was computed from
                x = apply(ops.reshape, x, shape=meta.shape)
            tensors.append(x)
        out = call(tensors)
    leaves = [t for t, wanted in zip(tensors, metas, strict=True) if wanted is not None]
    found = iter(history.grad([out], leaves, [g], create_graph=recording, allow_unused=True))
    return [None if wanted is None else next(found) for wanted in metas]
