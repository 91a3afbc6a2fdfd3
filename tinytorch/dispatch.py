"""`apply`: the one function through which every op passes.

    apply(op, *inputs, **params)
        1. the op's rules check shapes and dtypes (remembered, so usually a dictionary look-up)
        2. the innermost active mode computes the result; with none, the current backend does
        3. the result is wrapped as a Tensor
        4. if gradients are on and an input needs one, the result remembers where it came from

What is at step 2 is chosen by context: `with using_backend("naive")`, `with mode`. The context
belongs to the thread or coroutine that opened it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from tinytorch import backends
from tinytorch.dtypes import (
    Array,
    DType,
    TensorMeta,
    int64,
    is_narrower,
    meta_of_array,
    tensor_meta,
)
from tinytorch.errors import AutogradError, DTypeError, ShapeError
from tinytorch.history import Record, write_clock
from tinytorch.op import ALL, NONE, Op, Params, Plan
from tinytorch.ops import cast
from tinytorch.state import STATE, State, StateContext, grad_mode

if TYPE_CHECKING:
    from tinytorch.random import Generator
    from tinytorch.tensor import Tensor

Input = Any  # a Tensor or a Python scalar
SCALAR_TYPES = frozenset((float, int, bool))


class Mode:
    """A listener on, or a replacement of, what executes ops. Use it as a context.

    Override `run`; `self.below(...)` passes the op on to the next mode or to the backend. Modes
    nest, and while one runs, the ops that it applies itself go to what is below it.

    >>> import tinytorch
    >>> class CountOps(Mode):
    ...     count = 0
    ...     def run(self, op, inputs, params, plan):
    ...         self.count += 1
    ...         return self.below(op, inputs, params, plan)
    >>> x = tinytorch.ones(3)
    >>> with CountOps() as counter:
    ...     _ = (x * x).sum()
    >>> counter.count
    2
    """

    #: Whether fused ops reach the mode in parts. None: only those the backend has no kernel for.
    decompose: bool | None = None

    def run(self, op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan) -> Any:
        """The data of the op's result. `inputs` are Tensors and scalars, cast as the plan says."""
        return self.below(op, inputs, params, plan)

    def write(self, target: Tensor, data: Any) -> None:
        """Carry out an in-place write of `data` into `target`."""
        _write_below(target, data)

    def seed(self, generator: Generator) -> Any:
        """Data that stands for the generator's next seed; None to draw it."""
        return None

    def scalar(self, read: Callable[[], float], dtype: DType, key: Hashable) -> Any:
        """Data that stands for the number that `read` gives; None to read it."""
        return None

    def unaliased(self, tensor: Tensor) -> Any:
        """Data of a tensor without values, in memory that nothing shares; None to leave it."""
        return None

    def contiguous(self, tensor: Tensor) -> Tensor | None:
        """A tensor without values in C order, itself or copied; None to copy it."""
        return None

    def is_private(self, tensor: Tensor) -> bool | None:
        """Whether nobody else holds the memory of a tensor without values; None to count."""
        return None

    def values_asked(self, tensor: Tensor, asked: str) -> None:
        """Called when code asks for the values of a tensor that has them; may raise."""

    def hook_registered(self, tensor: Tensor) -> None:
        """Called when a gradient hook is registered on a tensor; may raise."""

    def seeded(self, generator: Generator) -> None:
        """Called when a generator starts over from a seed; may raise."""

    def below(self, op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan) -> Any:
        """Pass the op on to the next mode or to the backend; returns the data of its result."""
        return _execute(op, inputs, params, plan)

    def __enter__(self) -> Any:
        state = STATE.get()
        STATE.set(State(self, state, state.backend, state.grad, state.phase))
        return self

    def __exit__(self, *error: object) -> None:
        below = STATE.get().below
        assert below is not None
        STATE.set(below)


# -- apply -----------------------------------------------------------------------------------------

_tensor_class: type[Tensor]
_new: Any = object.__new__


def set_tensor_class(cls: type[Tensor]) -> None:
    """Tell `apply` what to wrap results in. `tensor.py` calls it once."""
    global _tensor_class
    _tensor_class = cls


def is_tensor(value: Any) -> TypeGuard[Tensor]:
    """Whether it is a Tensor; for modules below `tensor.py`, which cannot import it."""
    return isinstance(value, _tensor_class)


def wrap(data: Any, meta: TensorMeta) -> Tensor:
    """A Tensor without history around `data`, which is not copied or checked against `meta`."""
    out = _tensor_class.__new__(_tensor_class)
    out._data = data
    out.meta = meta
    out._requires_grad = False
    out.grad = None
    out.history = None
    return out


def apply(op: Op, *inputs: Input, **params: Any) -> Tensor:
    """Run an op: tensors (and Python scalars) by position, everything else by keyword.

    Raises:
        ShapeError, DTypeError: by the op's rules, before any kernel runs.
        TypeError: an input is no tensor, array or number, or none is a tensor.
        BackendError: a user's kernel returned something else than the rules promise.

    >>> from tinytorch import ops, tensor
    >>> apply(ops.sum, tensor([[1, 2], [3, 4]]), dims=(0,), keepdim=False)
    tensor([4, 6])
    """
    # The hot path of eager mode, unrolled for up to three inputs: every op pays for every line.
    state = STATE.get()
    count = len(inputs)
    try:
        if count == 2:
            a, b = inputs
            if type(b) in SCALAR_TYPES:
                metas: Any = (a.meta, type(b))
                data: Any = (a._data, b)
                needs_grad = a._requires_grad
            elif type(a) in SCALAR_TYPES:
                metas = (type(a), b.meta)
                data = (a, b._data)
                needs_grad = b._requires_grad
            else:
                metas = (a.meta, b.meta)
                data = (a._data, b._data)
                needs_grad = a._requires_grad or b._requires_grad
        elif count == 1:
            (a,) = inputs
            metas = (a.meta,)
            data = (a._data,)
            needs_grad = a._requires_grad
        elif count == 3 and SCALAR_TYPES.isdisjoint(map(type, inputs)):
            a, b, c = inputs
            metas = (a.meta, b.meta, c.meta)
            data = (a._data, b._data, c._data)
            needs_grad = a._requires_grad or b._requires_grad or c._requires_grad
        else:
            tensors = [t for t in inputs if type(t) not in SCALAR_TYPES]
            metas = tuple([type(t) if type(t) in SCALAR_TYPES else t.meta for t in inputs])
            data = [t if type(t) in SCALAR_TYPES else t._data for t in inputs]
            needs_grad = any([t._requires_grad for t in tensors])
    except AttributeError:
        return apply(op, *_as_inputs(op, inputs), **params)

    key = (metas, *params.items()) if params else metas
    try:
        plan = op.plans[key]
    except KeyError:
        plan = op.plan(key, metas, params)
    if not plan.direct:
        if plan.casts is not None:
            return apply(op, *_cast(inputs, plan.casts), **params)
        assert op.decomposition is not None
        if _decomposes(plan, state, needs_grad):
            return op.decomposition(*inputs, **params)  # type: ignore[no-any-return]

    meta = plan.meta
    if state.mode is None:
        backend = state.backend or backends.current or backends.default()
        try:
            kernel = backend.kernels[plan]
        except KeyError:
            kernel = backend.add_kernel(plan)
        result = kernel(*data, **params) if params else kernel(*data)
    else:
        result = _run_mode(state, op, inputs, params, plan)

    out = _new(_tensor_class)
    out._data = result
    out.meta = meta
    out.grad = None
    if not needs_grad or not state.grad or not plan.differentiable:
        out._requires_grad = False
        out.history = None
        return out  # type: ignore[no-any-return]
    out._requires_grad = True
    out.history = record = _new(Record)
    record.op = op
    record.params = params
    record.metas = metas
    record.meta = meta
    if count == 2 and plan.only_tensors:
        record.edges = (
            a.history or (a if a._requires_grad else None),
            b.history or (b if b._requires_grad else None),
        )
    elif count == 1:
        record.edges = (a.history or a,)
    elif count == 3 and plan.only_tensors:
        record.edges = (
            a.history or (a if a._requires_grad else None),
            b.history or (b if b._requires_grad else None),
            c.history or (c if c._requires_grad else None),
        )
    else:
        record.edges = tuple([_edge(t) for t in inputs])
    if plan.saves is ALL:
        record.inputs = inputs
    elif plan.saves is NONE:
        record.inputs = ()
    else:
        record.inputs = tuple([t if i in op.saved_inputs else None for i, t in enumerate(inputs)])
    record.output = result if op.saves_output else None
    record.clock = write_clock.now
    record.hooks = None
    return out  # type: ignore[no-any-return]


def _edge(t: Input) -> Any:
    """What a record keeps of an input to find the way back; see `Record.edges`."""
    if type(t) in SCALAR_TYPES:
        return None
    return t.history or (t if t._requires_grad else None)


def write(target: Tensor, op: Op, *inputs: Input, **params: Any) -> None:
    """Run an op and store its result in `target` in place, cast to its dtype.

    Raises:
        AutogradError: a history that is being recorded needs the old values.
        ShapeError: the result does not have the target's shape.
        DTypeError: the op gives floats, or the like, for a target that holds integers or bool.

    >>> from tinytorch import ops, tensor
    >>> x = tensor([1.0, 2.0])
    >>> write(x, ops.mul, x, 3.0); x
    tensor([3., 6.])
    """
    _check_writable(target, op, inputs)
    with grad_mode(False):
        value = apply(op, *inputs, **params)
        if value.meta.dtype is not target.meta.dtype:
            if op.kind == "elementwise" and is_narrower(target.meta.dtype, value.meta.dtype):
                raise DTypeError(
                    f"in-place {op.name}: a {value.meta.dtype.name} result does not fit into a "
                    f"{target.meta.dtype.name} tensor; compute a new tensor, or use t.to(dtype)"
                )
            value = apply(cast, value, dtype=target.meta.dtype)
    if value.meta is not target.meta and value.meta.shape != target.meta.shape:
        raise ShapeError(
            f"in-place {op.name}: a result of shape {value.meta.shape} does not fit into a tensor "
            f"of shape {target.meta.shape}"
        )
    _write_below(target, value._data)


def _check_writable(target: Tensor, op: Op, inputs: tuple[Input, ...]) -> None:
    if not STATE.get().grad:
        return
    needs = any(type(t) not in SCALAR_TYPES and t.requires_grad for t in (target, *inputs))
    if needs:
        kind = "a leaf that requires a gradient" if target.history is None else "a recorded result"
        raise AutogradError(
            f"in-place {op.name} on {kind} (shape {target.meta.shape}) would falsify the recorded "
            f"history; write `t = t + x` instead, or update it under `with no_grad():`"
        )


def _write_below(target: Tensor, data: Any) -> None:
    state = STATE.get()
    if state.mode is None:
        array = target._data
        check_not_read_only(array)
        np.copyto(array, data)
        write_clock.write(array)
        return
    with _Outside(state):
        state.mode.write(target, data)


def check_not_read_only(array: Array) -> None:
    """Raise AutogradError if the array of a tensor cannot be written in place."""
    if not array.flags.writeable:
        raise AutogradError(
            f"this tensor of shape {array.shape} is a broadcast or read-only view and cannot be "
            f"written in place; write into a copy: t = t.clone()"
        )


def active_modes() -> Iterator[Mode]:
    """The modes in force, the innermost first."""
    state = STATE.get()
    while state.mode is not None:
        yield state.mode
        assert state.below is not None
        state = state.below


def live_scalar(read: Callable[[], float], dtype: DType, key: Hashable = None) -> Input:
    """`read()`: a number that changes between the calls of a function, such as a learning rate.

    In a trace it becomes an input, a 0-d tensor, that is read anew at every call of the graph.

    Args:
        read: gives the number; called once for each call of the function.
        dtype: of the tensors that the number meets.
        key: two numbers of the same key (not None) are the same input.
    """
    for mode in active_modes():
        data = mode.scalar(read, dtype, key)
        if data is not None:
            return wrap(data, tensor_meta((), dtype))
    return read()


def live_seed(generator: Generator) -> Tensor:
    """The generator's next seed: a 0-d int64 tensor, in a trace an input drawn at every call."""
    for mode in active_modes():
        data = mode.seed(generator)
        if data is not None:
            return wrap(data, tensor_meta((), int64))
    return wrap(np.array(generator.draw_seed(), np.int64), tensor_meta((), int64))


def unaliased(tensor: Tensor) -> Tensor:
    """A tensor without values (of a trace) in memory of its own; any other as it is."""
    for mode in active_modes():
        data = mode.unaliased(tensor)
        if data is not None:
            return wrap(data, tensor.meta)
    return tensor


def _execute(op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan) -> Any:
    state = STATE.get()
    return (_run_kernel if state.mode is None else _run_mode)(state, op, inputs, params, plan)


def _run_mode(state: State, op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan) -> Any:
    assert state.mode is not None
    with _Outside(state):
        return state.mode.run(op, inputs, params, plan)


class _Outside(StateContext):
    """The state below the innermost mode, with everything else as it is."""

    def __init__(self, state: State) -> None:
        below = state.below
        assert below is not None
        self.state = State(below.mode, below.below, state.backend, state.grad, state.phase)


def _run_kernel(
    state: State, op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan
) -> Array:
    backend = state.backend or backends.default()
    kernel = backend.kernels.get(plan) or backend.add_kernel(plan)
    return kernel(*[t if type(t) in SCALAR_TYPES else t._data for t in inputs], **params)  # type: ignore[no-any-return]


def _decomposes(plan: Plan, state: State, needs_grad: bool) -> bool:
    """Whether a fused op runs in parts.

    It does where it must be differentiated but has no gradient of its own; otherwise where the mode
    wants that, or the backend has no kernel for it.
    """
    if needs_grad and plan.op.vjps is None and state.grad:
        return True
    if state.mode is not None and state.mode.decompose is not None:
        return state.mode.decompose
    backend = state.backend or backends.current or backends.default()
    return plan not in backend.kernels and not backend.has_kernel(plan.op)


def _as_inputs(op: Op, values: tuple[Any, ...]) -> list[Input]:
    inputs = [_as_input(op, value) for value in values]
    if all(type(x) in SCALAR_TYPES for x in inputs):
        raise op.no_tensor()
    return inputs


def _as_input(op: Op, value: Any) -> Input:
    """NumPy's arrays and numbers are taken like tensors and numbers; nothing else is."""
    if isinstance(value, _tensor_class):  # a subclass too, such as nn.Parameter
        return value
    if isinstance(value, (bool, int, float)):
        return value if type(value) in SCALAR_TYPES else float(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return wrap(value, meta_of_array(value))
    raise TypeError(
        f"{op.name} takes tensors, NumPy arrays and numbers, not {type(value).__name__}"
    )


def _cast(inputs: tuple[Input, ...], casts: tuple[DType | None, ...]) -> list[Input]:
    return [
        t if dtype is None else apply(cast, t, dtype=dtype)
        for t, dtype in zip(inputs, casts, strict=True)
    ]
