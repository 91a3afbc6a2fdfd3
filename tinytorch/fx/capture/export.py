"""A run of `torch.export` on a model: with its sizes, constants, guards and decompositions."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from tinytorch.fx.capture.compiling import compiling
from tinytorch.fx.capture.constants import countable_buffers, with_constants
from tinytorch.fx.capture.functional import tracing
from tinytorch.fx.capture.guards import AskedValues, forward_within
from tinytorch.fx.capture.open_sizes import Question, asked_sizes
from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.capture.stopped_gradients import RegionsSeen, mark_stopped_gradients
from tinytorch.fx.diagnosis.reasons import VALUE
from tinytorch.fx.models import Batch, call
from tinytorch.fx.optimize.devices import devices_of, generators_kept
from tinytorch.fx.semantics.buffers import model_buffers_kept


@dataclass
class Exported:
    """What a run of `torch.export` gives.

    Attributes:
        program: an `ExportedProgram`.
        buffers: those whose values are constants of the program, by name.
        questions: what the model has asked about open sizes.
    """

    program: Any
    buffers: dict[str, Tensor]
    questions: list[Question]

    def module(self) -> torch.fx.GraphModule:
        """A new module that is called like the model, without the tracer's guards."""
        module: torch.fx.GraphModule = self.program.module(check_guards=False)
        return module

    def guards(self) -> Callable[[Sequence[Any]], str | None]:
        """Says which of the tracer's guards fails for inputs; None if none does."""
        if not self.program._guards_code:
            return lambda leaves: None
        guards = self.program.module(check_guards=True)._guards_fn

        def failing(leaves: Sequence[Any]) -> str | None:
            try:
                guards(*leaves)
            except (AssertionError, ZeroDivisionError) as error:
                return str(error)
            return None

        return failing


class Exporter:
    """Exports a model for inputs, each time in the same way.

    Args:
        fixed: the input tensors whose values stay, by name.
        guarded: Python gets the values of the example, and the program checks them.
        decompose: in core ATen ops, attention left whole.
    """

    def __init__(
        self, model: nn.Module, fixed: dict[str, Tensor], *, guarded: bool, decompose: bool
    ) -> None:
        self.model, self.fixed = model, fixed
        self.guarded, self.decompose = guarded, decompose
        self._asked = AskedValues()

    def export_with_buffers(self, inputs: Batch, dims: tuple[int, ...]) -> Exported:
        """`export` of the example; with small integer buffers as constants if Python asks for them.

        Args:
            dims: dimensions of the inputs whose sizes stay open.

        Raises:
            CaptureError: the model does what cannot be traced.
        """
        buffers = {} if self.guarded else countable_buffers(self.model)
        if self.guarded:
            self._ask(inputs)
        try:
            return self.export(inputs, {}, dims)
        except CaptureError as error:
            if not buffers or error.reason is None or error.reason.text != VALUE[0]:
                raise
            try:
                return self.export(inputs, buffers, dims)
            except CaptureError:  # they are no constants, or not the reason
                raise error from None

    def _ask(self, inputs: Batch) -> None:
        """Run the model, and write down the values that Python asks for."""
        with (
            tracing(), model_buffers_kept(self.model),
            generators_kept(devices_of(self.model)), compiling(),
            with_constants(self.model, self.fixed, {}),
            forward_within(self.model, self._asked.recorded),
        ):  # fmt: skip
            call(self.model, inputs)

    def export(
        self, batch: Any, buffers: Mapping[str, Tensor], dims: tuple[int, ...] = ()
    ) -> Exported:
        """Run `torch.export`.

        Args:
            buffers: those whose values Python may ask for.
            dims: dimensions of the inputs whose sizes stay open.

        Raises:
            CaptureError: the model does what cannot be traced.
        """
        model = self.model
        args, kwargs = ((), batch) if isinstance(batch, dict) else (as_tuple(batch), None)
        with (
            tracing(), warnings.catch_warnings(),
            with_constants(model, self.fixed, buffers) as read, asked_sizes() as questions,
            forward_within(model, self._asked.guarded if self.guarded else nullcontext),
            forward_within(model, RegionsSeen if self.decompose else nullcontext),
        ):  # fmt: skip
            # recurrent layers keep their parameters in a list, too, which is put back
            warnings.filterwarnings("ignore", r"The tensor attributes? self\..*_flat_weights")
            shapes = _dynamic_shapes(model, args, kwargs or {}, dims) if dims else None
            with torch.enable_grad() if self.decompose else nullcontext():
                program = torch.export.export(
                    model, args, kwargs, dynamic_shapes=shapes, strict=False
                )
            if self.decompose:
                program = _decomposed(program, batch)
            return Exported(program, {name: buffers[name] for name in sorted(read)}, questions)


_aten = torch.ops.aten
#: What stays one op: the parts of attention assume strides that its kernel has not, those of
#: `one_hot` end the program where a label is out of range, those of the others have another
#: gradient where a piece ends, or a deviation is 0.
WHOLE = (
    _aten.scaled_dot_product_attention.default, _aten.one_hot.default, _aten.hardsigmoid.default,
    _aten.hardswish.default, _aten.sinc.default, _aten.std.correction, _aten.std_mean.correction,
)  # fmt: skip


def _decomposed(exported: Any, inputs: Batch) -> Any:
    mark_stopped_gradients(exported, inputs)
    table: Any = torch.export.default_decompositions()
    for op in WHOLE:
        table.pop(op, None)
    with warnings.catch_warnings():  # torch's own use of what it deprecates
        warnings.simplefilter("ignore", FutureWarning)
        return exported.run_decompositions(table)


def as_tuple(inputs: Batch) -> tuple[Any, ...]:
    """Positional inputs as a tuple."""
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _dynamic_shapes(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], dims: tuple[int, ...]
) -> Any:
    """Which dimensions of each tensor of a call are open, by the parameters of the forward.

    What `*tensors` takes is one argument of that name, a tuple.

    Raises:
        CaptureError: `**named` takes some; torch.export does not know these by one name.
    """
    signature = inspect.signature(model.forward)
    arguments = signature.bind(*args, **kwargs).arguments
    for name in (name for name, p in signature.parameters.items() if p.kind is p.VAR_KEYWORD):
        if name in arguments:
            raise CaptureError(
                f"forward takes {', '.join(arguments[name])} by **{name}, and torch.export leaves "
                "no size open there: make each a parameter, or capture without dynamic_dims"
            )

    def of_leaf(leaf: Any) -> dict[int, Any] | None:
        if not isinstance(leaf, Tensor):
            return None
        inside = {d % leaf.ndim for d in dims if -leaf.ndim <= d < leaf.ndim}
        return dict.fromkeys(sorted(inside), torch.export.Dim.AUTO)

    return tree_map(of_leaf, arguments)
