"""`Schedule`: a graph as a list of kernel calls on views of memory. What code is generated from.

    schedule = schedule_traced(traced, is_kept=..., writes_out=...)     # or schedule_graph(graph)
    for step in schedule.steps:
        step.op, step.params         # what is computed
        step.inputs                  # views to read (or Python numbers), in the op's order
        step.output                  # the view to write

Every value has a `StridedView`: buffer, offset, shape, strides, dtype. A view costs no step: it is
another view of the same buffer. A step writes all of its output view, which is in C order but where
`memory_order` says otherwise. If
`step.overwrites` is a number, the output is in the memory of that input, element upon element
(only where every element is read before it is written).

Buffers are of four kinds (`layout.Memory`):

    input i       given by the caller, as `schedule.inputs[i]` says, in C order. A Python number of
                  the call (role SEED or SCALAR: a seed, a learning rate) is an input too, 0-d; it
                  is never frozen.
    constant i    `schedule.constants[i]`: a constant of the graph, or what `full`, `arange` make.
    arena         `schedule.arena_bytes` of memory in which values that are not alive at the same
                  time share memory. The plan is that of `graph.memory`.
    own i         memory that every call allocates: what leaves the call. `schedule.own[i]` is its
                  shape and dtype; it is in C order.

After the last step the inputs numbered in `schedule.written` hold their new values: an optimizer's
update writes into the parameter itself where nothing reads the old value later, and is copied into
it by a step at the end where something does. `schedule.returns` are the views of the results that
a caller gets, in order, gradients included; those of two may be in one buffer if one is a view
of the other, and may be in an input that is not written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.graph.bindings import (
    ArgumentBinding,
    Binding,
    GradBinding,
    ScalarBinding,
    SeedBinding,
)
from tinytorch.graph.compiler.lower import (
    CallingConvention,
    is_creation,
    lower,
    plan_of,
    result_nodes,
)
from tinytorch.graph.compiler.memory_order import CanWrite, view_in_memory, views_of_parts
from tinytorch.graph.fused import GraphDecomposition
from tinytorch.graph.ir import Graph, Node
from tinytorch.graph.layout import Buffer, Memory, StridedView, contiguous_view, view_of
from tinytorch.graph.memory import BufferPlan, accumulate, last_reads, lifetimes, plan_buffers
from tinytorch.graph.semantics import TINYTORCH, AnyNode, TinyTorchSemantics
from tinytorch.graph.storages import Storages
from tinytorch.graph.traced import TracedFunction
from tinytorch.op import Op, Params, Plan

CONSTANT_LIMIT = 65_536  # elements; what `full` makes beyond it is made anew in every call


class Role(Enum):
    """The role of an input: argument, parameter, buffer or state."""

    ARGUMENT = "argument"
    STATE = "state"  # a parameter, a buffer, a moment of an optimizer
    GRAD = "grad"  # the .grad of a tensor
    SEED = "seed"
    SCALAR = "scalar"  # a number that is read anew, such as a learning rate

    @property
    def is_number(self) -> bool:
        """Whether it is a Python number of the call, not memory."""
        return self in (Role.SEED, Role.SCALAR)


@dataclass(frozen=True)
class Input:
    """An input of the graph.

    Attributes:
        node: its placeholder in the schedule's graph; `node.target` is its name ("0.weight").
        meta: shape and dtype.
    """

    node: Node
    meta: TensorMeta
    role: Role


@dataclass(frozen=True)
class Step:
    """One kernel call.

    Attributes:
        node: of the schedule's graph; its meta has phase and the user's line.
        op, params: what is computed; a fused group's body is `op.decomposition.graph`.
        plan: shapes and dtypes of operands and result; a key to the backend's kernel.
        inputs: views, or Python numbers, in the op's order.
        output: the view to write.
        overwrites: which input's memory the output takes over; None if its memory is another.
    """

    node: Node
    op: Op
    params: Params
    plan: Plan
    inputs: tuple[StridedView | float, ...]
    output: StridedView
    overwrites: int | None


@dataclass
class Schedule:
    """The kernel calls of a graph, in order, and where each value is stored.

    Attributes:
        graph: lowered: casts, copies and the parts of fused ops are nodes of their own.
        inputs, constants, own, arena_bytes: the buffers.
        steps: the kernel calls.
        views: of every node of the graph but the output.
        returns: the nodes that the caller gets, in order.
        written: the inputs that hold new values afterwards.
        plan: what of the arena is whose.
        peak: bytes that are alive at once at the most; the arena cannot be smaller.
    """

    graph: Graph
    inputs: list[Input]
    constants: list[Array]
    own: list[TensorMeta]
    arena_bytes: int
    steps: list[Step]
    views: dict[Node, StridedView]
    returns: list[Node]
    written: list[int]
    plan: BufferPlan
    peak: int

    def __str__(self) -> str:
        lines = [
            f"{len(self.steps)} steps, arena {self.arena_bytes} bytes for {self.plan.unplanned}, "
            f"{len(self.own)} own, {len(self.constants)} constants"
        ]
        for step in self.steps:
            over = "" if step.overwrites is None else f"  in place of input {step.overwrites}"
            inputs = ", ".join(map(str, step.inputs))
            lines.append(f"{step.output} = {step.op.name}({inputs}){over}")
        return "\n".join(lines)


class _Scheduling(TinyTorchSemantics):
    """A fused group of elementwise ops is run as one elementwise op is, and the parts of a
    concatenation may be in its storage, which is then there from the first part on."""

    def storages(self, graph: Graph) -> Storages:
        found = super().storages(graph)
        for cat in graph.find_nodes(op="call_function"):
            parts = cat.meta.get("parts_in_place", ())
            own = found.held[cat]
            merged = {s for part in parts for s in found.held[part]}
            for node, held in found.held.items():
                if merged.intersection(held):
                    found.held[node] = own
            if parts:
                found.makers[own[0]] = next(node for node in graph.nodes if node in parts)
        return found

    def kind(self, node: AnyNode) -> str:
        if node.meta.get("may_overwrite"):
            return "elementwise"
        decomposition = getattr(node.target, "decomposition", None)
        if isinstance(decomposition, GraphDecomposition):
            inside = decomposition.graph.find_nodes(op="call_function")
            if all(super(_Scheduling, self).kind(n) == "elementwise" for n in inside):
                return "elementwise"
        return super().kind(node)


_SEMANTICS = _Scheduling()


def role_of(binding: Binding) -> Role:
    """The role of an input with this binding."""
    roles: dict[type[Binding], Role] = {
        ArgumentBinding: Role.ARGUMENT,
        GradBinding: Role.GRAD,
        SeedBinding: Role.SEED,
        ScalarBinding: Role.SCALAR,
    }
    return roles.get(type(binding), Role.STATE)


def schedule_traced(traced: TracedFunction, **options: Any) -> Schedule:
    """The schedule of a traced function; options are those of `schedule_graph`."""
    s = traced.signature
    first = len(result_nodes(traced.graph)) - len(s.updates)
    updates = {}
    unaliased = []
    for i, binding in enumerate(s.updates):
        if binding.writes_in_place:
            updates[first + i] = next(k for k, b in enumerate(s.inputs) if b.same(binding))
        else:
            unaliased.append(first + i)
    roles = [role_of(binding) for binding in s.inputs]
    return schedule_graph(traced.graph, roles, updates, unaliased, **options)


def schedule_graph(
    graph: Graph,
    roles: list[Role] | None = None,
    updates: dict[int, int] | None = None,
    unaliased: list[int] | None = None,
    *,
    is_kept: Callable[[Node], bool] = lambda node: False,
    writes_out: Callable[[Node], bool] = lambda node: True,
    can_write: CanWrite = lambda node, *views: False,
    may_overwrite: Callable[[Node], bool] = lambda node: False,
) -> Schedule:
    """Assign memory to the values of a graph, and order its kernel calls.

    Args:
        graph: with shapes and dtypes; it is not changed.
        roles: of the inputs; by default all are arguments.
        updates, unaliased: see `lower.CallingConvention`.
        is_kept: asked for a node of a fused op, whether something runs it as a whole; otherwise its
            parts are scheduled.
        writes_out: asked for a node, whether its kernel can write into memory that it is given;
            otherwise the node's memory is its own in every call.
        can_write: as for `lower`.
        may_overwrite: asked for a node that is not elementwise, whether its kernel may write in
            place of an operand of the result's shape as an elementwise op may: it has read an
            element before it writes there.

    Raises:
        GraphError: a node that is no op's, a shape that is not known, a result that is no value.
    """
    count = len(graph.find_nodes(op="placeholder"))
    roles = roles if roles is not None else [Role.ARGUMENT] * count
    numbers = [i for i, role in enumerate(roles) if role.is_number]
    convention = CallingConvention(updates or {}, unaliased or (), numbers)
    lowered = lower(graph, convention, is_kept, can_write)
    for node in lowered.find_nodes(op="call_function"):
        if may_overwrite(node):
            node.meta["may_overwrite"] = True
    return _Scheduler(lowered, roles, updates or {}, writes_out).schedule()


class _Scheduler:
    """Gives every node of a lowered graph its strided view."""

    def __init__(
        self,
        graph: Graph,
        roles: list[Role],
        updates: dict[int, int],
        writes_out: Callable[[Node], bool],
    ) -> None:
        self.graph = graph
        self.updates = updates
        self.writes_out = writes_out
        self.storages = TINYTORCH.storages(graph)
        self.roots: dict[Node, Node] = self.storages.roots
        self.rank = {node: i for i, node in enumerate(graph.nodes)}
        self.results = result_nodes(graph)
        self.returns = [n for i, n in enumerate(self.results) if i not in updates]
        self.held = {self.roots[n] for n in self.returns}
        nodes = graph.find_nodes(op="placeholder")
        self.inputs = [
            Input(n, n.meta["tensor_meta"], r) for n, r in zip(nodes, roles, strict=True)
        ]
        self.constants: list[Array] = []
        self.own: list[TensorMeta] = []
        self.views: dict[Node, StridedView] = {}

    def schedule(self) -> Schedule:
        for i, each in enumerate(self.inputs):
            self.views[each.node] = contiguous_view(Buffer(Memory.INPUT, i), 0, each.meta)
        self._derive_views(self.views)  # an update in place must know how an input is read
        for i, node in self._updates_in_place().items():
            self.views[node] = self.views[self.inputs[i].node]
        self._allocate_constants()
        separate = {n for n in self.roots if n in self.views or self._is_own(n)}
        for node in self.graph.find_nodes(op="call_function"):
            if node in separate and node not in self.views and self.roots[node] is node:
                self.views[node] = self._new_own(node.meta["tensor_meta"])
        plan = plan_buffers(self.graph, _SEMANTICS, separate)
        for storage, offset in plan.offsets.items():
            node = self.storages.makers[storage]
            self.views[node] = view_in_memory(node, Buffer(Memory.ARENA), offset)
            if "parts_in_place" in node.meta:
                self.views.update(views_of_parts(node, self.views[node]))
        self._derive_views(self.views)
        return Schedule(
            graph=self.graph,
            inputs=self.inputs,
            constants=self.constants,
            own=self.own,
            arena_bytes=plan.size,
            steps=[*self._steps(), *self._final_copies()],
            views=self.views,
            returns=self.returns,
            written=sorted(set(self.updates.values())),
            plan=plan,
            peak=self._peak(plan),
        )

    def _peak(self, plan: BufferPlan) -> int:
        """Bytes of the arena alive at once at the most; what is overwritten takes no more."""
        found = lifetimes(self.graph, _SEMANTICS.storages(self.graph))  # with the final copies
        arena = Memory.ARENA
        alive = {s: t for s, t in found.items() if self.views[t.node].buffer.memory is arena}
        for new, old in plan.in_place.items():
            alive[old].last = alive[new].first - 1
        return accumulate(self.graph, alive.values()).peak

    # -- views ------------------------------------------------------------------------------------

    def _derive_views(self, views: dict[Node, StridedView]) -> None:
        """The views that view ops make of what has one."""
        for node in self.graph.find_nodes(op="call_function"):
            if self.roots[node] is not node and node not in views and node.args[0] in views:
                view = view_of(node.target, views[node.args[0]], node.kwargs)
                assert view is not None, "lowering has put a copy before it"
                views[node] = view

    def _allocate_constants(self) -> None:
        """Constants, and what is made of nothing, once for all calls."""
        for node in self.graph.nodes:
            if node.op == "get_attr":
                array = self.graph.constants[node.target]
            elif is_creation(node) and node.meta["tensor_meta"].size <= CONSTANT_LIMIT:
                array = _SEMANTICS.evaluate(node, (), node.kwargs)._data
            else:
                continue
            buffer = Buffer(Memory.CONSTANT, len(self.constants))
            self.constants.append(np.asarray(array, order="C"))
            self.views[node] = contiguous_view(buffer, 0, node.meta["tensor_meta"])

    def _is_own(self, node: Node) -> bool:
        """Its memory leaves the call, or its kernel brings memory of its own."""
        if node.op != "call_function" or self.roots[node] is not node:
            return False
        return node in self.held or not self.writes_out(node)

    def _new_own(self, meta: TensorMeta) -> StridedView:
        self.own.append(meta)
        return contiguous_view(Buffer(Memory.OWN, len(self.own) - 1), 0, meta)

    def _updates_in_place(self) -> dict[int, Node]:
        """Inputs whose new value is computed right into them, with the node that does it."""
        last_read = last_reads(self.graph, self.storages)
        found: dict[int, Node] = {}
        for position, i in self.updates.items():
            new, old = self.results[position], self.inputs[i].node
            makes_it = new.op == "call_function" and self.roots[new] is new and new not in self.held
            if not makes_it or new in found.values() or is_creation(new):
                continue
            (storage,) = self.storages.held[old]
            last = last_read.get(storage, -1)
            if last < self.rank[new] or (last == self.rank[new] and self._reads_in_step(new, old)):
                found[i] = new
        return found

    def _reads_in_step(self, node: Node, old: Node) -> bool:
        """A node reads the memory of `old` element by element, in the order in which it writes."""
        read = [a for a in node.all_input_nodes if self.roots[a] is old]
        whole = self.views[old]
        if node.target is ops.dynamic_update_slice:
            return read == [node.args[0]] and self.views[node.args[0]] == whole
        return all(self.views[a] == whole and _reads_by_element(node, a) for a in read)

    # -- steps -------------------------------------------------------------------------------------

    def _steps(self) -> list[Step]:
        return [
            self._step(node, self.views[node])
            for node in self.graph.find_nodes(op="call_function")
            if self.roots[node] is node
            and self.views[node].buffer.memory is not Memory.CONSTANT
            and "parts_in_place" not in node.meta
        ]

    def _step(self, node: Node, output: StridedView) -> Step:
        inputs = tuple([self.views[a] if isinstance(a, Node) else a for a in node.args])
        overwrites = [
            i for i, view in enumerate(inputs)
            if isinstance(view, StridedView)
            and (view.buffer, view.offset) == (output.buffer, output.offset)
            and output.size
        ]  # fmt: skip
        return Step(
            node=node,
            op=node.target,
            params=node.kwargs,
            plan=plan_of(node),
            inputs=inputs,
            output=output,
            overwrites=overwrites[0] if overwrites else None,
        )

    def _final_copies(self) -> list[Step]:
        """Copies of new values into inputs that they could not be computed into."""
        steps = []
        output = self.graph.output_node()
        for position, i in self.updates.items():
            new, target = self.results[position], self.views[self.inputs[i].node]
            if self.views[new] == target:
                continue
            with self.graph.inserting_before(output):
                node: Node = _SEMANTICS.call(self.graph, "copy", [new], {})
            node.meta["phase"] = new.meta.get("phase", "forward")
            self.views[node] = target
            steps.append(self._step(node, target))
        return steps


def _reads_by_element(node: Node, source: Node) -> bool:
    """Nothing but elementwise ops of the result's shape read this input of a node."""
    if _SEMANTICS.kind(node) == "elementwise":
        return True
    decomposition = getattr(node.target, "decomposition", None)
    if not isinstance(decomposition, GraphDecomposition):
        return False
    body = decomposition.graph
    inside = zip(body.find_nodes(op="placeholder"), node.args, strict=True)
    return all(
        _SEMANTICS.kind(user) == "elementwise"
        and user.meta["tensor_meta"].shape == node.meta["tensor_meta"].shape
        for placeholder, outside in inside
        if outside is source
        for user in placeholder.users
    )
