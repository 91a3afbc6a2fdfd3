"""`Tracer`: a mode that writes ops down instead of computing them.

It is at the bottom of the stack of modes, where the backend would, and answers each op with a
`Symbol`, which has a shape and a dtype and no numbers.

The graph is functional. An in-place write makes a new value, which stands for the tensor from then
on and becomes a result of the graph. Views of a tensor that is written are taken again when they
are next read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import CodeType, FunctionType
from typing import Any, NoReturn

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import SCALAR_TYPES, Input, Mode, wrap
from tinytorch.dtypes import DType, TensorMeta, bool_, int64, tensor_meta
from tinytorch.graph.bindings import (
    ArgumentBinding,
    Binding,
    GradBinding,
    ScalarBinding,
    SeedBinding,
    StateBinding,
)
from tinytorch.graph.environment import Environment
from tinytorch.graph.facts import is_library
from tinytorch.graph.ir import Graph, Node
from tinytorch.graph.lint import result_meta
from tinytorch.graph.references import only_tensor_holds, only_trace_holds
from tinytorch.graph.symbols import (
    ADVICE,
    OTHER_ADVICE,
    Storage,
    Symbol,
    TraceError,
    View,
    is_contiguous,
    user_line,
)
from tinytorch.graph.value_guards import ValueGuard, source_of
from tinytorch.history import owner_of, write_clock
from tinytorch.op import Op, Params, Plan
from tinytorch.random import Generator
from tinytorch.state import current_phase, is_recording
from tinytorch.tensor import Tensor

#: Of an input whose values every call looks at, beside the part that needs it: 16 slices of one
#: batch of labels are looked at together, but not a corpus for the sake of a batch.
LARGEST_SOURCE = 16


class Tracer(Mode):
    """Writes the ops of a block into a graph."""

    def __init__(self, environment: Environment, decompose: bool | None, assume: bool) -> None:
        self.decompose = decompose
        self._assume = assume  # that every tensor has a gradient already
        self.environment = environment
        self.graph = Graph()
        self.wrote_leaf = False
        self.hooked_at = ""  # the line that registered a gradient hook on a result
        self.wrote_recorded = ""  # where a value with a history was written first
        self.inputs: dict[Node, Binding] = {}
        self._last_input: Node | None = None
        self._lifted: dict[int, Storage] = {}  # by the ids of their arrays
        self.arguments: list[tuple[Tensor, Binding, Tensor | None]] = []  # with .grads before
        self._storages: dict[Node, Storage] = {}  # of all inputs that are memory
        self._owners: dict[Node, Storage] = {}  # of what makes the memory of results
        self.grads_before: dict[Tensor, Tensor | None] = {}
        self._actual_grads: dict[Tensor, Tensor | None] = {}
        self._seeds: dict[tuple[Generator, int], Node] = {}
        self._scalars: dict[Hashable, Node] = {}
        self.live: set[CodeType] = set()  # of functions that are called for scalars
        self._generators: dict[Generator, dict[str, int]] = {}  # and their states before
        self._grads: dict[int, Binding] = {}  # of tensors that are some tensor's .grad, by id
        self.value_guards: list[ValueGuard] = []
        self.orders: set[Node] = set()  # inputs of which `contiguous` has asked the order in memory

    # -- what a mode does --------------------------------------------------------------------------

    def run(self, op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan) -> Any:
        args = tuple([t if type(t) in SCALAR_TYPES else self.node_of(t) for t in inputs])
        node = self._emit(op, args, params)
        if not is_recording() and plan.differentiable and _any_requires_grad(inputs):
            # the history stops here; in a graph that is differentiated later it must too
            node = self._emit(ops.detach, (node,), {})
            node.meta["from_no_grad"] = True
        if not op.view:
            symbol = self._symbol(plan.meta, node, *self._order_of_result(op, inputs))
            symbol.storage.is_recorded = (
                plan.differentiable and is_recording() and _any_requires_grad(inputs)
            )
            return symbol
        source = self._storage_and_views(inputs[0])
        view: View = (op, dict(params), inputs[0].meta, plan.meta)
        if op is ops.reshape and not is_contiguous(inputs[0]):
            source[0].reshaped = view
        return Symbol(self, plan.meta, node, source[0], (*source[1], view))

    def write(self, target: Tensor, data: Any) -> None:
        value = self.value_of(data)
        storage, views = self._storage_and_views(target)
        _check_not_copied(storage, target)
        new, bases, base = value, [], storage.node
        for op, params, _, _ in views:
            bases.append(base)
            if len(bases) < len(views):
                base = self._emit(op, (base,), params)
        for view, base in zip(reversed(views), reversed(bases), strict=True):
            new = self._put_back(view, base, new)
        storage.node = new
        storage.version += 1
        self.wrote_leaf |= target.requires_grad or storage.is_leaf
        if storage.is_recorded and not self.wrote_recorded:
            self.wrote_recorded = user_line(with_code=True)
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
        if isinstance(read, FunctionType) and not is_library(read.__module__):
            self.live.add(read.__code__)
        node = self._scalars.get((key, dtype)) if key is not None else None
        if node is None:
            node = self.add_input("scalar", meta, ScalarBinding(read, dtype))
            self._scalars[key, dtype] = node
        return self._symbol(meta, node)

    def unaliased(self, tensor: Tensor) -> Any:
        if not isinstance(tensor._data, Symbol):
            return None
        node = self.value_of(tensor._data)  # no op: a graph knows only values
        return Symbol(self, tensor.meta, node, Storage(node, np.empty(0), None), ())

    def contiguous(self, tensor: Tensor) -> Tensor | None:
        symbol = tensor._data
        if not isinstance(symbol, Symbol):
            return None
        self.orders |= symbol.storage.orders
        if symbol.is_contiguous:
            return tensor
        copied: Tensor = tensor.clone()
        if symbol.is_contiguous is None:
            symbol.storage.may_be_shared = True
            copied._data.storage.may_be_shared = True
        return copied

    def is_private(self, tensor: Tensor) -> bool | None:
        if not isinstance(tensor._data, Symbol):
            if not self.may_change(tensor):
                return None
            self._refuse_history(tensor)
        if tensor._data.storage in self._storages.values():
            self._refuse_history(tensor)
        _check_not_copied(tensor._data.storage, tensor)
        if only_tensor_holds(tensor):
            return True
        reshaped = tensor._data.storage.reshaped
        for view in (*tensor._data.views, *([reshaped] if reshaped else [])):
            _check_is_view(view)
        return False

    def _refuse_history(self, tensor: Tensor) -> NoReturn:
        raise TraceError(
            f"a tensor of shape {tensor.shape} from outside of the trace is written in place, at "
            f"{user_line(with_code=True)}, with values that have a history, and a call of the "
            f"trace could not leave that in it; write into a copy, t = t.clone(), and return it"
        )

    def may_change(self, tensor: Tensor) -> bool:
        return self.environment.name_of(tensor) is not None or id(tensor._data) in self._lifted

    def assume(
        self, tensor: Tensor, condition: Callable[..., bool], args: tuple[Any, ...]
    ) -> bool | None:
        if not isinstance(tensor._data, Symbol) and not self.may_change(tensor):
            return None
        source = source_of(self.node_of(tensor))
        binding = self.inputs.get(source)
        if not isinstance(binding, (ArgumentBinding, StateBinding)):
            return False
        example = source.meta["example"]
        if example.size > LARGEST_SOURCE * tensor.meta.size or not condition(example, *args):
            return False
        guard = ValueGuard(source.target, binding, condition, args)
        if guard not in self.value_guards:
            self.value_guards.append(guard)
        return True

    def values_asked(self, tensor: Tensor, asked: str) -> None:
        if self.may_change(tensor):
            of = self.environment.name_of(tensor) or "a tensor from outside"
            raise TraceError(
                f"{asked}: the values of {of} ({tensor.meta}) would be frozen into the graph, or "
                f"changed only while it is traced.\n"
                f"  at {user_line(with_code=True)}\n"
                f"  instead: {ADVICE.get(asked, OTHER_ADVICE)}"
            )

    def hook_registered(self, tensor: Tensor) -> None:
        if tensor.history is None:
            raise TraceError(
                f"register_hook on a leaf, at {user_line(with_code=True)}, would register it once, "
                f"and not at every call; register it outside"
            )
        self.hooked_at = user_line(with_code=True)

    def seeded(self, generator: Generator) -> None:
        raise TraceError(
            f"manual_seed, or a new Generator, at {user_line(with_code=True)}: it would be seeded "
            f"once, and not at every call; seed it outside"
        )

    # -- nodes -------------------------------------------------------------------------------------

    def _emit(self, op: Op, args: tuple[Any, ...], params: Params) -> Node:
        node = self.graph.call_function(op, args, dict(params))
        meta = result_meta(node)
        node.meta.update(tensor_meta=meta, phase=current_phase(), stack_trace=user_line())
        return node

    def add_input(self, name: str, meta: TensorMeta, binding: Binding) -> Node:
        """A placeholder after those there are."""
        with self.graph.inserting_before(last.next if (last := self._last_input) else None):
            node = self._last_input = self.graph.placeholder(name)
        node.meta.update(tensor_meta=meta, stack_trace=user_line())
        self.inputs[node] = binding
        return node

    def _symbol(self, meta: TensorMeta, node: Node, *order: Any) -> Symbol:
        return Symbol(self, meta, node, Storage(node, np.empty(0), *order), ())

    def _order_of_result(self, op: Op, inputs: tuple[Input, ...]) -> tuple[Any, ...]:
        """NumPy lets results of elementwise ops and reductions follow the order of operands."""
        if op.kind not in ("elementwise", "reduction", "scan") and op is not ops.cast:
            return ()
        tensors = [t for t in inputs if type(t) not in SCALAR_TYPES]
        orders = [self._storage_and_views(t)[0].orders for t in tensors]
        return all(is_contiguous(t) for t in tensors) or None, frozenset().union(*orders)

    def argument(self, example: Tensor, name: str, position: int) -> Tensor:
        """The tensor that the traced function is given in place of an example."""
        example._concrete("argument of trace")
        binding = ArgumentBinding(position)
        node = self.add_input(name, example.meta, binding)
        node.meta["example"] = example._data
        in_order = example._data.flags.c_contiguous
        symbol = self._symbol(example.meta, node, in_order, frozenset([node]))
        self._storages[node] = symbol.storage
        symbol.storage.is_leaf = example.requires_grad
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
        if tensor in self.grads_before:
            return
        self._actual_grads[tensor] = tensor.grad
        if tensor.grad is None and self._assume:
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

    def assumed(self) -> list[Tensor]:
        """The tensors whose gradient the function read although it is not there."""
        bindings = [b for b in self.inputs.values() if isinstance(b, GradBinding)]
        return [
            tensor
            for tensor, actual in self._actual_grads.items()
            if actual is None and any(GradBinding(StateBinding(tensor)).same(b) for b in bindings)
        ]

    def dropped(self) -> list[Tensor]:
        """The tensors whose gradient the function dropped or replaced, although it is not there."""
        return [
            tensor
            for tensor, actual in self._actual_grads.items()
            if actual is None and tensor.grad is not self.grads_before[tensor]
        ]

    def node_of(self, tensor: Tensor) -> Node:
        """The node of a tensor's present value; a tensor from outside becomes an input."""
        data = tensor._data
        return self._lift(tensor).node if isinstance(data, np.ndarray) else self.value_of(data)

    def result_of(self, tensor: Tensor) -> Node:
        """The node of a result: a copy where its value is in the memory of another tensor, as a
        write of whole tensors has left it."""
        root = node = self.node_of(tensor)
        while isinstance(root.target, Op) and root.target.view:
            root = root.all_input_nodes[0]
        storage = self._storage_and_views(tensor)[0]
        if self._owners.setdefault(root, self._storages.get(root, storage)) is storage:
            return node
        return self._emit(ops.copy, (node,), {})

    def input_of(self, tensor: Tensor) -> Node | None:
        """The input that a tensor itself is; None for what was computed here."""
        binding: Binding = self._grads.get(id(tensor)) or StateBinding(tensor)
        for given, argument, _ in self.arguments:
            binding = argument if given is tensor else binding
        return next((node for node, b in self.inputs.items() if b.same(binding)), None)

    def viewed_by(self, tensor: Tensor) -> tuple[Node | None, tuple[View, ...]]:
        """The input that a tensor is a view of, and by which views; None for other memory."""
        data = tensor._data
        if not isinstance(data, Symbol) or not data.views:
            return None, ()
        return next((n for n, s in self._storages.items() if s is data.storage), None), data.views

    def _storage_and_views(self, tensor: Tensor) -> tuple[Storage, tuple[View, ...]]:
        data = tensor._data
        if isinstance(data, np.ndarray):
            return self._lift(tensor), ()
        return data.storage, data.views

    def _lift(self, tensor: Tensor) -> Storage:
        array = tensor._data
        storage = self._lifted.get(id(array))
        if storage is None:
            if tensor.requires_grad:  # a constant made inside has no gradient, and none may hold it
                self.watch_grad(tensor)
            binding = self._grads.get(id(tensor)) or StateBinding(tensor)
            name = self.environment.name_of(tensor) or "tensor"
            node = self.add_input(name, tensor.meta, binding)
            node.meta["example"] = array
            storage = self._lifted[id(array)] = self._storages[node] = Storage(
                node, array, array.flags.c_contiguous, frozenset([node])
            )
            storage.is_leaf = tensor.requires_grad
        return storage

    def value_of(self, symbol: Symbol) -> Node:
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
        ones = {"shape": after.shape, "value": True, "dtype": bool_}
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
            if node.target == "tensor" and only_trace_holds(binding, storage):
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


def _any_requires_grad(inputs: tuple[Input, ...]) -> bool:
    return any(t.requires_grad for t in inputs if type(t) not in SCALAR_TYPES)


def _check_not_copied(storage: Storage, tensor: Tensor) -> None:
    if storage.may_be_shared:
        raise TraceError(
            f"a tensor of shape {tensor.shape} is written at {user_line(with_code=True)}, and "
            f"whether contiguous() copied it depends on memory order; write clone() there"
        )


def _check_is_view(view: View) -> None:
    """A reshape that merges or splits dimensions is a view or a copy, depending on memory order."""
    op, _, before, after = view
    long = [[n for n in meta.shape if n != 1] for meta in (before, after)]
    if op is ops.reshape and long[0] != long[1]:
        raise TraceError(
            f"a reshape from {before.shape} to {after.shape} may share memory or not, and one of "
            f"the two tensors was written in place, at {user_line(True)}; write before the reshape"
        )
