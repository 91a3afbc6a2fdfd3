"""How formulas become the gradient of an op: what they name is found, and known to be kept.

The notation is that of `gradients`, which has one for each op.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import FunctionType
from typing import Any

from tinytorch.history import Record
from tinytorch.op import Op

Formula = Callable[..., Any]
Getter = Callable[[Record, Any, int], Any]


def attach_gradient(
    op: Op, formulas: Mapping[str, Formula | None], shared: Formula | None = None
) -> None:
    """Attach a formula for each input to an op, which need not be in the table.

    Raises:
        TypeError: an input of the op is missing, or a formula asks for what there is not.
    """
    if set(formulas) != set(op.inputs):
        raise TypeError(f"the gradient of {op.name} needs a formula for each of {op.inputs}")
    every = (*map(formulas.get, op.inputs), shared)
    asked = [_argument_names(f)[1:] if f else () for f in every]
    *vjps, op.shared_vjp = (
        formula and _bind(formula, [_getter(op, name) for name in names])
        for formula, names in zip(every, asked, strict=True)
    )
    op.vjps = tuple(vjps)
    named = {name for names in asked for name in names}
    op.saved_inputs = _positions(op, named)
    op.reads = tuple([_positions(op, (*names, *asked[-1])) if f else frozenset()
                      for f, names in zip(every[:-1], asked, strict=False)])  # fmt: skip
    op.saves_output = "out" in named
    # those of a user may print, or be stepped through
    is_ours = all(f is None or f.__module__.startswith("tinytorch.") for f in every)
    op.formulas = object() if is_ours else None
    op.plans.clear()  # they say whether there is a gradient


def _positions(op: Op, names: Collection[str]) -> frozenset[int]:
    """Those of the inputs that have these names."""
    return frozenset([i for i, name in enumerate(op.inputs) if name in names])


def _argument_names(formula: Formula) -> tuple[str, ...]:
    # as inspect.signature would say, at a tenth of its cost: this runs at import for every op
    assert isinstance(formula, FunctionType)
    return formula.__code__.co_varnames[: formula.__code__.co_argcount]


def _bind(formula: Formula, getters: list[Getter]) -> Formula:
    """The formula as autograd calls it: with the gradient of the result, the result's record, the
    result itself if the op saves it, and the position of the input whose gradient is wanted."""
    if not getters:
        return lambda g, record, output, position: formula(g)
    if len(getters) == 1:  # written out, as this runs for every op of every backward
        (get,) = getters
        return lambda g, record, output, position: formula(g, get(record, output, position))
    return lambda g, record, output, position: formula(
        g, *[get(record, output, position) for get in getters]
    )


def _getter(op: Op, name: str) -> Getter:
    """How an argument of a formula is found."""
    if name == "out":
        return lambda record, output, position: output
    if name in ("params", "metas"):
        return lambda record, output, position: getattr(record, name)
    if name == "position":
        return lambda record, output, position: position
    if name in op.inputs:
        index = op.inputs.index(name)
        if index >= len(op.inputs) - op.optional:
            return lambda record, output, position: _optional(record, index)
        return lambda record, output, position: record.inputs[index]  # type: ignore[index]
    stem, _, what = name.rpartition("_")
    if stem in op.inputs and what in ("shape", "dtype"):
        index = op.inputs.index(stem)
        return lambda record, output, position: getattr(record.metas[index], what)
    return lambda record, output, position: record.params[name]


def _optional(record: Record, index: int) -> Any:
    assert record.inputs is not None
    return record.inputs[index] if index < len(record.inputs) else None
