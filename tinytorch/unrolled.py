"""`dispatch.apply` once more, unrolled: what every op of eager mode runs through.

    @unrolled
    def apply(op, *inputs, **params): ...      # tinytorch/dispatch.py: read that

`unrolled` returns a function that means the same. It does by itself only what is frequent: no mode
is active, and the backend has run an op with operands like these before. Everything else it leaves
to the function that it is given. Calls, loops and properties of that function are written out here
for one, two and three tensors, because every op pays for every line: about half of the time. A test
draws inputs for every op and holds both equal, in results, history and errors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from tinytorch import backends, tensor_class
from tinytorch.history import Record, write_clock
from tinytorch.op import Op
from tinytorch.state import STATE
from tinytorch.tensor_class import SCALAR_TYPES, Input

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

_new: Any = object.__new__


def unrolled(meaning: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A faster function for `dispatch.apply`, which is `meaning`; it is its `__wrapped__`."""

    @wraps(meaning)
    def apply(op: Op, *inputs: Input, **params: Any) -> Tensor:
        state = STATE.get()
        if state.mode is not None:
            return meaning(op, *inputs, **params)
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
            plan = op.plans[(metas, *params.items()) if params else metas]
            kernel = (state.backend or backends.current or backends.default()).kernels[plan]
        except (AttributeError, KeyError):  # an array, or the first time: rules, parts
            kernel = None
        if kernel is None:  # behind the handler: an error of the user's has no KeyError before it
            return meaning(op, *inputs, **params)

        recording = needs_grad and state.grad
        if recording and (plan.casts is not None or not plan.differentiable):
            if plan.casts is not None:  # which have gradients of their own
                return meaning(op, *inputs, **params)
            if op.decomposition is not None and plan.meta.dtype.is_floating_point:
                return meaning(op, *inputs, **params)
            recording = False
        try:
            result = kernel(*data, **params) if params else kernel(*data)
        except OverflowError:  # a number is not within the dtype
            return meaning(op, *inputs, **params)
        out = _new(tensor_class.tensor_class)
        out._data = result
        out.meta = plan.meta
        out.grad = None
        if not recording:
            out._requires_grad = False
            out.history = None
            return out  # type: ignore[no-any-return]

        out._requires_grad = True
        out.history = record = _new(Record)
        record.op = op
        record.params = params
        record.metas = metas
        record.meta = plan.meta
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
            record.edges = tuple(
                [
                    None
                    if type(t) in SCALAR_TYPES
                    else t.history or (t if t._requires_grad else None)
                    for t in inputs
                ]
            )
        saved = plan.saved  # where all tensors require a gradient
        if saved and count == 2 and plan.only_tensors:
            if not (a._requires_grad and b._requires_grad):
                saved = plan.saved_for((a._requires_grad, b._requires_grad))
        elif saved and count > 2:
            saved = plan.saved_for(
                tuple([type(t) not in SCALAR_TYPES and t._requires_grad for t in inputs])
            )
        if len(saved) == count:
            record.inputs = inputs
        elif saved:
            record.inputs = tuple([t if i in saved else None for i, t in enumerate(inputs)])
        else:
            record.inputs = ()
        record.output = result if op.saves_output else None
        record.clock = write_clock.now
        record.hooks = None
        return out  # type: ignore[no-any-return]

    return apply
