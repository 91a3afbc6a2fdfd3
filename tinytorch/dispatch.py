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
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import backends
from tinytorch.dtypes import (
    Array,
    DType,
    int64,
    is_narrower,
    meta_of_array,
    tensor_meta,
    wrapped,
)
from tinytorch.errors import AutogradError, DTypeError, ShapeError
from tinytorch.history import Record, write_clock
from tinytorch.op import Op, Operand, Params, Plan
from tinytorch.ops import cast
from tinytorch.state import STATE, State, StateContext, grad_mode, is_recording
from tinytorch.tensor_class import (
    SCALAR_TYPES as SCALAR_TYPES,
    Input as Input,
    is_tensor as is_tensor,
    set_tensor_class as set_tensor_class,
    wrap as wrap,
)
from tinytorch.unrolled import unrolled

if TYPE_CHECKING:
    from tinytorch.random import Generator
    from tinytorch.tensor import Tensor


_SEED = tensor_meta((), int64)


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

    #: Whether a function of elementwise ops (`functions/fusing.py`) may reach it as one op, which
    #: is in no table.
    fused: bool = False

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

    def may_change(self, tensor: Tensor) -> bool:
        """Whether a tensor that has values may have others at the next call of what is traced."""
        return False

    def assume(
        self, tensor: Tensor, condition: Callable[..., bool], args: tuple[Any, ...]
    ) -> bool | None:
        """Whether a tensor whose values may change meets a condition, see `assumed`; None to ask
        the next mode."""
        return None

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


@unrolled  # what runs means the same and takes half of the time; see there
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
    inputs = tuple([_as_input(op, value) for value in inputs])
    plan = op.plan(tuple(map(_operand, inputs)), params)
    if plan.casts is not None:
        result = apply(op, *map(_cast, inputs, plan.casts), **params)
        if (state := STATE.get()).mode is None and op.decomposition is None:  # next: `unrolled`
            (state.backend or backends.default()).add_kernel_after_casts(plan)
        return result
    inputs = _in_range(op, inputs, plan)
    recording = is_recording() and any(map(_requires_grad, inputs))
    if op.decomposition is not None and _decomposes(plan, recording):
        return op.decomposition(*inputs, **params)  # type: ignore[no-any-return]
    result = wrap(_execute(op, inputs, params, plan), plan.meta)
    if recording and plan.differentiable:
        result.history = _record(op, inputs, params, plan, result)
        result._requires_grad = True
    return result


def _as_input(op: Op, value: Any) -> Input:
    """NumPy's arrays and numbers are taken like tensors and numbers; nothing else is."""
    if type(value) in SCALAR_TYPES or is_tensor(value):
        return value
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return wrap(value, meta_of_array(value))
    raise TypeError(
        f"{op.name} takes tensors, NumPy arrays and numbers, not {type(value).__name__}"
    )


def _in_range(op: Op, inputs: tuple[Input, ...], plan: Plan) -> tuple[Input, ...]:
    """The inputs of arithmetic with integers, a Python int as one of them: -1 is 255 of uint8."""
    if op.kind != "elementwise" or int not in map(type, inputs):
        return inputs
    return tuple([wrapped(x, plan.meta.dtype) if type(x) is int else x for x in inputs])


def _operand(x: Input) -> Operand:
    return type(x) if type(x) in SCALAR_TYPES else x.meta


def _requires_grad(x: Input) -> bool:
    return is_tensor(x) and x._requires_grad  # what is no input, `apply` refuses


def _cast(x: Input, dtype: DType | None) -> Input:
    return x if dtype is None else apply(cast, x, dtype=dtype)


def _decomposes(plan: Plan, recording: bool) -> bool:
    """Whether a fused op runs in parts.

    It does where it must be differentiated but has no gradient of its own; otherwise where the mode
    wants that, or the backend has no kernel for it.
    """
    state = STATE.get()
    if recording and plan.op.vjps is None and plan.meta.dtype.is_floating_point:
        return True
    if state.mode is not None and state.mode.decompose is not None:
        return state.mode.decompose
    backend = state.backend or backends.default()
    return plan not in backend.kernels and not backend.has_kernel(plan.op)


def _record(op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan, out: Tensor) -> Record:
    """What `out` remembers of where it came from: what the gradient of `op` reads, and no more."""
    saved = plan.saved_for(tuple(map(_requires_grad, inputs)))
    return Record(
        op=op,
        params=params,
        edges=tuple([x.history or x if _requires_grad(x) else None for x in inputs]),
        inputs=tuple([x if i in saved else None for i, x in enumerate(inputs)]) if saved else (),
        metas=plan.operands,
        meta=plan.meta,
        output=out._data if op.saves_output else None,
    )


# -- writing in place ------------------------------------------------------------------------------


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
    state = STATE.get()
    if state.grad:
        _check_unrecorded(target, op, inputs)
    if state.mode is None:  # nothing is recorded: a context takes as long as a small kernel
        value = _to_be_written(target, op, inputs, params)
    else:
        with grad_mode(False):
            value = _to_be_written(target, op, inputs, params)
    if value.meta is not target.meta and value.meta.shape != target.meta.shape:
        raise ShapeError(
            f"in-place {op.name}: a result of shape {value.meta.shape} does not fit into a tensor "
            f"of shape {target.meta.shape}"
        )
    _write_below(target, value._data)


def _to_be_written(target: Tensor, op: Op, inputs: tuple[Input, ...], params: Params) -> Tensor:
    """The result of the op, in the target's dtype."""
    value = apply(op, *inputs, **params)
    if value.meta.dtype is target.meta.dtype:
        return value
    if op.kind == "elementwise" and is_narrower(target.meta.dtype, value.meta.dtype):
        raise DTypeError(
            f"in-place {op.name}: a {value.meta.dtype.name} result does not fit into a "
            f"{target.meta.dtype.name} tensor; compute a new tensor, or use t.to(dtype)"
        )
    return apply(cast, value, dtype=target.meta.dtype)


def _check_unrecorded(target: Tensor, op: Op, inputs: tuple[Input, ...]) -> None:
    """Raise AutogradError if a history would be falsified by writing into the target."""
    if target._requires_grad or any([_requires_grad(t) for t in inputs]):
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
    if STATE.get().mode is not None:
        for mode in active_modes():
            data = mode.seed(generator)
            if data is not None:
                return wrap(data, _SEED)
    return wrap(np.array(generator.draw_seed(), np.int64), _SEED)


def assumed(tensor: Tensor, condition: Callable[..., bool], *args: Any) -> bool | None:
    """Whether a trace may take `condition(array, *args)` to be true of the values of a tensor.

    It is true of the example, then, and looked at again in every call of the trace, of the whole
    array that the tensor is a part of. False does not say the contrary. None: no trace has this
    tensor, and so its values can be looked at.
    """
    for mode in active_modes():
        answer = mode.assume(tensor, condition, args)
        if answer is not None:
            return answer
    return None


def unaliased(tensor: Tensor) -> Tensor:
    """A tensor without values (of a trace) in memory of its own; any other as it is."""
    for mode in active_modes():
        data = mode.unaliased(tensor)
        if data is not None:
            return wrap(data, tensor.meta)
    return tensor


def _execute(op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan) -> Any:
    """The data of an op's result: from the innermost mode or, with none, from the backend."""
    state = STATE.get()
    if state.mode is not None:
        with _Outside(state):
            return state.mode.run(op, inputs, params, plan)
    backend = state.backend or backends.default()
    kernel = backend.kernels.get(plan) or backend.add_kernel(plan)
    return kernel(*[x if type(x) in SCALAR_TYPES else x._data for x in inputs], **params)


class _Outside(StateContext):
    """The state below the innermost mode, with everything else as it is."""

    def __init__(self, state: State) -> None:
        below = state.below
        assert below is not None
        self.state = State(below.mode, below.below, state.backend, state.grad, state.phase)
