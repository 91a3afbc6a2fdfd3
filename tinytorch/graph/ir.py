"""`Node` and `Graph`: a program as a list of ops, in the vocabulary of torch.fx.

Four opcodes are all there is:

    placeholder     an input; `target` is its name
    get_attr        a constant; `target` is its name in `graph.constants`
    call_function   an op; `target` is its row of the op table, tensors and numbers are `args`, the
                    op's parameters are `kwargs`
    output          the result: `args[0]`, in which nodes may nest in tuples, lists and dicts

The graph is functional: a node computes a value, nothing is written in place. What is known of a
value is in `meta`: "tensor_meta" (shape and dtype), "phase" (forward, backward, optimizer),
"stack_trace" (the user's line that made it).

Source of names and methods: J. Reed et al., "torch.fx: practical program capture and transformation
for deep learning in Python", 2022.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

from tinytorch.dtypes import Array
from tinytorch.graph.lint import lint
from tinytorch.graph.node import (
    OPCODES,
    Argument as Argument,
    GraphError as GraphError,
    Node as Node,
    map_arg as map_arg,
    nodes_in as nodes_in,
    target_name as target_name,
)
from tinytorch.graph.text import format_graph, format_table


class _Insertion:
    """The place where new nodes go; as a context it restores the place before."""

    def __init__(self, graph: Graph, before: Node) -> None:
        self.graph, self.old = graph, graph._before
        graph._before = before

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.graph._before = self.old


class NodeList:
    """The nodes of a graph in order. Nodes may be added and erased while it is walked."""

    def __init__(self, root: Node, backwards: bool = False) -> None:
        self._root, self._backwards = root, backwards

    def __iter__(self) -> Iterator[Node]:
        node = self._step(self._root)
        while node is not self._root:
            if not node.erased:
                yield node
            node = self._step(node)

    def _step(self, node: Node) -> Node:
        return node.prev if self._backwards else node.next

    def __reversed__(self) -> NodeList:
        return NodeList(self._root, not self._backwards)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Graph:
    """A list of nodes, each after those that it uses.

    Attributes:
        constants: the arrays that get_attr nodes stand for, by name.

    >>> from tinytorch import ops
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_function(ops.mul, (x, 2.0))
    >>> _ = graph.output(graph.call_function(ops.add, (y, x)))
    >>> print(graph)
    graph():
        %x = placeholder[x]
        %mul = mul(%x, 2.0)
        %add = add(%mul, %x)
        return %add
    """

    def __init__(self) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._before = self._root
        self._numbers: dict[str, int] = {}  # names given, and the last number behind each
        self.constants: dict[str, Array] = {}

    @property
    def nodes(self) -> NodeList:
        """The nodes in order."""
        return NodeList(self._root)

    # -- making nodes ------------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Any,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
    ) -> Node:
        """A node at the place of insertion: by default at the end.

        Raises:
            GraphError: an opcode that there is not, or an argument from another graph.
        """
        if op not in OPCODES:
            raise GraphError(f"there is no opcode {op!r}; there are {', '.join(OPCODES)}")
        args, kwargs = args or (), kwargs or {}
        for used in nodes_in((args, kwargs)):
            self._check_own(used)
        node = Node(self, self._fresh_name(name or target_name(target)), op, target, args, kwargs)
        self._before.prepend(node)
        return node

    def _check_own(self, node: Node) -> None:
        if node.graph is not self:
            raise GraphError(f"node {node} belongs to another graph; copy it with node_copy")
        if node.erased:
            raise GraphError(f"node {node} has been erased and cannot be used")

    def _fresh_name(self, candidate: str) -> str:
        """The candidate as an identifier, with a number behind if it is taken."""
        stem = re.sub(r"\W", "_", candidate) or "node"
        stem = f"_{stem}" if stem[0].isdigit() else stem
        if stem in self._numbers:
            stem = re.sub(r"_[0-9]+$", "", stem)
            number = self._numbers.setdefault(stem, 0) + 1
            while f"{stem}_{number}" in self._numbers:
                number += 1
            self._numbers[stem] = number
            stem = f"{stem}_{number}"
        self._numbers[stem] = 0
        return stem

    def placeholder(self, name: str) -> Node:
        """An input."""
        return self.create_node("placeholder", name)

    def get_attr(self, qualified_name: str) -> Node:
        """A constant, by its name in `constants`."""
        return self.create_node("get_attr", qualified_name)

    def call_function(
        self,
        the_function: Any,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
    ) -> Node:
        """An op applied to arguments."""
        return self.create_node("call_function", the_function, args, kwargs)

    def output(self, result: Argument) -> Node:
        """The result of the graph."""
        return self.create_node("output", "output", (result,))

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x
    ) -> Node:
        """A copy of a node, perhaps of another graph, with its arguments transformed."""
        args = map_arg(node.args, arg_transform)
        kwargs = map_arg(node.kwargs, arg_transform)
        new = self.create_node(node.op, node.target, args, kwargs, node.name)
        new.meta = copy.copy(node.meta)
        return new

    def graph_copy(self, g: Graph, val_map: dict[Node, Node]) -> Argument:
        """Copy all nodes of `g` to here, but its output, whose (mapped) argument is returned.

        Args:
            val_map: what stands for nodes of `g`; filled with the copies.
        """
        self.constants.update(g.constants)
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                return map_arg(node.args[0], val_map.__getitem__)
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        new = Graph()
        new.constants = dict(self.constants)
        copies: dict[Node, Node] = {}
        for node in self.nodes:  # what `node_copy` does, of a graph whose names and uses are right
            args = map_arg(node.args, copies.__getitem__)
            kwargs = map_arg(node.kwargs, copies.__getitem__)
            made = copies[node] = Node(new, node.name, node.op, node.target, args, kwargs)
            made.meta = copy.copy(node.meta)
            new._root.prepend(made)
        new._numbers = {node.name: 0 for node in copies}
        return new

    # -- changing ----------------------------------------------------------------------------------

    def inserting_before(self, n: Node | None = None) -> _Insertion:
        """Put new nodes before `n` (by default before all); a context, or for good."""
        return _Insertion(self, n if n is not None else self._root.next)

    def inserting_after(self, n: Node | None = None) -> _Insertion:
        """Put new nodes after `n` (by default after all); a context, or for good."""
        return _Insertion(self, n.next if n is not None else self._root)

    def erase_node(self, to_erase: Node) -> None:
        """Take a node out.

        Raises:
            GraphError: it is still used, belongs to another graph or is erased already.
        """
        if to_erase.users:
            users = ", ".join(user.name for user in to_erase.users)
            raise GraphError(f"node {to_erase} cannot be erased: {users} uses it")
        self._check_own(to_erase)
        to_erase.prev.next, to_erase.next.prev = to_erase.next, to_erase.prev
        if self._before is to_erase:
            self._before = to_erase.next
        to_erase.erased = True
        to_erase._set((), {})

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Erase what nothing uses; returns whether there was any. Inputs stay."""
        found = False
        for node in reversed(self.nodes):
            stays = node.op in ("placeholder", "output") or (
                is_impure_node is not None and is_impure_node(node)
            )
            if not node.users and not stays:
                self.erase_node(node)
                found = True
        return found

    # -- reading -----------------------------------------------------------------------------------

    def find_nodes(self, *, op: str, target: Any = None) -> list[Node]:
        """Nodes of an opcode, and of a target if one is given, in order."""
        return [n for n in self.nodes if n.op == op and target in (None, n.target)]

    def output_node(self) -> Node:
        """The node of the result.

        Raises:
            GraphError: there is none.
        """
        for node in reversed(self.nodes):
            if node.op == "output":
                return node
        raise GraphError("the graph has no output; finish it with graph.output(result)")

    def lint(self) -> None:
        """Raise GraphError, with what is wrong and where, if the graph is not well formed."""
        lint(self)

    def print_tabular(self) -> None:
        """Print a table of the nodes."""
        print(format_table(self))

    def __str__(self) -> str:
        return format_graph(self)
