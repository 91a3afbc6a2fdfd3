"""`Node`: one step of a graph, in the vocabulary of torch.fx; how its line is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinytorch.dtypes import DType
from tinytorch.errors import TinyTorchError

if TYPE_CHECKING:
    from tinytorch.graph.ir import Graph

Argument = Any  # a Node, a number, a string, a dtype, None, or a tuple, list, dict of those
OPCODES = ("placeholder", "get_attr", "call_function", "output")


class GraphError(TinyTorchError, RuntimeError):
    """A graph that is not well formed, or an edit that would make it so."""


def map_arg(
    argument: Argument, function: Callable[[Any], Argument], node_type: type | None = None
) -> Argument:
    """The same nest, with `function(node)` in place of every node.

    Args:
        node_type: what counts as a node; by default `Node`.
    """
    return _mapped(argument, function, node_type or Node)


def _mapped(argument: Argument, function: Callable[[Any], Argument], node_type: type) -> Argument:
    if type(argument) in _NO_NODES:  # most are: asked first
        return argument
    if isinstance(argument, node_type):
        return function(argument)
    if isinstance(argument, (tuple, list)):
        mapped = [_mapped(a, function, node_type) for a in argument]
        return tuple(mapped) if isinstance(argument, tuple) else mapped
    if isinstance(argument, dict):
        return {key: _mapped(value, function, node_type) for key, value in argument.items()}
    return argument


_NO_NODES = frozenset({int, float, bool, str, type(None), DType})


def nodes_in(argument: Argument) -> dict[Node, None]:
    """The nodes of a nest, each once, in order: the keys of a dict."""
    found: dict[Node, None] = {}
    pending = [argument]
    while pending:
        value = pending.pop()
        if isinstance(value, Node):
            found[value] = None
        elif isinstance(value, (tuple, list)):
            pending += reversed(value)
        elif isinstance(value, dict):
            pending += reversed(value.values())
    return found


def target_name(target: Any) -> str:
    """The name by which a target is printed."""
    if isinstance(target, str):
        return target
    name = getattr(target, "name", None)
    return name if isinstance(name, str) else target.__name__


def format_argument(value: Argument) -> str:
    """An argument as the parser reads it."""
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, (tuple, list)):
        inside = ", ".join(map(format_argument, value))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, dict):
        inside = ", ".join(f"{k!r}: {format_argument(v)}" for k, v in value.items())
        return f"{{{inside}}}"
    return value.name if isinstance(value, DType) else repr(value)


class Node:
    """One step of a graph. Made by the methods of `Graph`, not by hand.

    Attributes:
        op: one of the four opcodes.
        target: what the opcode refers to.
        users: the nodes that use this one, in the order in which they began to (keys of a dict).
        meta: what is known of the value.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Any,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
    ) -> None:
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self.prev = self.next = self
        self.erased = False
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._inputs: dict[Node, None] = {}
        self._set(args, kwargs)

    def _set(self, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> None:
        for node in self._inputs:
            node.users.pop(self, None)
        self._args, self._kwargs = tuple(args), dict(kwargs)
        self._inputs = nodes_in((self._args, self._kwargs))
        for node in self._inputs:
            node.users[self] = None

    @property
    def args(self) -> tuple[Argument, ...]:
        """Arguments by position. Assigning them keeps the users right."""
        return self._args

    @args.setter
    def args(self, args: tuple[Argument, ...]) -> None:
        self._set(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """Arguments by keyword. Assigning them keeps the users right."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Argument]) -> None:
        self._set(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes that this one uses, each once."""
        return list(self._inputs)

    @property
    def stack_trace(self) -> str | None:
        """The user's line that made this node."""
        return self.meta.get("stack_trace")

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace one argument by its position."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Replace one argument by its keyword."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use another node wherever this one uses `old_input`."""
        args, kwargs = map_arg(
            (self._args, self._kwargs), lambda n: new_input if n is old_input else n
        )
        self._set(args, kwargs)

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True
    ) -> list[Node]:
        """Make the users of this node use another; returns those that do now.

        Args:
            delete_user_cb: asked for each user whether it is to change.
        """
        changed = [user for user in self.users if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def prepend(self, x: Node) -> None:
        """Move `x` before this node."""
        if x is self:
            return
        x.prev.next, x.next.prev = x.next, x.prev
        x.prev, x.next = self.prev, self
        self.prev.next = x
        self.prev = x

    def append(self, x: Node) -> None:
        """Move `x` to right after this node."""
        self.next.prepend(x)

    def format_node(self) -> str:
        """The line by which the node is printed: name, shape and dtype, and what computes it."""
        if self.op == "output":
            return f"return {format_argument(self.args[0])}"
        meta = self.meta.get("tensor_meta")
        typed = f"%{self.name} : {meta}" if meta is not None else f"%{self.name}"
        if self.op != "call_function":
            return f"{typed} = {self.op}[{self.target}]"
        arguments = [format_argument(a) for a in self.args]
        arguments += [f"{key}={format_argument(value)}" for key, value in self.kwargs.items()]
        phase = self.meta.get("phase", "forward")
        comment = "" if phase == "forward" else f"  # {phase}"
        return f"{typed} = {target_name(self.target)}({', '.join(arguments)}){comment}"

    def __repr__(self) -> str:
        return self.name
