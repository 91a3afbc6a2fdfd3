"""`CompiledTrace`: generated code called in place of a traced function.

A call reads parameters, seeds and learning rates where they are now, runs the code, and puts
gradients and results where the function would.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch.dispatch import check_not_read_only, wrap
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.graph.bindings import Binding, GradBinding, ScalarBinding, SeedBinding
from tinytorch.graph.compiler.generate import Code, Target, generate, say_failure
from tinytorch.graph.compiler.guard import NEVER, make_guard
from tinytorch.graph.compiler.joint import JointFunction
from tinytorch.graph.compiler.lower import result_nodes, without_detach
from tinytorch.graph.compiler.schedule import role_of
from tinytorch.graph.passes import Report
from tinytorch.graph.pytree import LEAF, TreeSpec
from tinytorch.graph.traced import TENSOR, TracedFunction
from tinytorch.state import STATE, current_backend, using_backend
from tinytorch.tensor import Tensor

GUARDS = 4  # made for a trace; if values still change, looking closer each time costs less


class CompiledTrace(TracedFunction):
    """A traced function that runs generated code, for one backend.

    Attributes:
        target: what the code was generated for.
        joints: its forward and backward, for each set of inputs that have required gradients; None
            where they could not be made.
    """

    def __init__(self, traced: TracedFunction, target: Target) -> None:
        s = traced.signature
        graph = traced.graph if s.differentiable else without_detach(traced.graph)
        #: what could not be made, and why: slower code does it
        self.failures: list[tuple[str, str]] = []
        try:
            graph, self._report = target.manager().run(graph)
        except Exception as error:
            if target.mode != "auto" or target.passes is not None:
                raise
            self.failures.append(("no pass ran", say_failure("the optimized graph", error)))
            self._report = Report()
        super().__init__(traced.function, graph, s, traced.environment)
        self.target = target
        self.joints: dict[tuple[int, ...], JointFunction | None] = {}
        self._lock = threading.Lock()  # of the code
        self._code: Code | None = None
        inputs = graph.find_nodes(op="placeholder")
        self.metas: list[TensorMeta] = [n.meta["tensor_meta"] for n in inputs]
        self.roles = [role_of(binding) for binding in s.inputs]
        count = sum(leaf is TENSOR for leaf in s.out_leaves)
        self.updates = {
            count + i: next(k for k, b in enumerate(s.inputs) if b.same(binding))
            for i, binding in enumerate(s.updates)
            if binding.writes_in_place
        }
        self._unaliased = [count + i for i, b in enumerate(s.updates) if not b.writes_in_place]
        self.written = sorted(set(self.updates.values()))
        for i in self.written:
            check_not_read_only(inputs[i].meta["example"])
        self._grads = [b for b in s.updates if isinstance(b, GradBinding)]
        self._cleared_owners = [b.owner for b in s.clears if isinstance(b, GradBinding)]
        self._returns_one = s.out_spec == LEAF and count == 1 and not (s.passed or s.viewed)
        results = result_nodes(graph)
        self._result_metas = [n.meta["tensor_meta"] for n in results[:count]]
        self._guards = GUARDS
        self.guard = NEVER

    # -- whether the code is right -----------------------------------------------------------------

    def why_not(self, leaves: Sequence[Any], spec: TreeSpec) -> str | None:
        """The reason why the trace does not fit, as of a traced function; and the backend, and
        memory that is written, must be as then."""
        reason = super().why_not(leaves, spec)
        if reason is not None:
            return reason
        backend = current_backend()
        if backend is not self.target.backend:
            return f"the backend is {backend!r}, and was {self.target.backend!r}"
        tensors = self.tensors(leaves)
        for node, tensor, meta in zip(
            self.graph.find_nodes(op="placeholder"), tensors, self.metas, strict=True
        ):
            if tensor is None:
                continue
            given = tensor.meta
            if (given.shape, given.dtype) != (meta.shape, meta.dtype):
                return f"{node.target} is {given}, and was {meta}"
        return self._why_not_written(tensors)

    def _why_not_written(self, tensors: Sequence[Tensor | None]) -> str | None:
        """Code writes new values into parameters while it may still read other inputs."""
        names = [n.target for n in self.graph.find_nodes(op="placeholder")]
        arrays = [None if t is None else t._data for t in tensors]
        for i in self.written:
            written = arrays[i]
            assert written is not None, "a number is not written"
            check_not_read_only(written)
            for k, other in enumerate(arrays):
                if other is not None and k != i and np.may_share_memory(written, other):
                    return f"{names[k]} shares memory with {names[i]}, which is written in place"
        return None

    # -- calling -----------------------------------------------------------------------------------

    def tensors(self, leaves: Sequence[Any]) -> list[Tensor | None]:
        """The inputs that are memory, as they are now; None for those that are numbers."""
        given = list(leaves)
        return [
            None if role.is_number else binding.read(given)
            for binding, role in zip(self.signature.inputs, self.roles, strict=True)
        ]

    def execute(self, leaves: list[Any]) -> Any:
        """Run the code on arguments that fit, and put state where it belongs."""
        self._was_called = True
        tensors = self.tensors(leaves)
        wanted = self._wanted(tensors)
        joint = self._joint(wanted, leaves) if wanted else None
        is_compiled = joint.is_compiled if joint else not wanted and self.code.program is not None
        if not is_compiled:
            return super().execute(leaves)
        values = self._values(tensors)
        grads: list[Array] = []
        if joint is not None:
            results = joint.run(tensors, values)
        else:
            results, grads = self._results(self.code.run(values))
        return self._deliver(leaves, results, grads, tensors)

    def _wanted(self, tensors: list[Tensor | None]) -> tuple[int, ...]:
        """Positions of the inputs whose gradients may be asked for later."""
        if not (self.signature.differentiable and STATE.get().grad):
            return ()
        return tuple([i for i, t in enumerate(tensors) if t is not None and t.requires_grad])

    def why_op_by_op(self, leaves: list[Any]) -> str | None:
        """The reason why code would lose gradients that the function itself gives; None if not."""
        own = self.signature.own_backward
        if lost := self.signature.loses_history or self.why_incomplete(leaves):
            return f"{lost}; this call runs op by op"
        if not own or not (wanted := self._wanted(self.tensors(leaves))):
            return None
        joint = self._joint(wanted, leaves)
        if joint is not None and joint.is_compiled:
            return None
        reason = self.failures[-1][1] if self.failures else "there is no code"
        return (
            f"{own} has a backward of its own, which was not compiled, so that this call runs op "
            f"by op: {reason}"
        )

    def execute_fitting(self, args: tuple[Any, ...]) -> Any:
        """`execute` for arguments that the guard has let pass; what it can leave out it does."""
        recorded = self.signature.differentiable and STATE.get().grad
        program, guard = self.code.program, self.guard
        views_written = self.signature.viewed and self.written
        if recorded or self.signature.passed or views_written or program is None:
            with using_backend(self.target.backend):
                return self.execute(list(args))
        arrays = program(guard.values(args))
        guard.mark_written()
        return self._deliver(args, *self._results(arrays), ())

    def _results(self, arrays: list[Array]) -> tuple[list[Any], list[Array]]:
        """The function's own results, and gradients."""
        count = len(self._result_metas)
        return list(map(wrap, arrays, self._result_metas)), arrays[count:]

    @property
    def is_native(self) -> bool:
        """The code takes arrays in C order only."""
        return self._code is not None and self._code.mode == "native"

    def renew_guard(self) -> None:
        """Make the guard recognise calls like the one that has just fitted."""
        if self._guards:
            self._guards -= 1
            self.guard = make_guard(self)

    def _values(self, tensors: list[Tensor | None]) -> list[Any]:
        """An array or a number for each input; numbers are read, and seeds drawn, in order."""
        return [
            t._data if t is not None else _number_of(binding)
            for t, binding in zip(tensors, self.signature.inputs, strict=True)
        ]

    def _deliver(
        self, leaves: Sequence[Any], results: list[Any], grads: list[Array], inputs: Sequence[Any]
    ) -> Any:
        given: Any = leaves  # bindings take any sequence
        for binding, array in zip(self._grads, grads, strict=True):
            binding.write(given, wrap(array, binding.owner.read(given).meta))
        for owner in self._cleared_owners:
            owner.read(given).grad = None
        if self._returns_one:
            return results[0]
        return self.signature.returned(results, inputs)

    # -- code, generated when it is first needed ---------------------------------------------------

    @property
    def code(self) -> Code:
        """The code of the function itself, for calls whose results need no history."""
        if self._code is None:
            with self._lock:
                if self._code is None:
                    code = generate(
                        self.graph, self.target, self.roles, self.updates, self._unaliased
                    )
                    code.reports.insert(0, self._report)
                    self._code = code
        return self._code

    def _joint(self, wanted: tuple[int, ...], leaves: Sequence[Any]) -> JointFunction | None:
        """Forward and backward for these inputs; None if they could not be made."""
        with self._lock:
            if wanted not in self.joints:
                try:
                    joint = JointFunction(
                        self, leaves, self.roles, self.updates, wanted, self.target
                    )
                except Exception as error:
                    self._note_failure(error)
                    joint = None
                self.joints[wanted] = joint
        return self.joints[wanted]

    def _note_failure(self, error: Exception) -> None:
        """Forward and backward could not be made."""
        if own := self.signature.own_backward:  # it may do what no trace can know
            reason = f"{type(error).__name__}: {error}"
            self.failures.append((f"the backward of {own} is not compiled", reason))
            return
        if self.target.mode != "auto":
            raise error
        reason = say_failure("forward and backward", error)
        self.failures.append(("forward and backward are interpreted", reason))

    def generated(self) -> dict[str, Code]:
        """The generated code, by what it does."""
        codes = {} if self._code is None else {"call": self._code}
        for number, joint in enumerate(filter(None, self.joints.values()), 1):
            suffix = "" if number == 1 else f" {number}"
            codes[f"forward{suffix}"] = joint.forward
            codes[f"backward{suffix}"] = joint.backward
        return codes


def _number_of(binding: Binding) -> float:
    """A seed or a number that is live, for this call."""
    if isinstance(binding, SeedBinding):
        return binding.generator.draw_seed()
    assert isinstance(binding, ScalarBinding)
    return binding.source()
