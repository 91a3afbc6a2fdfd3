"""`AtenModule`: an ATen graph run as Tensor code.

So it runs on any of our backends; `trace` makes our graph of it, and `tinytorch.compile` compiles
it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Collection
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from tinytorch.dispatch import is_tensor
from tinytorch.errors import ShapeError, TinyTorchError
from tinytorch.fx.convert.aten import ATEN
from tinytorch.fx.convert.exchange import dtype_from_torch, meta_from_torch, tensor_from_torch
from tinytorch.graph.interpret import last_uses
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter

OTHER = "make a module for it by from_torch(model, inputs)"


class UnsupportedAtenError(TinyTorchError, NotImplementedError):
    """A node of a PyTorch graph that TinyTorch cannot run."""


def aten_name(target: Any) -> str | None:
    """The name of an overload in our table, "add.Tensor" or "relu"; None for anything else.

    That of a library's own operator begins with the library: "transformers::grouped_mm_fallback".
    """
    if not isinstance(target, torch._ops.OpOverload):
        return None
    return str(target.name()).removeprefix("aten::")  # type: ignore[no-untyped-call]


def is_write(node: Node) -> bool:
    """A copy into a buffer or an input: the form in which export keeps what a model writes."""
    return node.target is torch.ops.aten.copy_.default and node.all_input_nodes[0].op in (
        "get_attr", "placeholder"
    )  # fmt: skip


def call_node(node: Node, args: Any, kwargs: Any) -> Any:
    """The value of a call_function node on Tensor arguments.

    Raises:
        UnsupportedAtenError: there is no such operator here.
    """
    if node.target is operator.getitem:
        return args[0][args[1]]
    name = aten_name(node.target)
    if name is None or name not in ATEN:
        raise UnsupportedAtenError(
            f"{node.target} (of {node.name}) is not among the {len(ATEN)} ATen operators that "
            f"TinyTorch knows"
        )
    return ATEN[name](*_converted(args), **_converted(dict(kwargs)))


def _converted(arguments: Any) -> Any:
    """Arguments with our dtypes in place of PyTorch's."""
    return pytree.tree_map(
        lambda a: dtype_from_torch(a) if isinstance(a, torch.dtype) else a, arguments
    )


class AtenModule(Module):
    """The graph of a `torch.fx.GraphModule` whose nodes are ATen operators.

    The values of its get_attr nodes are parameters (those that are parameters there) and buffers,
    under their names with dots replaced; they share memory with PyTorch's.

    Args:
        module: a graph of static shapes, without in-place operators but for `is_write`.
        names: of its keyword arguments, in the order of the placeholders.
    """

    def __init__(self, module: GraphModule, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._graph, self._names = module.graph, names
        self._expected = [(n.name, n.meta["val"]) for n in self._graph.find_nodes(op="placeholder")]
        self._last_uses = last_uses(module.graph)
        self._attributes: dict[str, str] = {}
        parameters = dict(module.named_parameters(remove_duplicate=False))
        shared: dict[int, str] = {}
        for node in self._graph.find_nodes(op="get_attr"):
            name = str(node.target)
            value = parameters.get(name)
            value = operator.attrgetter(name)(module) if value is None else value
            if not isinstance(value, torch.Tensor):
                raise UnsupportedAtenError(f"{name} is no tensor but {type(value).__name__}")
            if id(value) not in shared:  # tied parameters are one
                shared[id(value)] = own = _identifier(name, shared.values())
                self._add_state(own, value, name in parameters)
            self._attributes[name] = shared[id(value)]

    def _add_state(self, name: str, value: torch.Tensor, is_parameter: bool) -> None:
        tensor = tensor_from_torch(value)
        if is_parameter and value.requires_grad:
            setattr(self, name, Parameter.from_numpy(tensor.numpy()))
        else:
            self.register_buffer(name, tensor)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The graph's output on its inputs, in a row or by name; numbers stay numbers.

        Raises:
            TypeError: there are more or fewer inputs, or they have other names.
            ShapeError: one has not the shape and dtype that it was captured with.
            ValueError: a number or None is another one.
        """
        given = iter(self._checked(inputs, named))
        env: dict[Node, Any] = {}
        for node in self._graph.nodes:
            if node.op == "placeholder":
                env[node] = next(given)
            elif node.op == "get_attr":
                env[node] = getattr(self, self._attributes[str(node.target)])
            elif node.op == "output":
                return torch.fx.node.map_arg(node.args[0], env.__getitem__)
            elif is_write(node):
                target, source = node.args[:2]
                env[node] = env[target].copy_(env[source].detach())  # the next call has its own
            else:
                args = torch.fx.node.map_arg(node.args, env.__getitem__)
                kwargs = torch.fx.node.map_arg(node.kwargs, env.__getitem__)
                env[node] = call_node(node, args, kwargs)
            for dead in self._last_uses.get(node, ()):
                del env[dead]
        raise UnsupportedAtenError("the graph has no output")

    def _checked(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """The leaves of the inputs. Sizes and numbers are constants in the graph, so that others
        could give a wrong result."""
        if named and (inputs or named.keys() != set(self._names)):
            raise TypeError(
                f"captured as a call with the keywords {', '.join(self._names) or 'none'}, but "
                f"called with {len(inputs)} positional arguments and {', '.join(named)}"
            )
        leaves = pytree.tree_leaves([named[n] for n in self._names] if named else inputs)
        if len(leaves) != len(self._expected):
            raise TypeError(
                f"captured with {len(self._expected)} inputs, but called with {len(leaves)}"
            )
        for leaf, (name, value) in zip(leaves, self._expected, strict=True):
            if isinstance(value, torch.Tensor):
                meta = meta_from_torch(value)
                if not is_tensor(leaf) or leaf.meta != meta:
                    found = leaf.meta if is_tensor(leaf) else repr(leaf)
                    raise ShapeError(f"{name} is {found}, but was captured as {meta}: {OTHER}")
            elif is_tensor(leaf) or leaf != value:
                raise ValueError(f"{name} is {leaf!r}, but was captured as {value!r}: {OTHER}")
        return leaves


def _identifier(name: str, taken: Collection[str]) -> str:
    """An attribute's name for that of a parameter; a_b and a.b are two."""
    own = "p_" + re.sub(r"\W", "_", name)
    return own if own not in taken else f"{own}_{len(taken)}"
