"""Forward and backward of a function as two pieces of code that share what both need.

The graph of the forward and that of its gradients are traced together, optimized as one, and cut in
two: the forward returns, beside its results, the values that the backward reads. A call appears in
the history of its results as one function, so it can be part of any eager computation.

Source: the ahead-of-time autograd of J. Ansel et al., "PyTorch 2: faster machine learning through
dynamic Python bytecode transformation and graph compilation", ASPLOS 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.autograd import grad
from tinytorch.autograd.function import Function
from tinytorch.dispatch import apply, wrap
from tinytorch.dtypes import TensorMeta, promote
from tinytorch.errors import AutogradError
from tinytorch.graph.compiler.generate import Target, generate
from tinytorch.graph.compiler.joint_graph import JointGraph, joint_of_function, joint_of_graph
from tinytorch.graph.compiler.lower import result_nodes, without_detach
from tinytorch.graph.compiler.partition import partition
from tinytorch.graph.compiler.schedule import Role
from tinytorch.graph.interpret import Interpreter
from tinytorch.graph.traced import TracedFunction
from tinytorch.history import write_clock
from tinytorch.state import is_recording, no_mode_active
from tinytorch.tensor import Tensor


class JointFunction:
    """The forward of a traced function, and the backward for some of its inputs.

    Args:
        traced: its graph has a forward only.
        leaves: of the arguments of a call.
        roles: of the inputs.
        updates: see `schedule_graph`.
        wanted: positions of the inputs that require gradients.
        target: what to generate code for.

    Attributes:
        forward, backward: the code.

    Raises:
        TraceError: a backward of its own cannot be traced.
    """

    def __init__(
        self,
        traced: TracedFunction,
        leaves: Sequence[Any],
        roles: list[Role],
        updates: dict[int, int],
        wanted: tuple[int, ...],
        target: Target,
    ) -> None:
        graph = traced.graph
        self.graph, self.wanted = graph, wanted
        self.own_backward = traced.signature.own_backward
        self.written = frozenset(updates.values())
        self.metas = [n.meta["tensor_meta"] for n in graph.find_nodes(op="placeholder")]
        results = result_nodes(graph)
        self.result_metas: list[TensorMeta] = [
            n.meta["tensor_meta"] for i, n in enumerate(results) if i not in updates
        ]
        both: JointGraph = (
            joint_of_function(traced, leaves, wanted)
            if self.own_backward
            else joint_of_graph(graph, len(self.result_metas), wanted)
        )
        self.outputs, self._reached = both.outputs, both.reached
        joint, report = target.manager().run(without_detach(both.graph))
        parts = partition(joint, len(roles), len(results), both.gradients, self.written)
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
        if self.own_backward:
            raise AutogradError(
                f"backward: {self.own_backward} in a compiled function has a backward of its own, "
                f"which is compiled without a history, and create_graph=True asks for one; compile "
                f"the whole step with its backward(), or call the function that is not compiled"
            )
        for tensor in call.inputs:
            if write_clock.last_write(tensor._data) > call.clock:
                raise AutogradError(
                    f"backward: an input of a compiled function ({tensor.meta}) was overwritten in "
                    f"place after the call, and create_graph=True computes the call again from "
                    f"it; call backward before writing"
                )
        inputs = list(call.inputs)
        for i in self.wanted:  # an op of its own: one input may be computed from another
            inputs[i] = apply(ops.reshape, inputs[i], shape=inputs[i].shape)
        results = list(Interpreter(self.graph).run(*inputs))
        return list(
            grad(
                [results[i] for i in self.outputs],
                [inputs[i] for i in self.wanted],
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
        if is_recording():
            return None, *call.joint.run_differentiable(call, g)
        return None, *call.joint.run_backward(ctx.saved_tensors, g)
