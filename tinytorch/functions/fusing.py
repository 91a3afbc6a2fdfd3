"""Functions made of elementwise ops, run as one op where the backend compiles such functions.

`hypot` is twelve ops. One by one they walk over memory twelve times, and each is dispatched. So a
module names its functions of that kind once, at its end:

    fuse(globals(), "hypot sinc logit")

At the first call with arguments of new dtypes the function runs with symbols in place of numbers,
and its ops are recorded as a `Program`, of which the backend compiles one loop. Its gradient is
derived by running the steps again and differentiating them: a program, too, one for each input.

Only ordinary calls on such a backend are affected. With a mode active (a trace, a profile), on
other backends, for integers, and where a function does something else than ops on its tensors, the
function runs as it is written. Either way it is replayed where it is called often. A number among
the arguments that no formula has by itself is an input of the program, so another value of it needs
no other machine code.

Source: J. Ragan-Kelley et al., "Halide", PLDI 2013, section 2 (why fusing pays: locality).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache, wraps
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from tinytorch import backends, history, ops, shapes
from tinytorch.dispatch import Mode, apply, is_tensor, wrap
from tinytorch.dtypes import DType, bool_, float32, float64, tensor_meta
from tinytorch.errors import ShapeError
from tinytorch.history import Record
from tinytorch.op import Op, Operand, Params, Plan
from tinytorch.program import ALIASES, COMMON, Program, Step
from tinytorch.replay import replayed
from tinytorch.state import STATE, grad_mode

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

KNOWN = 1024  # kinds of arguments of one function to remember

_signature = cache(
    inspect.signature
)  # asked for when needed: for all of them it takes milliseconds


def fuse(module: dict[str, Any], names: str) -> None:
    """Have functions of a module run as one op where that can be done.

    Args:
        module: its `globals()`; the functions are replaced by callables of the same meaning.
        names: of functions of tensors and numbers, with spaces between. Their results depend
            element by element on the tensors, and on no shape.

    Raises:
        KeyError: the module has no such function.
    """
    for name in names.split():
        module[name] = replayed(_fused(module[name]))


def _fused(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    known: dict[Any, tuple[Fused, tuple[float, ...]] | None] = {}

    def by_position(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        bound = _signature(function).bind(*args, **options)
        return bound.args, bound.kwargs

    @wraps(function)
    def call(*args: Any, **options: Any) -> Tensor:
        state = STATE.get()
        backend = state.backend or backends.current or backends.default()
        if (state.mode is not None and not state.mode.fused) or not backend.fusible:
            return function(*args, **options)
        if options and any(map(is_tensor, options.values())):
            args, options = by_position(args, options)
        try:
            key: Any = (args[0].meta,) if len(args) == 1 else _key(args)
            key = (key, *options, *_key(options.values())) if options else key
            found = known[key]
        except (AttributeError, TypeError, ValueError):  # an array or a list is among the arguments
            return function(*args, **options)
        except KeyError:
            if len(known) >= KNOWN:
                known.clear()
            found = _decide(function, args, options)
            known[key] = found if found and found[0].program.ops <= backend.fusible else None
            found = known[key]
        if found is None:
            return function(*args, **options)
        op, numbers = found
        if len(args) == 1 and not numbers:
            return apply(op, args[0])
        return apply(op, *[x for x in args if is_tensor(x)], *numbers)

    return call


def _key(args: Iterable[Any]) -> tuple[Any, ...]:
    """What decides about the program: metas of tensors, and the values of numbers."""
    # of a zero its text, since -0.0 equals 0.0
    return tuple([x.meta if is_tensor(x) else (type(x), repr(x) if x == 0 else x) for x in args])


def _decide(
    function: Callable[..., Tensor], args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Fused, tuple[float, ...]] | None:
    """The op for such arguments and the numbers to give it; None if the function is to run."""
    metas = [x.meta for x in args if is_tensor(x)]
    dtypes = tuple(meta.dtype for meta in metas)
    real = set(dtypes) - {bool_}
    if len(real) != 1 or not real <= {float32, float64}:
        return None
    try:
        shapes.broadcast(function.__name__, [meta.shape for meta in metas])
    except ShapeError:  # the function says it better
        return None

    def run(tensors: list[Tensor]) -> Any:
        given = iter(tensors)
        return function(*[next(given) if is_tensor(x) else x for x in args], **options)

    found = _record(run, dtypes, real.pop())
    if found is None or isinstance(found.result, float):
        return None
    return found.op(function.__name__, dtypes), found.numbers


# -- recording -------------------------------------------------------------------------------------


class _Impossible(Exception):
    """The function is no program of elementwise ops."""


class _Symbol:
    """Data of a tensor that is a name in the program, or a number."""

    base = None

    def __init__(self, name: Any) -> None:
        self.name = name

    def concrete(self, asked: str) -> Any:
        """Refuse: there is no value."""
        raise _Impossible(asked)


class _Recorder(Mode):
    """Records the ops of 0-d tensors whose data are symbols."""

    decompose = True

    def __init__(self, real: DType) -> None:
        self.real = real
        self.steps: list[Step] = []

    def run(self, op: Op, inputs: tuple[Any, ...], params: Params, plan: Plan) -> Any:
        """Note the op, and name its result."""
        if plan.meta.shape or plan.meta.dtype not in (bool_, self.real):
            raise _Impossible(op.name)
        if op is ops.full:
            return _Symbol(params["value"])
        operands = tuple(self._operand(x) for x in inputs)
        if op is ops.cast and not isinstance(operands[0], str):
            return _Symbol(type(plan.meta.dtype.zero)(operands[0]))
        if not any(isinstance(o, str) for o in operands):  # such as the gradient of a step
            if any(o != 0 for o in operands) or op.scalar is None:
                raise _Impossible("arithmetic of numbers alone")
            return _Symbol(op.scalar(*operands))
        if not (op.kind == "elementwise" or op.name in ALIASES or op is ops.cast):
            raise _Impossible(op.name)
        self.steps.append(Step(op, operands, tuple(params.items())))
        return _Symbol(f"t{len(self.steps) - 1}")

    def _operand(self, x: Any) -> Any:
        if not is_tensor(x):
            return x
        if not isinstance(x._data, _Symbol):
            raise _Impossible("a tensor from elsewhere")
        return x._data.name


class _Found(NamedTuple):
    """What a function of tensors does: a program of them and of numbers, or one number."""

    program: Program | None
    numbers: tuple[float, ...]
    result: Any

    def op(self, name: str, dtypes: tuple[DType, ...]) -> Fused:
        """The op that runs it, for inputs of these dtypes."""
        assert self.program is not None
        saved: set[int] = set()
        if not self.program.is_bool:
            saved.update(range(len(dtypes), self.program.inputs))
            for i, dtype in enumerate(dtypes):
                if dtype is not bool_:
                    derived = _derivative(self.program, i, dtypes, self.numbers)
                    saved.update(j - 1 for j in derived.reads if j)
        return op_of(self.program, name, frozenset(saved))


def _record(
    run: Callable[[list[Tensor]], Any], dtypes: tuple[DType, ...], real: DType
) -> _Found | None:
    """What `run` does with 0-d tensors of these dtypes; None if that is no program."""
    recorder = _Recorder(real)
    leaves = [wrap(_Symbol(f"x{i}"), tensor_meta((), d)) for i, d in enumerate(dtypes)]
    for leaf in leaves:
        leaf._requires_grad = leaf.dtype is not bool_
    try:
        with recorder, grad_mode(True):
            out = run(leaves)
        if out is None:
            return _Found(None, (), None)
        result = out._data.name
    except Exception:  # whatever it is, the function itself meets it too
        return None
    if not isinstance(result, str):
        return _Found(None, (), float(result))
    numbers: list[float] = []

    def lifted(operand: Any) -> Any:
        if type(operand) is not float or repr(operand) in COMMON:
            return operand
        if operand not in numbers:  # -0.0 has no equal there
            numbers.append(operand)
        return f"x{len(dtypes) + numbers.index(operand)}"

    steps = [Step(s.op, tuple(map(lifted, s.operands)), s.params) for s in recorder.steps]
    program = Program(len(dtypes) + len(numbers), tuple(steps), result, out.dtype is bool_)
    return _Found(program, tuple(numbers), result)


def run_steps(program: Program, values: Sequence[Any]) -> Tensor:
    """What the program says, op by op; `values` are tensors, then numbers."""
    names: dict[Any, Any] = {f"x{i}": x for i, x in enumerate(values)}
    for i, step in enumerate(program.steps):
        operands = [names[o] if isinstance(o, str) else o for o in step.operands]
        params = dict(step.params)
        if step.op is ops.reshape:
            params = {"shape": operands[0].shape}
        names[f"t{i}"] = apply(step.op, *operands, **params)
    return names[program.result]  # type: ignore[no-any-return]


# -- as ops ----------------------------------------------------------------------------------------


class Fused(Op):
    """An op whose meaning is a program. It is in no table, and no graph has one."""

    __slots__ = ("program",)

    def __init__(self, program: Program, name: str, saved: frozenset[int]) -> None:
        super().__init__(
            name,
            " ".join(f"x{i}" for i in range(program.inputs)),
            "elementwise",
            shapes.broadcast,
            self._dtypes,
            lambda _, out, __: len(program.steps) * prod(out),
            scalar=program,  # type: ignore[arg-type]  # a backend that fuses knows it
        )
        self.program = program
        if not program.is_bool:
            self.vjps = (self._vjp,) * program.inputs
            self.formulas = self
            self.saved_inputs = saved

    def _dtypes(self, name: str, operands: list[Operand], params: Params) -> Any:
        dtypes = [o.dtype for o in operands if not isinstance(o, type)]
        real = next(d for d in dtypes if d is not bool_)
        wanted = [real if isinstance(o, type) else o.dtype for o in operands]
        return wanted, bool_ if self.program.is_bool else real

    @staticmethod
    def _vjp(g: Tensor, record: Record, output: Any, position: int) -> Tensor | None:
        """The gradient of one input."""
        assert isinstance(record.op, Fused) and record.inputs is not None
        dtypes = tuple(m.dtype for m in record.metas if not isinstance(m, type))
        numbers = tuple(record.inputs[len(dtypes) :])
        derived = _derivative(record.op.program, position, dtypes, numbers)
        return derived.run(g, [g, *record.inputs])


class _Derived:
    """The gradient of a program for one input, of g and the program's inputs.

    Attributes:
        reads: which of these it reads, g first.
    """

    def __init__(self, found: _Found, name: str) -> None:
        self.result, self.numbers = found.result, found.numbers
        self.reads: tuple[int, ...] = (0,)
        self.op: Fused | None = None
        if found.program is not None and found.result != "x0":  # else it is g, and no copy of it
            used = found.program.reads()
            tensors = found.program.inputs - len(found.numbers)
            self.reads = tuple(i for i in used if i < tensors)
            program = found.program.renumbered(used)
            self.numbers = tuple(found.numbers[i - tensors] for i in used if i >= tensors)
            self.op = op_of(program, name, frozenset(range(program.inputs)))

    def run(self, g: Tensor, values: list[Any]) -> Tensor | None:
        """The gradient, where that of the result is g; None if the result does not depend on it."""
        if self.op is None:
            if not isinstance(self.result, float):
                return g if self.result else None
            return apply(ops.full, shape=g.shape, value=self.result, dtype=g.dtype)
        given = [*[values[i] for i in self.reads], *self.numbers]
        state = STATE.get()
        backend = state.backend or backends.current or backends.default()
        may_fuse = state.mode is None or state.mode.fused
        if may_fuse and self.op.program.ops <= backend.fusible:
            return apply(self.op, *given)
        return run_steps(self.op.program, given)


@lru_cache(4096)
def _derivative(
    program: Program, position: int, dtypes: tuple[DType, ...], numbers: tuple[float, ...]
) -> _Derived:
    real = next(d for d in dtypes if d is not bool_)

    def run(tensors: list[Tensor]) -> Any:
        g, *inputs = tensors
        out = run_steps(program, [*inputs, *numbers])
        if not out.requires_grad:
            return None
        return history.grad(out, inputs[position], g, create_graph=True, allow_unused=True)[0]

    found = _record(run, (real, *dtypes), real)
    if found is None:
        text = program.source("f")[0]
        raise TypeError(f"a gradient in this program is not made of elementwise ops: {text}")
    return _Derived(found, "gradient")


@lru_cache(4096)
def op_of(program: Program, name: str, saved: frozenset[int]) -> Fused:
    """The op of a program.

    Args:
        name: for messages.
        saved: the inputs that its gradients read.
    """
    return Fused(program, name, saved)
