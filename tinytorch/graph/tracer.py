"""`Tracer`: a mode that writes ops down instead of computing them.

It stands at the bottom of the stack of modes, where the backend would, and answers each op with a
`Symbol`, which has a shape and a dtype and no numbers.

The graph is functional. An in-place write makes a new value, which stands for the tensor from then
on and becomes a result of the graph. Views of a tensor that is written are taken again when they
are next read.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np

import tinytorch
from tinytorch import ops
from tinytorch.dispatch import SCALAR_TYPES, Input, Mode, wrap
from tinytorch.dtypes import Array, DType, Shape, TensorMeta, int64, tensor_meta
from tinytorch.errors import TinyTorchError
from tinytorch.graph.bindings import (
    ArgumentBinding,
    Binding,
    Environment,
    GradBinding,
    ScalarBinding,
    SeedBinding,
    StateBinding,
)
from tinytorch.graph.ir import Graph, Node
from tinytorch.graph.lint import result_meta
from tinytorch.history import owner_of, write_clock
from tinytorch.op import Op, Params, Plan
from tinytorch.random import Generator
from tinytorch.state import current_phase, is_grad_enabled
from tinytorch.tensor import Tensor

PACKAGE = str(Path(tinytorch.__file__).parent)
ADVICE = {
    "bool": "where(condition, a, b) computes both sides and chooses; a flag that is fixed can be a "
    "Python value",
    "item": "keep it a 0-d tensor: ops take tensors where they take numbers",
    "numpy": "use the functions of tinytorch, or compute it outside and pass it in as an argument",
    "tolist": "unbind gives a tuple of tensors; or return the tensor and read it outside",
    "assignment to an index": "where(mask, value, t), or t.copy_(...) for all of it",
    "tensor": "t.detach() or t.clone() instead of tensor(t)",
}
OTHER_ADVICE = "compute it outside of the trace and pass it in"


class TraceError(TinyTorchError, TypeError):
    """Code that cannot be traced. The message gives the user's line and what to write instead."""


class Storage:
    """Memory that symbols share: the node of its present value, and how often it was written."""

    __slots__ = ("array", "node", "version")

    def __init__(self, node: Node, array: Array) -> None:
        self.node = node
        self.array = array  # what the write clock knows this memory by
        self.version = 0


View = tuple[Op, dict[str, Any], TensorMeta, TensorMeta]  # op, params, metas before and after


class Symbol:
    """Stands where a traced tensor has its array. Knows the node, and which memory it views."""

    __slots__ = ("meta", "node", "storage", "tracer", "version", "views")

    def __init__(
        self,
        tracer: Tracer,
        meta: TensorMeta,
        node: Node,
        storage: Storage,
        views: tuple[View, ...],
    ) -> None:
        self.tracer = tracer
        self.meta = meta
        self.node = node
        self.storage = storage
        self.views = views
        self.version = storage.version

    @property
    def shape(self) -> Shape:
        """As an array's."""
        return self.meta.shape

    @property
    def base(self) -> Array:
        """As an array's: the write clock follows it to find the memory."""
        return self.storage.array

    def concrete(self, asked: str) -> Array:
        """Called where code asks for the values.

        Raises:
            TraceError: always.
        """
        advice = ADVICE.get(asked, OTHER_ADVICE)
        raise TraceError(
            f"{asked}: a trace knows {self.meta}, not the values of it.\n"
            f"  at {user_line(with_code=True)}\n"
            f"  made at {self.node.stack_trace}\n"
            f"  instead: {advice}"
        )


def user_line(with_code: bool = False) -> str:
    """The innermost line of the stack that is not TinyTorch's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    name, line = frame.f_code.co_filename, frame.f_lineno
    place = f"{Path(name).name}:{line} in {frame.f_code.co_name}"
    return f"{place}: `{linecache.getline(name, line).strip()}`" if with_code else place


class Tracer(Mode):
    """Writes the ops of a block into a graph."""

    def __init__(self, environment: Environment, decompose: bool | None, pretend: bool) -> None:
        self.decompose = decompose
        self._pretend = pretend  # that every tensor has a gradient already
        self.environment = environment
        self.graph = Graph()
        self.wrote_leaf = False
        self.inputs: dict[Node, Binding] = {}
        self._last_input: Node | None = None
        self._lifted: dict[int, Storage] = {}  # by the ids of their arrays
        self.arguments: list[tuple[Tensor, Binding, Tensor | None]] = []  # with .grads before
        self._storages: dict[Node, Storage] = {}  # of all inputs that are memory
        self.grads_before: dict[Tensor, Tensor | None] = {}
        self._actual_grads: dict[Tensor, Tensor | None] = {}
        self._seeds: dict[tuple[Generator, int], Node] = {}
        self._scalars: dict[Hashable, Node] = {}
        self._generators: dict[Generator, dict[str, int]] = {}  # and their states before
        self._grads: dict[int, Binding] = {}  # of tensors that are some tensor's .grad, by id

    # -- what a mode does --------------------------------------------------------------------------

    def run(self, op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan) -> Any:
        args = tuple([t if type(t) in SCALAR_TYPES else self.node_of(t) for t in inputs])
        node = self._emit(op, args, params)
        if not is_grad_enabled() and plan.differentiable and _any_requires_grad(inputs):
            # the history stops here; in a graph that is differentiated later it must too
            node = self._emit(ops.detach, (node,), {})
            node.meta["from_no_grad"] = True
        if not op.view:
            return self._symbol(plan.meta, node)
        source = self._storage_and_views(inputs[0])
        view: View = (op, dict(params), inputs[0].meta, plan.meta)
        return Symbol(self, plan.meta, node, source[0], (*source[1], view))

    def write(self, target: Tensor, data: Any) -> None:
        value = self._fresh(data)
        storage, views = self._storage_and_views(target)
        new, bases, base = value, [], storage.node
        for op, params, _, _ in views:
            bases.append(base)
            if len(bases) < len(views):
                base = self._emit(op, (base,), params)
        for view, base in zip(reversed(views), reversed(bases), strict=True):
            new = self._put_back(view, base, new)
        storage.node = new
        storage.version += 1
        self.wrote_leaf |= target.requires_grad
        write_clock.write(storage.array)
        if isinstance(target._data, Symbol):
            target._data.node, target._data.version = value, storage.version

    def seed(self, generator: Generator) -> Any:
        self._generators.setdefault(generator, generator.get_state())
        drawn = generator.draw_seed()  # seen before only if the generator was set back
        node = self._seeds.get((generator, drawn))
        if node is None:
            node = self.add_input("seed", tensor_meta((), int64), SeedBinding(generator))
            self._seeds[generator, drawn] = node
        return self._symbol(tensor_meta((), int64), node)

    def scalar(self, read: Callable[[], float], dtype: DType, key: Hashable) -> Any:
        meta = tensor_meta((), dtype)
        node = self._scalars.get((key, dtype)) if key is not None else None
        if node is None:
            node = self.add_input("scalar", meta, ScalarBinding(read, dtype))
            self._scalars[key, dtype] = node
        return self._symbol(meta, node)

    def values_asked(self, tensor: Tensor, asked: str) -> None:
        name = self.environment.name_of(tensor)
        if name is not None or id(tensor._data) in self._lifted:
            raise TraceError(
                f"{asked}: the values of {name or 'a tensor from outside'} ({tensor.meta}) would "
                f"be frozen into the graph, or changed only while it is traced.\n"
                f"  at {user_line(with_code=True)}\n"
                f"  instead: {ADVICE.get(asked, OTHER_ADVICE)}"
            )

    # -- nodes -------------------------------------------------------------------------------------

    def _emit(self, op: Op, args: tuple[Any, ...], params: Params) -> Node:
        node = self.graph.call_function(op, args, dict(params))
        node.meta["tensor_meta"] = result_meta(node)
        node.meta["phase"] = current_phase()
        node.meta["stack_trace"] = user_line()
        return node

    def add_input(self, name: str, meta: TensorMeta, binding: Binding) -> Node:
        """A placeholder after those there are."""
        last = self._last_input
        with self.graph.inserting_before(last.next if last is not None else None):
            node = self._last_input = self.graph.placeholder(name)
        node.meta.update(tensor_meta=meta, stack_trace=user_line())
        self.inputs[node] = binding
        return node

    def _symbol(self, meta: TensorMeta, node: Node) -> Symbol:
        return Symbol(self, meta, node, Storage(node, np.empty(0)), ())

    def argument(self, example: Tensor, name: str, position: int) -> Tensor:
        """The tensor that the traced function is given in place of an example."""
        example._concrete("argument of trace")
        binding = ArgumentBinding(position)
        node = self.add_input(name, example.meta, binding)
        node.meta["example"] = example._data
        symbol = self._symbol(example.meta, node)
        self._storages[node] = symbol.storage
        tensor = wrap(symbol, example.meta)
        tensor.requires_grad = example.requires_grad
        if example.grad is not None:
            tensor.grad = self._gradient(example.grad, f"{name}.grad", GradBinding(binding))
        self.arguments.append((tensor, binding, tensor.grad))
        return tensor

    def _gradient(self, example: Tensor, name: str, binding: Binding) -> Tensor:
        """The tensor that stands for a `.grad` that an argument came with."""
        node = self.add_input(name, example.meta, binding)
        node.meta["example"] = example._data
        symbol = self._symbol(example.meta, node)
        self._storages[node] = symbol.storage
        return wrap(symbol, example.meta)

    def watch_grad(self, tensor: Tensor) -> None:
        """Remember the `.grad` of a tensor from outside as it is before the function runs."""
        if not tensor.requires_grad or tensor in self.grads_before:
            return
        self._actual_grads[tensor] = tensor.grad
        if tensor.grad is None and self._pretend:
            tensor.grad = wrap(
                np.broadcast_to(np.zeros((), tensor.dtype), tensor.shape), tensor.meta
            )
        self.grads_before[tensor] = tensor.grad
        if tensor.grad is not None:
            self._grads[id(tensor.grad)] = GradBinding(StateBinding(tensor))

    def restore(self) -> None:
        """Leave gradients and generators as they were before the function ran."""
        for tensor, gradient in self._actual_grads.items():
            tensor.grad = gradient
        for generator, state in self._generators.items():
            generator.set_state(state)

    @property
    def used_pretence(self) -> bool:
        """The function read a gradient that is not there."""
        bindings = [b for b in self.inputs.values() if isinstance(b, GradBinding)]
        return any(
            actual is None and any(GradBinding(StateBinding(tensor)).same(b) for b in bindings)
            for tensor, actual in self._actual_grads.items()
        )

    def node_of(self, tensor: Tensor) -> Node:
        """The node of a tensor's present value; a tensor from outside becomes an input."""
        data = tensor._data
        return self._lift(tensor).node if isinstance(data, np.ndarray) else self._fresh(data)

    def _storage_and_views(self, tensor: Tensor) -> tuple[Storage, tuple[View, ...]]:
        data = tensor._data
        if isinstance(data, np.ndarray):
            return self._lift(tensor), ()
        return data.storage, data.views

    def _lift(self, tensor: Tensor) -> Storage:
        array = tensor._data
        storage = self._lifted.get(id(array))
        if storage is None:
            self.watch_grad(tensor)
            binding = self._grads.get(id(tensor)) or StateBinding(tensor)
            name = self.environment.name_of(tensor) or "tensor"
            node = self.add_input(name, tensor.meta, binding)
            node.meta["example"] = array
            storage = self._lifted[id(array)] = self._storages[node] = Storage(node, array)
        return storage

    def _fresh(self, symbol: Symbol) -> Node:
        """The symbol's node; if its memory was written since, the view is taken again."""
        if symbol.tracer is not self:
            raise TraceError(
                f"a tensor of another trace ({symbol.meta}) came in at {user_line(True)}; pass it "
                f"as an argument"
            )
        if symbol.version != symbol.storage.version:
            node = symbol.storage.node
            for view in symbol.views:
                _check_is_view(view)
                node = self._emit(view[0], (node,), view[1])
            symbol.node, symbol.version = node, symbol.storage.version
        return symbol.node

    def _put_back(self, view: View, base: Node, value: Node) -> Node:
        """The base's new value after `value` was written into a view of it."""
        op, params, before, after = view
        _check_is_view(view)
        if op is ops.detach:
            return value
        if op is ops.reshape:
            return self._emit(ops.reshape, (value,), {"shape": before.shape})
        if op is ops.permute:
            order = tuple(params["dims"].index(i) for i in range(before.ndim))
            return self._emit(ops.permute, (value,), {"dims": order})
        if op is not ops.slice_:
            raise TraceError(
                f"writing into {op.name} of a tensor cannot be traced, at {user_line(True)}; write "
                f"into the tensor itself, or into a copy"
            )
        ones = {"shape": after.shape, "value": True, "dtype": tinytorch.bool_}
        place = {"shape": before.shape, "bounds": params["bounds"]}
        mask = self._emit(ops.unslice, (self._emit(ops.full, (), ones),), place)
        return self._emit(ops.where, (mask, self._emit(ops.unslice, (value,), place), base), {})

    # -- the end -----------------------------------------------------------------------------------

    def written(self) -> list[tuple[Binding, Node]]:
        """What was written of the memory from outside: where it belongs, and its new value.

        Raises:
            TraceError: another input shares the memory, so that the writes would show there.
        """
        changed = [(n, s) for n, s in self._storages.items() if s.version]
        for node, _ in changed:
            owner = owner_of(node.meta["example"])
            for other in self._storages:
                if other is not node and owner_of(other.meta["example"]) is owner:
                    raise TraceError(
                        f"{node.target} is written in place and shares memory with "
                        f"{other.target}; let one of them be a copy"
                    )
        return [(self.inputs[node], storage.node) for node, storage in changed]

    def make_constants(self) -> None:
        """Inputs that only the trace holds cannot change any more: they become constants."""
        for node, storage in list(self._storages.items()):
            binding = self.inputs[node]
            if not isinstance(binding, StateBinding) or storage.version:
                continue
            if node.target == "tensor" and _is_private(binding, storage, node):
                name = f"constant_{len(self.graph.constants)}"
                self.graph.constants[name] = node.meta["example"]
                with self.graph.inserting_after(self._last_input):
                    constant = self.graph.get_attr(name)
                constant.meta.update(node.meta)
                node.replace_all_uses_with(constant)
                del self.inputs[node]
                self.graph.erase_node(node)

    def make_undifferentiable(self) -> None:
        """Take out what only matters when the graph is differentiated."""
        for node in self.graph.nodes:
            if "from_no_grad" in node.meta:
                node.replace_all_uses_with(node.args[0])
                self.graph.erase_node(node)


def _is_private(binding: StateBinding, storage: Storage, node: Node) -> bool:
    """Nobody but the trace holds the tensor, its array, or the memory that the array views.

    Counted are the references known here and the argument of `getrefcount` itself.
    """
    array = storage.array
    owner = owner_of(array)
    return (
        sys.getrefcount(binding.tensor) <= 2  # the binding's
        and sys.getrefcount(array) <= 5 + (owner is array)  # tensor, storage, meta, and `array`
        and (owner is array or sys.getrefcount(owner) <= 3)  # the array's, and `owner`
    )


def _any_requires_grad(inputs: tuple[Input, ...]) -> bool:
    return any(t.requires_grad for t in inputs if type(t) not in SCALAR_TYPES)


def _check_is_view(view: View) -> None:
    """A reshape that merges or splits dimensions is a view or a copy, depending on memory order."""
    op, _, before, after = view
    long = [[n for n in meta.shape if n != 1] for meta in (before, after)]
    if op is ops.reshape and long[0] != long[1]:
        raise TraceError(
            f"a reshape from {before.shape} to {after.shape} may share memory or not, and one of "
            f"the two tensors was written in place, at {user_line(True)}; write before the reshape"
        )
