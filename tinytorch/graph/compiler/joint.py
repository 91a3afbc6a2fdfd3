"""Forward and backward of a function as two pieces of code that share what both need.

The graph of the forward and that of its gradients are traced together, optimized as one, and cut in
two: the forward returns, beside its results, the values that the backward reads. A call appears in
the history of its results as one function, so it can be part of any eager computation.

Source: the ahead-of-time autograd of J. Ansel et al., "PyTorch 2: faster machine learning through
dynamic Python bytecode transformation and graph compilation", ASPLOS 2024.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.autograd import grad
from tinytorch.autograd.function import Function
from tinytorch.dispatch import apply, wrap
from tinytorch.dtypes import TensorMeta, promote
from tinytorch.errors import AutogradError
from tinytorch.graph.bindings import StateBinding
from tinytorch.graph.compiler.generate import Target, generate
from tinytorch.graph.compiler.lower import example_of, result_nodes, without_detach
from tinytorch.graph.compiler.partition import partition
from tinytorch.graph.compiler.schedule import Role
from tinytorch.graph.interpret import Interpreter
from tinytorch.graph.ir import Graph, Node
from tinytorch.graph.semantics import TINYTORCH
from tinytorch.graph.trace import trace
from tinytorch.graph.traced import TracedFunction
from tinytorch.history import write_clock
from tinytorch.state import is_grad_enabled, no_mode_active
from tinytorch.tensor import Tensor


class JointFunction:
    """The forward of a graph, and the backward for some of its inputs.

    Args:
        graph: has no backward of its own.
        roles: of its inputs.
        updates: see `schedule_graph`.
        wanted: positions of the inputs that require gradients.
        target: what to generate code for.

    Attributes:
        forward, backward: the code.
    """

    def __init__(
        self,
        graph: Graph,
        roles: list[Role],
        updates: dict[int, int],
        wanted: tuple[int, ...],
        target: Target,
    ) -> None:
        self.graph, self.wanted = graph, wanted
        self.written = frozenset(updates.values())
        self.metas = [n.meta["tensor_meta"] for n in graph.find_nodes(op="placeholder")]
        results = result_nodes(graph)
        self.result_metas: list[TensorMeta] = [
            n.meta["tensor_meta"] for i, n in enumerate(results) if i not in updates
        ]
        traced = _Traced(graph, len(self.result_metas), wanted)
        self.outputs, self._reached = traced.outputs, traced.reached
        joint, report = target.manager().run(without_detach(traced.graph))
        parts = partition(joint, len(roles), len(results), traced.gradients, self.written)
        self._saved_inputs, self._gradients = parts.saved_inputs, parts.backward
        self.forward = generate(parts.forward, target, roles, updates)
        arguments = [Role.ARGUMENT] * len(parts.backward.find_nodes(op="placeholder"))
        unaliased = list(range(sum(self._reached)))  # a gradient may become some tensor's .grad
        self.backward = generate(parts.backward, target, arguments, unaliased=unaliased)
        self.forward.reports.insert(0, report)

    @property
    def is_compiled(self) -> bool:
        """Whether there is code for both parts."""
        return self.forward.program is not None and self.backward.program is not None

    def run(self, tensors: Sequence[Tensor | None], values: list[Any]) -> list[Tensor]:
        """The results, those that have gradients with a history.

        Args:
            tensors: the inputs; None for those that are numbers.
            values: their arrays, and the numbers.
        """
        call = _Call(self, self._kept_inputs(tensors, values), values)
        packed = _Compiled.apply(call, *[tensors[i] for i in self.wanted])
        if len(self.outputs) == 1:
            call.results[self.outputs[0]] = packed
        elif packed.requires_grad:
            for i, part in zip(self.outputs, self._unpack(packed), strict=True):
                call.results[i] = part
        return call.results

    def _kept_inputs(self, tensors: Sequence[Tensor | None], values: list[Any]) -> list[Tensor]:
        """What a gradient of the gradient computes the forward from once more."""
        return [
            wrap(np.array(value, meta.dtype.dtype), meta)
            if tensor is None or i in self.written
            else tensor
            for i, (tensor, value, meta) in enumerate(zip(tensors, values, self.metas, strict=True))
        ]

    # A history has one result, so several are packed into one: end to end, in one dtype.

    def _pack(self, results: Sequence[Tensor]) -> Tensor:
        chosen = [results[i] for i in self.outputs]
        if len(chosen) == 1:
            return chosen[0]
        if not chosen:
            return wrap(np.empty(0, np.float32), _EMPTY.meta)
        dtype = promote(*[t.meta for t in chosen if t.shape] or [t.meta for t in chosen])
        flat = [t._data.ravel().astype(dtype.dtype, copy=False) for t in chosen]
        return Tensor.from_numpy(np.concatenate(flat))

    def _unpack(self, packed: Tensor) -> list[Tensor]:
        if len(self.outputs) == 1:
            return [packed]
        parts, start = [], 0
        for meta in (self.result_metas[i] for i in self.outputs):
            bounds = ((start, start + meta.size, 1),)
            part = apply(ops.slice_, packed, bounds=bounds)
            parts.append(apply(ops.reshape, part, shape=meta.shape).to(meta.dtype))
            start += meta.size
        return parts

    # -- the two parts -----------------------------------------------------------------------------

    def run_forward(self, call: _Call) -> tuple[Tensor, list[Tensor]]:
        """The results, packed; and what the backward reads."""
        arrays = self.forward.run(call.values)
        count = len(self.result_metas)
        call.results = list(map(wrap, arrays[:count], self.result_metas))
        saved = [call.inputs[i] for i in self._saved_inputs]
        saved += map(Tensor.from_numpy, arrays[count:])
        return self._pack(call.results), saved

    def run_backward(self, saved: Sequence[Tensor], g: Tensor) -> list[Tensor | None]:
        """Gradients for the wanted inputs, without history."""
        given = [*saved, *self._unpack(g)]
        if no_mode_active():
            found = list(map(Tensor.from_numpy, self.backward.run([t._data for t in given])))
        else:
            found = list(Interpreter(self._gradients).run(*given))
        rest = iter(found)
        return [next(rest) if reached else None for reached in self._reached]

    def run_differentiable(self, call: _Call, g: Tensor) -> list[Tensor | None]:
        """Gradients with a history of their own: the forward runs again, op by op."""
        for tensor in call.inputs:
            if write_clock.last_write(tensor._data) > call.clock:
                raise AutogradError(
                    f"backward: an input of a compiled function ({tensor.meta}) was overwritten in "
                    f"place after the call, and create_graph=True computes the call again from "
                    f"it; call backward before writing"
                )
        results = list(Interpreter(self.graph).run(*call.inputs))
        return list(
            grad(
                [results[i] for i in self.outputs],
                [call.inputs[i] for i in self.wanted],
                self._unpack(g),
                create_graph=True,
                allow_unused=True,
            )
        )


_EMPTY = Tensor(np.empty(0, np.float32))


class _Call:
    """One call of a `JointFunction`: what it was given, what it gave, and when."""

    def __init__(self, joint: JointFunction, inputs: list[Tensor], values: list[Any]) -> None:
        self.joint, self.inputs, self.values = joint, inputs, values
        self.results: list[Tensor] = []
        self.clock = 0


class _Compiled(Function):
    """How a call is in the history."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *wanted: Tensor) -> Tensor:
        packed, saved = call.joint.run_forward(call)
        ctx.call = call
        ctx.save_for_backward(*saved)
        call.clock = write_clock.now
        call.values = []
        return packed

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        call: _Call = ctx.call
        if is_grad_enabled():
            return None, *call.joint.run_differentiable(call, g)
        return None, *call.joint.run_backward(ctx.saved_tensors, g)


# -- tracing ---------------------------------------------------------------------------------------


class _Replay(Interpreter):
    """Runs a graph in a trace; new nodes say the user's line that the old ones said."""

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.op == "call_function" and n.stack_trace is not None:
            value._data.node.meta["stack_trace"] = n.stack_trace
        return value


class _Traced:
    """Results and gradients of a graph as one graph.

    Attributes:
        graph: its inputs are those of the first graph, and then gradients of results.
        outputs: positions of the results that have a gradient.
        gradients: positions of the inputs that are the gradients of these.
        reached: for each wanted input whether it has a gradient.
    """

    def __init__(self, graph: Graph, count: int, wanted: tuple[int, ...]) -> None:
        inputs, results = graph.find_nodes(op="placeholder"), result_nodes(graph)
        examples = [example_of(node) for node in inputs]
        for i in wanted:
            examples[i].requires_grad = True
        may_have = [
            i for i, node in enumerate(results[:count])
            if node.meta["tensor_meta"].dtype.is_floating_point and node.op != "placeholder"
        ]  # fmt: skip
        self.outputs: list[int] = []

        def joint(*tensors: Tensor) -> Any:
            given = tensors[: len(inputs)]
            cotangents = dict(zip(may_have, tensors[len(inputs) :], strict=True))
            values = list(_Replay(graph).run(*given))
            self.outputs = [i for i in may_have if values[i].requires_grad]
            found: Sequence[Tensor | None] = [None] * len(wanted)
            if self.outputs:
                found = grad(
                    [values[i] for i in self.outputs],
                    [given[i] for i in wanted],
                    [cotangents[i] for i in self.outputs],
                    allow_unused=True,
                )
            return values, list(found)

        names = [*(n.name for n in inputs), *(f"grad_of_{i}" for i in may_have)]
        joint.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in _unique(names)]
        )
        seeds = [example_of(results[i]) for i in may_have]
        traced = trace(joint, *examples, *seeds, decompose=None)
        self.graph = _with_constants(traced)
        self.gradients = [len(inputs) + may_have.index(i) for i in self.outputs]
        leaves = traced.signature.out_leaves[len(results) :]
        self.reached = [leaf is not None for leaf in leaves]


def _with_constants(traced: TracedFunction) -> Graph:
    """The graph; tensors that the trace met outside are the constants of the first graph."""
    graph = traced.graph
    nodes = graph.find_nodes(op="placeholder")
    for node, binding in zip(nodes, traced.signature.inputs, strict=True):
        if isinstance(binding, StateBinding):
            with graph.inserting_before(node):
                constant = TINYTORCH.constant(graph, binding.tensor)
            node.replace_all_uses_with(constant)
            graph.erase_node(node)
    return graph


def _unique(names: list[str]) -> list[str]:
    """Identifiers, each once."""
    taken: dict[str, None] = {}
    for name in names:
        while name in taken or keyword.iskeyword(name):
            name += "_"
        taken[name] = None
    return list(taken)
