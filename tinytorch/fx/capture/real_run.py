"""Runs a captured graph once on real values, mends its memory layouts, compares it with eager.

A trace knows of a tensor what its fake one says, and PyTorch's kernels sometimes lay out memory
otherwise than their fake forms. Most ops follow the strides that they find. Four kinds do not:

- a `view` that was recorded for a `reshape`: eager would have copied what cannot be viewed;
- `as_strided`, which counts in elements of memory;
- the fused optimizer kernels, which walk parameters, gradients and moments linearly, side by side;
- `bernoulli`, the functional form of `bernoulli_` in dropout: it draws for elements in the order of
  their indices, and eager's in the order of memory.

They get what they read in the layout that they need, by a copy, only where the run shows that it is
not there. Everywhere else the graph's own account (`meta["val"]`) is corrected, so that passes
reason about the strides that there are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from operator import attrgetter
from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Interpreter, Node
from torch.utils._pytree import tree_leaves

from tinytorch.fx.capture.autocast import autocast_off
from tinytorch.fx.capture.batch_norm import WithoutCudnn
from tinytorch.fx.capture.checkpointed import checkpoint_reason
from tinytorch.fx.capture.comparison import first_difference
from tinytorch.fx.capture.compiling import compiling, compiling_at
from tinytorch.fx.capture.guards import MARK
from tinytorch.fx.capture.layouts import is_dense, layout_order, same_layout
from tinytorch.fx.capture.slots import (
    BUFFER,
    OUTPUT,
    CaptureError,
    Slot,
    UnrepeatableError,
)
from tinytorch.fx.diagnosis.reasons import (
    Line,
    Reason,
    is_out_of_memory,
    line_of,
    user_line,
)
from tinytorch.fx.optimize.devices import generators_kept, seed_generators
from tinytorch.fx.semantics.buffers import buffers_kept

aten = torch.ops.aten
SEED = 0
#: They read lists of parameters, gradients and moments as if all had the same strides.
LINEAR_WALKS = (aten._fused_sgd.tensor_lr, aten._fused_adam.tensor_lr, aten._fused_adamw.tensor_lr)
DRAWS = aten.bernoulli.p
FAILS = "the captured graph fails on the example"
MODEL_FAILS = "the model itself fails on the example"
RUN_EAGERLY = "this is a limit of the capture, and no fault of the model; run it eagerly"
OTHER_WHILE_TRACED = "the model computes something else while it is traced or compiled"
ASKS = (
    "it asks torch.compiler.is_compiling(), and must mean the same either way (often a mask that "
    "is left out eagerly)"
)
OWN_GENERATOR = (
    "the model draws from a torch.Generator of its own, which is no part of a graph",
    "draw before the model is called, and pass the numbers in or keep them in a buffer; or draw "
    "from the default generator",
)
REPEATS = "the model gives other results each time, with the same inputs and seeds"
REPEAT = (
    "take out of it what changes from call to call (random, numpy.random, the clock, counters and\n"
    "  caches in attributes), or pass it in as tensors"
)


def check_on_real_values(
    module: torch.fx.GraphModule,
    values: Sequence[Any],
    function: Callable[[list[Any]], Any],
    outputs: Callable[[], Sequence[Slot]] | None = None,
    state: Sequence[Tensor] = (),
    may_write: bool = False,
    reseed: bool = True,
) -> None:
    """Run a graph and the function it was captured from on the same inputs, and compare.

    The graph is mended where layouts are not as traced; its results get the strides of eager.

    Args:
        module: its graph takes and returns flat lists.
        values: for the inputs.
        outputs: what the results are, asked for after a run; by default numbered outputs.
        state: buffers that either may write. They are put back.
        may_write: either may write its inputs: each run gets copies.
        reseed: the generators; otherwise both begin with the state that these have.

    Raises:
        CaptureError: the graph fails, or one of its results is another than eager's.
    """
    _refuse_generators(module)
    devices = {v.device for v in values if isinstance(v, Tensor)}

    def observe(run: Callable[[list[Any]], Any]) -> dict[Slot, Any]:
        return _observed(run, values, outputs, state, may_write, reseed)

    run = RealRun(module)
    with generators_kept(devices):
        try:
            found = observe(partial(run_flat, run))
        except Exception as error:  # a graph may fail in any way
            if is_out_of_memory(error):
                raise
            raise _of_failure(error, partial(observe, function)) from error
        try:
            expected = observe(function)
        except Exception as error:  # a model may raise anything
            if is_out_of_memory(error):
                raise
            raise _unrepeatable(error) from error
        if any(isinstance(x, FakeTensor) for x in expected.values()):
            raise _unrepeatable(RuntimeError("a result is a FakeTensor"))
        why = first_difference(found, expected)
        if why is not None and any(device.type == "cuda" for device in devices):
            with WithoutCudnn():  # type: ignore[no-untyped-call]
                why = first_difference(found, observe(function))
        if why is not None:
            raise _of_difference(why, observe, function, found, expected, outputs is not None)
    run.lay_out_results(list(expected.values())[: len(expected) - len(state)])
    if run.is_mended:
        module.graph.lint()
        module.recompile()


def _of_difference(
    why: str,
    observe: Callable[[Any], dict[Slot, Any]],
    function: Callable[[list[Any]], Any],
    found: dict[Slot, Any],
    expected: dict[Slot, Any],
    has_backward: bool,
) -> CaptureError:
    """The error for a graph that differs from its function, with the cause if that can be seen."""
    if first_difference(observe(function), expected) is not None:
        return UnrepeatableError(f"{REPEATS}: {why}\n  fix: {REPEAT}")
    if _is_flag(observe, function, found):
        line = _line_that_asks(observe, function, expected)
        return CaptureError.because(Reason(f"{OTHER_WHILE_TRACED}: {why}", ASKS, line))
    reason = checkpoint_reason(partial(observe, function), why) if has_backward else None
    if reason is not None:
        return CaptureError.because(reason)
    return CaptureError(
        f"the captured graph does not do what the model does: {why}\n  see tinytorch.fx.diagnose"
    )


def difference_on_real_values(
    module: torch.fx.GraphModule,
    values: Sequence[Any],
    function: Callable[[list[Any]], Any],
    state: Sequence[Tensor],
    reseed: bool,
) -> str | None:
    """How a graph and the function it was captured from differ on inputs; None if they do not.

    The graph stays as it is, and so do the inputs. The arguments are those of
    `check_on_real_values`.
    """
    found: list[dict[Slot, Any]] = []
    for whose, run in (("model", function), ("graph", partial(run_flat, Interpreter(module)))):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of an empty mean, say
                found.append(_observed(run, values, None, state, True, reseed))
        except Exception as error:  # either may fail in any way
            if str(error).startswith(MARK):
                return None  # of other values, not of these sizes
            return f"the {whose} raises {_headline(error)}"
    expected, given = found
    if given.keys() != expected.keys():
        return "the model has other results"
    why = first_difference(given, expected)
    return None if why is None else f"the graph differs: {why}"


def _observed(
    run: Callable[[list[Any]], Any],
    values: Sequence[Any],
    outputs: Callable[[], Sequence[Slot]] | None,
    state: Sequence[Tensor],
    may_write: bool,
    reseed: bool,
) -> dict[Slot, Any]:
    """The results of a run, and the buffers after it, which are put back."""
    devices = {v.device for v in values if isinstance(v, Tensor)}
    with generators_kept(devices), buffers_kept(state):
        if reseed:
            seed_generators(SEED, devices)
        results = tree_leaves(run([_own(v, may_write) for v in values]))
        slots = [Slot(OUTPUT, str(i)) for i in range(len(results))]
        found = dict(zip(slots if outputs is None else outputs(), results, strict=True))
        return found | {Slot(BUFFER, str(i)): b.clone() for i, b in enumerate(state)}


def _is_flag(
    observe: Callable[[Any], dict[Slot, Any]], function: Any, found: dict[Slot, Any]
) -> bool:
    """Whether the function itself has these results while libraries are told of a trace."""
    try:
        with compiling():
            return first_difference(found, observe(function)) is None
    except Exception:  # what cannot run so cannot be the reason
        return False


def _line_that_asks(
    observe: Callable[[Any], dict[Slot, Any]], function: Any, expected: dict[Slot, Any]
) -> Line | None:
    """The first line that changes the results if it is told of a trace; None if none alone does."""
    asked: list[Line] = []
    with compiling_at(None, asked):
        observe(function)
    for line in list(asked):
        try:
            with compiling_at(line, asked):
                if first_difference(observe(function), expected) is not None:
                    return line
        except Exception:  # what cannot run so cannot be the reason
            continue
    return None


def _refuse_generators(module: torch.fx.GraphModule) -> None:
    """A generator is an object of the graph, and goes on from call to call, also where the model
    makes a new one for each: a single run shows no difference."""
    for node in module.graph.find_nodes(op="get_attr"):
        if isinstance(attrgetter(str(node.target))(module), torch.Generator):
            raise CaptureError.because(Reason(*OWN_GENERATOR, line_of(node)))


def _unrepeatable(error: Exception) -> CaptureError:
    """Of a model that has run under the tracer, and does not run eagerly after it."""
    text = "the model keeps tensors from one call to the next, and has kept those of the trace"
    fix = "keep them in a buffer (register_buffer), or pass them in and out; and make a new model"
    return of_reason(UnrepeatableError, text, fix, error)


def of_reason(kind: type[CaptureError], text: str, fix: str, error: Exception) -> CaptureError:
    """An error of ours that names the user's line behind another error."""
    return kind.because(Reason(text, fix, user_line(error), _headline(error)))


def _of_failure(error: Exception, run: Callable[[], Any]) -> CaptureError:
    """Of a graph that fails on the example: the model itself may, too."""
    try:
        run()
    except Exception as own:  # a model may raise anything
        if is_out_of_memory(own):
            raise
        return of_reason(CaptureError, MODEL_FAILS, "call it, and mend that first", own)
    return of_reason(CaptureError, FAILS, RUN_EAGERLY, error)


def _headline(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip() if lines else ''}"


def run_flat(interpreter: Interpreter, inputs: list[Any], gradients: bool = False) -> Any:
    """The results of a graph for these inputs, without the form of the model's call.

    Args:
        gradients: whether they are recorded.
    """
    module: Any = interpreter.module
    has_conversions = "autocast" in module.meta  # a graph of modules has not
    with (
        torch.set_grad_enabled(gradients),
        autocast_off() if has_conversions else nullcontext(),
    ):
        return interpreter.run(*inputs, enable_io_processing=False)


class RealRun(Interpreter):
    """Runs a graph on real tensors and mends it where layouts are not as the trace took them.

    Attributes:
        is_mended: nodes were added.
    """

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.is_mended = False
        self._assumed: dict[Node, Any] = {}  # what the trace took for the value of a node

    def run_node(self, n: Node) -> Any:
        if n.op == "call_function" and n.target in LINEAR_WALKS:
            self._align(n)
        if n.op == "call_function" and n.target is aten.as_strided.default:
            self._restore_inputs(n)
        if n.op == "call_function" and n.target is DRAWS:
            self._draw_in_order_of_memory(n)
        try:
            result = super().run_node(n)
        except RuntimeError:
            if not self._restore_inputs(n):
                raise
            result = super().run_node(n)
        if n.op != "output" and "val" in n.meta:
            self._assumed[n] = n.meta["val"]
            n.meta["val"] = _corrected(n.meta["val"], result)
        return result

    def _align(self, node: Node) -> None:
        """Bring gradients and moments to the layout of their parameters."""
        args: list[Any] = list(node.args)
        parameters = args[0]
        for i, each in enumerate(args[1:4], 1):
            if isinstance(each, (list, tuple)) and len(each) == len(parameters):
                args[i] = [self._like(node, x, p) for x, p in zip(each, parameters, strict=True)]
        node.args = tuple(args)

    def _like(self, node: Node, source: Node, parameter: Node) -> Node:
        wanted, real = self.env[parameter], self.env[source]
        if same_layout(real, wanted):
            return source
        return self._relaid(node, source, layout_order(wanted))

    def _draw_in_order_of_memory(self, node: Node) -> None:
        """Let a draw see its tensor with the dimensions in the order in which they are stored."""
        source = node.all_input_nodes[0]
        order = layout_order(self.env[source])
        if order == sorted(order) or not is_dense(self.env[source]):
            return
        self.is_mended = True
        with self.graph.inserting_before(node):
            moved = _call(node, aten.permute.default, source, order)
        node.replace_input_with(source, moved)
        self.env[moved] = super().run_node(moved)
        with node.meta["val"].fake_mode:
            node.meta["val"] = DRAWS(*(_fake(a) for a in node.args), **node.kwargs)
        places = [order.index(d) for d in range(len(order))]
        with self.graph.inserting_after(node):  # it is run next
            back = _call(node, aten.permute.default, node, places)
        node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)

    def _restore_inputs(self, node: Node) -> bool:
        """Give a node its inputs in the layouts of the trace. Whether any was in another."""
        changed = False
        for each in node.all_input_nodes:
            real, fake = self.env.get(each), self._assumed.get(each)
            if (
                isinstance(real, Tensor)
                and isinstance(fake, Tensor)
                and not same_layout(real, fake)
            ):
                new = self._relaid(node, each, layout_order(fake))
                node.replace_input_with(each, new)
                changed = True
        return changed

    def _relaid(self, before: Node, source: Node, order: Sequence[int]) -> Node:
        """A copy of a value in another layout, in the graph and in this run."""
        self.is_mended = True
        for made in insert_relaid(before, source, order):
            self.env[made] = super().run_node(made)
        return made

    def lay_out_results(self, expected: Sequence[Any]) -> None:
        """Change the results of the graph to the strides that eager's have."""
        output = self.graph.output_node()
        results: Any = output.args[0]
        nodes = list(results)
        for i, (node, wanted) in enumerate(zip(nodes, expected, strict=True)):
            fake = node.meta.get("val") if isinstance(node, Node) else None
            if isinstance(fake, Tensor) and isinstance(wanted, Tensor):
                order = layout_order(wanted)
                if not same_layout(fake, wanted) and is_dense(wanted):
                    nodes[i] = insert_relaid(output, node, order)[-1]
                    self.is_mended = True
        output.args = (nodes,)


def insert_relaid(before: Node, source: Node, order: Sequence[int]) -> list[Node]:
    """Nodes that copy a value into memory with its dimensions in this order; the last is the copy.

    Args:
        order: dimensions, the one with the largest stride first.
    """
    in_order = list(order) == sorted(order)
    with before.graph.inserting_before(before):
        moved = [] if in_order else [_call(before, aten.permute.default, source, list(order))]
        copied = _call(before, aten.clone.default, *(moved or [source]),
                       memory_format=torch.contiguous_format)  # fmt: skip
        if in_order:
            return [copied]
        back = [list(order).index(d) for d in range(len(order))]
        return [*moved, copied, _call(before, aten.permute.default, copied, back)]


def _call(beside: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
    """A new node, where the graph inserts nodes now, of the phase and the line of another."""
    node = beside.graph.call_function(target, args, kwargs)
    node.meta = {k: v for k, v in beside.meta.items() if k in ("phase", "stack_trace")}
    node.meta.setdefault("phase", args[0].meta.get("phase", "forward"))
    fake, *rest = map(_fake, args)
    with fake.fake_mode, torch.no_grad():
        node.meta["val"] = target(fake, *rest, **kwargs)
    return node


def _fake(argument: Any) -> Any:
    return argument.meta["val"] if isinstance(argument, Node) else argument


def _corrected(fake: Any, real: Any) -> Any:
    """The account of a value, with the strides that the value has."""
    if isinstance(fake, (list, tuple)) and isinstance(real, (list, tuple)):
        return type(fake)(_corrected(a, b) for a, b in zip(fake, real, strict=True))
    if not isinstance(fake, FakeTensor) or not isinstance(real, Tensor) or same_layout(fake, real):
        return fake
    with fake.fake_mode, torch.no_grad():
        if all(isinstance(n, int) for n in fake.shape):
            return torch.empty_strided(
                fake.shape, real.stride(), dtype=fake.dtype, device=fake.device
            )
        if is_dense(real):
            order = layout_order(real)
            return torch.empty_permuted(fake.shape, order, dtype=fake.dtype, device=fake.device)
    return fake


def _own(value: Any, copied: bool) -> Any:
    """A tensor of one run; one with gaps or overlaps is not copied, it cannot be written."""
    if not isinstance(value, Tensor):
        return value
    own = value.detach().clone() if copied and is_dense(value) else value.detach()
    return own.requires_grad_(value.requires_grad)
