"""`replayed`: a function that counts its calls, and runs a program for those that are frequent.

The keys of frequent kinds of calls are written out there: a call of `calls.split_of` takes as long
as such a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from tinytorch import backends, tensor_class
from tinytorch.backends.base import ComputeBackend
from tinytorch.dtypes import DType, TensorMeta
from tinytorch.history import Record, write_clock
from tinytorch.op import Op
from tinytorch.replay import no_tensor
from tinytorch.replay.calls import Call, split_of, splits, tensors_of
from tinytorch.replay.fusion import LARGEST
from tinytorch.replay.gradients import Gradients, Several, Traced
from tinytorch.replay.trace import IfReplayable
from tinytorch.state import STATE, State

HOT = 32  # calls of one kind before a program is made, which takes about as long as so many calls
PROGRAMS = 4096  # kinds of calls that a backend remembers

_at_once: ContextVar[bool] = ContextVar("programs_at_once", default=False)

_NO_TENSORS = frozenset((int, tuple, list))
_NO_OPTION = ((None, None),)
_INT = frozenset((int,))  # and nothing equal: True is 1

_new: Any = object.__new__


class _Program:
    """What one kind of calls runs.

    Attributes:
        run: takes the tensors among the arguments, gives the array of the result.
        metas: of the tensors.
        meta: of the result.
        op: the row of its record: its gradient is the second program. None if none is recorded.
        saved: for each tensor, whether its gradient reads it.
        unsaved: None for each tensor, where it reads none of them; otherwise ().
        saves_result: it reads the result.
    """

    __slots__ = ("meta", "metas", "op", "run", "saved", "saves_result", "unsaved")

    def __init__(
        self,
        run: Any,
        metas: tuple[TensorMeta, ...],
        meta: TensorMeta,
        op: Op | None,
        saved: tuple[bool, ...],
        saves_result: bool,
    ) -> None:
        self.run, self.metas, self.meta, self.op, self.saved = run, metas, meta, op, saved
        self.unsaved = () if any(saved) else (None,) * len(metas)
        self.saves_result = saves_result


def replayed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Call only the kernels of a function that is called often with tensors of the same shapes.

    The function takes tensors, numbers, strings, dtypes, and sequences of whole numbers or of
    tensors, and returns a tensor that it computed by ops, or several. Which ops these are must
    follow from the shapes, dtypes and numbers.
    """

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        key: Any = None
        state = STATE.get()
        if state.mode is not None:
            return no_tensor.run(function, args, options)
        programs = (state.backend or backends.current or backends.default()).programs
        if programs is None:
            return no_tensor.run(function, args, options)
        try:
            count = len(args)
            first = args[0]
            if type(first) in _NO_TENSORS:
                kind = type(first)
                pair = args if kind is int else first if count == 1 else ()
                if len(pair) == 2 and len(options) < 2:
                    ((name, value),) = options.items() or _NO_OPTION
                    a, b = pair
                    if type(a) is int:
                        if type(b) is int and (name is None or type(value) is DType):
                            tensors: Any = ()
                            key = (function, state.grad, kind, a, b, name, value)
                    elif name is None or type(value) is int:
                        tensors = pair
                        needs = a._requires_grad, b._requires_grad
                        key = (function, state.grad, kind, a.meta, b.meta, needs, name, value)
            elif options:
                if count == 1 == len(options):
                    ((name, value),) = options.items()
                    if type(value) is int:
                        tensors = args
                        key = (function, state.grad, first.meta, first._requires_grad, name, value)
            elif count == 1:
                tensors = args
                key = (function, state.grad, first.meta, first._requires_grad)
            elif count == 2:
                b = args[1]
                kind = type(b)
                if kind is int or (
                    kind is tuple
                    and (
                        (len(b) == 2 and type(b[0]) is type(b[1]) is int)
                        or _INT.issuperset(map(type, b))
                    )
                ):
                    tensors = (first,)
                    key = (function, state.grad, first.meta, first._requires_grad, b)
                elif kind is type(first):
                    tensors = args
                    needs = first._requires_grad, b._requires_grad
                    key = (function, state.grad, first.meta, b.meta, needs)
            elif count == 3 and type(args[1]) is int:
                _, b, c = args
                kind = type(c)
                if kind is int or (
                    kind is tuple and len(c) == 2 and type(c[0]) is type(c[1]) is int
                ):
                    tensors = (first,)
                    key = (function, state.grad, first.meta, first._requires_grad, b, c)
                elif kind is type(first):
                    tensors = (first, c)
                    needs = first._requires_grad, c._requires_grad
                    key = (function, state.grad, first.meta, c.meta, needs, b)
            elif count == 4 and type(args[1]) is type(args[2]) is type(args[3]) is int:
                tensors = (first,)
                _, b, c, d = args
                key = (function, state.grad, first.meta, first._requires_grad, b, c, d)
            elif count == 5 and type(args[1]) is type(args[2]) is type(args[3]) is int:
                _, b, c, d, e = args
                if type(e) is int:
                    tensors = (first,)
                    key = (function, state.grad, first.meta, first._requires_grad, b, c, d, e)
            if key is None:
                given = args
                if options:
                    given = (*args, *options.values())
                    kinds: Any = (*map(type, given), *options)
                elif count == 2:
                    kinds = (type(first), type(args[1]))
                else:
                    kinds = tuple(map(type, args))
                split = splits.get(kinds) or split_of(kinds)
                tensors, key = split(function, state.grad, *given)
            program = programs.get(key)
        except (AttributeError, IndexError, TypeError):  # an array, a slice: what has no key
            program = False
        if type(program) is not _Program:
            if program is False:
                return no_tensor.run(function, args, options)
            if type(program) is Several:
                arrays = program.run(*tensors)
                if arrays is None:
                    return function(*args, **options)
                return program.wrap(arrays, tensors)
            return _called(function, key, program or 0, state, args, options)
        result = program.run(*tensors)
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
            return out
        out._requires_grad = True
        out.history = record = _new(Record)
        record.op = op
        record.params = {}
        if len(tensors) == 1:
            (t,) = tensors
            record.edges = (t.history or t,)
        else:
            record.edges = tuple([t.history or (t if t._requires_grad else None) for t in tensors])
        record.inputs = program.unsaved or tuple(
            [t if s else None for t, s in zip(tensors, program.saved, strict=True)]
        )
        record.metas = program.metas
        record.meta = program.meta
        record.output = result if program.saves_result else None
        record.clock = write_clock.now
        record.hooks = None
        return out

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


def _called(function: Any, key: Any, calls: int, state: State, args: Any, options: Any) -> Any:
    """Run the function itself, and make a program for such calls when there were enough."""
    result = no_tensor.run(function, args, options)
    backend = state.backend or backends.default()
    programs = backend.programs
    assert programs is not None
    results = result if type(result) in (tuple, list) else (result,)
    sizes = [t.meta.nbytes for t in tensors_of((*args, *options.values(), results))]
    largest = max(sizes, default=0)
    calls = next_count(programs, key, calls, largest)
    if not calls:
        programs[key] = False  # while it is made, and where it cannot be
        with IfReplayable(function.__name__):
            programs[key] = make_program(function, backend, args, options, largest > LARGEST)
    return result


@contextmanager
def programs_at_once() -> Iterator[None]:
    """Make a program at the first call of each kind, for a step that is known to be repeated.

    So loops are compiled now, and do not hold up one of the steps to come.
    """
    token = _at_once.set(True)
    try:
        yield
    finally:
        _at_once.reset(token)


def next_count(programs: dict[Any, Any], key: Any, calls: int, largest: int) -> int:
    """Count a call on tensors of up to so many bytes; 0 if it is time for a program."""
    if calls >= HOT or _at_once.get():
        return 0
    if len(programs) >= PROGRAMS:
        programs.clear()
    # one on large arrays takes as long as many others
    programs[key] = calls = calls + 1 + largest // LARGEST
    return calls


def make_program(
    function: Callable[..., Any],
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
    given = tensors_of((*args, *options.values()))
    traced = Traced(Call(function, args, options), given, backend, must_be_light)
    try:
        return _program_of(traced)
    finally:
        traced.trace.clear()


def _program_of(traced: Traced) -> Any:
    outs = traced.outs
    metas = tuple([t.meta for t in traced.inputs])
    present = tuple([i for i, t in enumerate(outs) if t._requires_grad])
    if not present and traced.make is not None:
        return Several(traced.run(), tuple([t.meta for t in outs]), traced.make)
    if not present:
        return _Program(traced.run(), metas, outs[0].meta, None, (), False)
    gradients = Gradients(traced, present)
    run = traced.run([traced.kept[i] for i in gradients.kept])
    if traced.make is None:
        saved, is_saved = gradients.saved, bool(gradients.given)
        return _Program(run, metas, outs[0].meta, gradients.op(), saved, is_saved)
    return Several(run, tuple([t.meta for t in outs]), traced.make, gradients, present)
