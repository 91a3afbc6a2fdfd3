"""`Op`: one row of the op table, and the table itself. The rows are in `tinytorch/ops.py`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from tinytorch.dtypes import DType, Shape, TensorMeta, tensor_meta

Params = Mapping[str, Any]
Operand = TensorMeta | type  # a tensor's meta, or the type of a Python scalar
ShapeRule = Callable[[str, list[Shape], Params], Shape]
DTypeRule = Callable[[str, list[Operand], Params], tuple[list[DType], DType]]
FlopCount = Callable[[list[Shape], Shape, Params], int]

PLANS_PER_OP = 4096


class Plan:
    """The plan of an op for operands of given shapes and dtypes: worked out once, then looked up.

    Attributes:
        meta: shape and dtype of the result.
        casts: for each input the dtype it must be cast to first; None if all are right already.
        differentiable: the op has a gradient, and its result is floating-point.
        op, operands, params: what the plan is for; an operand is a meta or a scalar's type.
        only_tensors: no operand is a scalar.
        saved: positions of the inputs that the gradients of the tensors among them read.
    """

    __slots__ = (
        "_saved_for",
        "casts",
        "differentiable",
        "meta",
        "only_tensors",
        "op",
        "operands",
        "params",
        "saved",
    )

    def __init__(
        self,
        op: Op,
        operands: tuple[Operand, ...],
        params: Params,
        meta: TensorMeta,
        casts: tuple[DType | None, ...] | None,
    ) -> None:
        self.op = op
        self.operands = operands
        self.params = params
        self.meta = meta
        self.casts = casts
        self.differentiable = op.vjps is not None and meta.dtype.is_floating_point
        self.only_tensors = all(isinstance(o, TensorMeta) for o in operands)
        self._saved_for: dict[tuple[bool, ...], frozenset[int]] = {}
        self.saved = self.saved_for(tuple([isinstance(o, TensorMeta) for o in operands]))

    def after_casts(self) -> Plan:
        """The plan for the operands once they are cast."""
        casts = self.casts or [None] * len(self.operands)
        return self.op.plan(
            [
                have if dtype is None else tensor_meta(have.shape, dtype)  # type: ignore[union-attr]
                for have, dtype in zip(self.operands, casts, strict=True)
            ],
            self.params,
        )

    def saved_for(self, needed: tuple[bool, ...]) -> frozenset[int]:
        """Positions of the inputs that are read by the gradients of those that need one."""
        found = self._saved_for.get(needed)
        if found is None:
            reads, every = self.op.reads, range(len(self.operands))
            if reads is None or len(reads) < len(needed):  # it is not known, or there are many
                found = self.op.saved_inputs.intersection(every)
            else:
                asked = [reads[i] for i, needs in enumerate(needed) if needs]
                found = frozenset(every).intersection(frozenset().union(*asked))
            self._saved_for[needed] = found
        return found


class Op:
    """One row of the op table.

    Attributes:
        name: also the name of its kernel on a backend.
        inputs: names of its tensor inputs, which its gradient refers to.
        kind: elementwise, reduction, movement, contraction, pooling, index, creation, fused.
        scalar: for an elementwise op, its meaning: a function of Python scalars. For a reduction,
            the function that folds the next element into the accumulator.
        initial: for a reduction, where the accumulator starts; None means at the first element.
        optional: how many of the last inputs may be left out (a bias).
        commutative: operands may be swapped.
        random: not a function of its inputs' values alone; never merge or fold two of them.
        view: the result shares memory with the input.
    """

    __slots__ = (
        "_dtype_rule",
        "_flops",
        "_shape_rule",
        "commutative",
        "decomposition",
        "formulas",
        "initial",
        "inputs",
        "kind",
        "name",
        "optional",
        "plans",
        "random",
        "reads",
        "saved_inputs",
        "saves_output",
        "scalar",
        "shared_vjp",
        "view",
        "vjps",
    )

    def __init__(
        self,
        name: str,
        inputs: str,
        kind: str,
        shape_rule: ShapeRule,
        dtype_rule: DTypeRule,
        flops: FlopCount,
        *,
        scalar: Callable[..., Any] | None = None,
        initial: float | None = None,
        optional: int = 0,
        commutative: bool = False,
        random: bool = False,
        view: bool = False,
    ) -> None:
        self.name = name
        self.inputs = tuple(inputs.split())
        self.kind = kind
        self._shape_rule = shape_rule
        self._dtype_rule = dtype_rule
        self._flops = flops
        self.scalar = scalar
        self.initial = initial
        self.optional = optional
        self.commutative = commutative
        self.random = random
        self.view = view
        self.plans: dict[Hashable, Plan] = {}
        # Attached by name from gradients.py and decompositions.py.
        self.vjps: tuple[Callable[..., Any] | None, ...] | None = None
        self.shared_vjp: Callable[..., Any] | None = None
        self.saved_inputs: frozenset[int] = frozenset()
        self.reads: tuple[frozenset[int], ...] | None = None  # the same, by the gradient of each
        self.saves_output = False
        # What stands for the formulas in a key: another object for others. None: not to be traced.
        self.formulas: object | None = None
        self.decomposition: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (find_op, (self.name,))

    def plan(self, operands: Iterable[Operand], params: Params) -> Plan:
        """The plan for such operands: worked out by its rules once, then remembered.

        Raises:
            ShapeError, DTypeError: the operands do not fit; the message says how.
        """
        operands = tuple(operands)
        key = (operands, *params.items()) if params else operands
        plan = self.plans.get(key)
        if plan is None:
            if len(self.plans) >= PLANS_PER_OP:
                self.plans.clear()
            plan = self.plans[key] = self._new_plan(operands, params)
        return plan

    def _new_plan(self, operands: tuple[Operand, ...], params: Params) -> Plan:
        least = len(self.inputs) - self.optional
        if self.inputs != ("*",) and not least <= len(operands) <= len(self.inputs):
            raise TypeError(f"{self.name} takes {least} inputs, not {len(operands)}")
        if operands and all(isinstance(o, type) for o in operands):
            raise TypeError(f"{self.name} needs at least one tensor, not only Python numbers")
        wanted, dtype = self._dtype_rule(self.name, list(operands), params)
        shapes = [() if isinstance(o, type) else o.shape for o in operands]
        shape = self._shape_rule(self.name, shapes, params)
        casts = tuple(
            want if isinstance(have, TensorMeta) and have.dtype is not want else None
            for have, want in zip(operands, wanted, strict=True)
        )
        meta = tensor_meta(shape, dtype)
        return Plan(self, operands, params, meta, casts if any(casts) else None)

    def flops(self, shapes: list[Shape], out: Shape, params: Params) -> int:
        """Floating-point operations for inputs of `shapes`; a multiply-add counts as two."""
        return self._flops(shapes, out, params)

    def bytes_moved(self, inputs: list[TensorMeta], out: TensorMeta) -> int:
        """Bytes read and written at the least: every input once, the output once; a view none."""
        return 0 if self.view else sum(m.nbytes for m in inputs) + out.nbytes


OPS: dict[str, Op] = {}


def register_op(op: Op) -> Op:
    """Add a row to the table.

    Raises:
        ValueError: the name is taken.
    """
    if op.name in OPS:
        raise ValueError(f"there is an op {op.name!r} already")
    OPS[op.name] = op
    return op


def find_op(name: str) -> Op:
    """The row of this name.

    Raises:
        KeyError: there is none.
    """
    try:
        return OPS[name]
    except KeyError:
        raise KeyError(f"there is no op {name!r}; the table has {', '.join(sorted(OPS))}") from None
