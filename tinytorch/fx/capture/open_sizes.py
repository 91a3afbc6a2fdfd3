"""Guards on open sizes: for which sizes a graph does what its model does.

A trace leaves a size open by a symbol, which it takes to be at least 2: for 0 and 1 PyTorch's
operators do other things (they broadcast, and have no strides to ask for). Of what the model asks
about larger sizes the tracer keeps guards. What it asks of 0 and 1, `if x.shape[0] == 1`, is
answered by that assumption, without a guard. So these are asked here:

1. Each comparison of sizes whose answer the code of the model gets is written down, and is kept
   where another answer is possible for a size of 0 or 1.
2. What follows from such a size without a question (`x.squeeze().ndim`) is found by a run: the
   graph and the model are compared on inputs of size 0 and 1, and what differs is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.fx
from torch import SymInt, Tensor
from torch.fx import Node
from torch.fx.experimental.sym_node import SymNode
from torch.utils._pytree import tree_leaves

from tinytorch.fx.diagnosis.reasons import Line, calling_line
from tinytorch.fx.semantics.effects import is_view

TORCH = str(Path(torch.__file__).parent)
LAYERS = str(Path(torch.__file__).parent / "nn")
SMALL = (0, 1)
OTHER_SIZES = "the model does something else for inputs of these sizes"


@dataclass(frozen=True)
class Question:
    """A comparison of open sizes that the code of a model has asked for.

    Attributes:
        expression: of the symbols of sizes, a sympy expression.
        answer: what the code got.
        line: the user's that asked.
    """

    expression: Any
    answer: bool
    line: Line | None

    def has_other_answer(self, sizes: dict[Any, int]) -> bool:
        """Whether the answer is another one for these sizes."""
        try:
            return bool(self.expression.xreplace(sizes)) != self.answer
        except ZeroDivisionError:
            return True


@contextmanager
def asked_sizes() -> Iterator[list[Question]]:
    """Write down what is asked about open sizes inside the block, by code outside of PyTorch's
    tracer and operators: these ask for themselves, and are right for each size."""
    asked: list[Question] = []
    original = SymNode.bool_

    def bool_(self: SymNode) -> bool:
        answer: bool = original(self)
        if _model_asks():
            asked.append(Question(self.expr, answer, calling_line()))
        return answer

    SymNode.bool_ = bool_  # type: ignore[method-assign]
    try:
        yield asked
    finally:
        SymNode.bool_ = original  # type: ignore[method-assign]


def _model_asks() -> bool:
    """Whether the innermost code that is not that of symbols is the model's, or that of a layer."""
    frame: Any = sys._getframe(2)
    while frame.f_code.co_filename == torch.__file__:  # SymBool.__bool__
        frame = frame.f_back
    file: str = frame.f_code.co_filename
    return not file.startswith(TORCH) or file.startswith(LAYERS)


@dataclass(frozen=True)
class Refusal:
    """A small size for which a graph does not do what its model does.

    Attributes:
        symbols: sets of symbols; one of each has the size.
        size: 0 or 1.
        why: how the graph differs.
    """

    symbols: tuple[frozenset[Any], ...]
    size: int
    why: str


@dataclass
class SizeGuards:
    """The sizes for which a graph with open sizes does what its model does.

    Attributes:
        sizes: input, dimension and sympy expression of each size that is not a number.
        examples: the size in the example of each symbol.
        fixed: symbols of which only this size is left, by what the model has asked.
        tracer: which of the tracer's own guards fails for inputs; None if all hold.
        questions: those that have another answer where sizes are 0 or 1.
        refusals: found by runs.
        allowed: small sizes, by symbol, for which other answers were seen to make no difference,
            and the guards of the model that was traced with these, on its other sizes.
    """

    sizes: list[tuple[int, int, Any]]
    examples: dict[Any, int]
    fixed: set[Any]
    tracer: Callable[[Sequence[Any]], str | None]
    questions: list[Question]
    refusals: list[Refusal] = field(default_factory=list)
    allowed: list[tuple[dict[Any, int], SizeGuards]] = field(default_factory=list)

    @staticmethod
    def of(
        graph: torch.fx.Graph,
        asked: Sequence[Question],
        tracer: Callable[[Sequence[Any]], str | None],
    ) -> SizeGuards:
        """The guards of a graph: those of the tracer, and what the model has asked."""
        values: list[Any] = [n.meta["val"] for n in graph.find_nodes(op="placeholder")]
        sizes = [
            (i, d, size.node)
            for i, value in enumerate(values)
            if isinstance(value, Tensor)
            for d, size in enumerate[Any](value.shape)
            if isinstance(size, SymInt)
        ]
        symbols = {node._expr: node for _, _, node in sizes if node._expr.is_symbol}
        fixed = {symbol for symbol, node in symbols.items() if node.maybe_as_int() is not None}
        examples = {symbol: node.hint for symbol, node in symbols.items()}
        kept = {q.expression: q for q in asked if _depends_on_small(q, examples)}
        expressions = [(i, d, node._expr) for i, d, node in sizes]
        return SizeGuards(expressions, examples, fixed, tracer, list(kept.values()))

    def failure(self, leaves: Sequence[Any]) -> str | None:
        """What does not hold for inputs, in the order of the graph; None if all does."""
        if (why := self.tracer(leaves)) is not None:
            return why
        given = {e: leaves[i].shape[d] for i, d, e in self.sizes if e.is_symbol}
        for symbol in self.fixed:
            if given[symbol] != self.examples[symbol]:
                return f"a size was {self.examples[symbol]}, and is {given[symbol]}"
        small = {symbol: size for symbol, size in given.items() if size in SMALL}
        if not small:
            return None
        for sizes, guards in self.allowed:
            if small == sizes:
                return guards.failure(leaves)
        for question in self.questions:
            if question.has_other_answer(given):
                return f"another answer to {question.line}"
        for refusal in self.refusals:
            of_size = {symbol for symbol, size in given.items() if size == refusal.size}
            if all(symbols & of_size for symbols in refusal.symbols):
                return refusal.why
        return None

    def compare_small(
        self,
        dims: Sequence[int],
        leaves: Sequence[Any],
        compare: Callable[[list[Any]], str | None],
        guards_if_same: Callable[[list[Any]], SizeGuards | None],
    ) -> None:
        """Find out what a graph does for sizes of 0 and 1: refuse what the model does not do.

        Args:
            dims: those whose sizes are open: each alone, and all.
            leaves: the example, in the order of the graph.
            compare: how the results of graph and model differ for inputs; None if they do not.
            guards_if_same: the guards of the model traced with these inputs, of which sizes of 0
                and 1 are closed; None if it computes something else than the graph.
        """
        groups = [
            frozenset(e for i, d, e in self.sizes if e.is_symbol and d == _inside(dim, leaves[i]))
            - self.fixed
            for dim in dims
        ]
        groups = [group for group in groups if group]
        for which in [(g,) for g in groups] + [tuple(groups)] * (len(groups) > 1):
            for size in SMALL:
                small = dict.fromkeys(frozenset[Any]().union(*which), size)
                sizes = self.examples | small
                inputs = self._narrowed(leaves, sizes)
                if self.tracer(inputs) is not None:
                    continue
                is_asked = any(q.has_other_answer(sizes) for q in self.questions)
                guards = guards_if_same(inputs) if is_asked else None
                if is_asked and guards is None:
                    continue
                why = compare(inputs)
                if why is None and guards is not None:
                    self.allowed.append((small, guards))
                if why is not None and not is_asked:
                    self.refusals.append(Refusal(which, size, f"of a size of {size} {why}"))

    def _narrowed(self, leaves: Sequence[Any], sizes: dict[Any, int]) -> list[Any]:
        narrowed = list(leaves)
        for i, d, expression in self.sizes:
            size = min(int(expression.xreplace(sizes)), narrowed[i].shape[d])
            narrowed[i] = narrowed[i].narrow(d, 0, size)
        return narrowed


def _inside(dim: int, tensor: Tensor) -> int | None:
    """A dimension, counted from the front; None if a tensor has not so many."""
    return dim % tensor.ndim if -tensor.ndim <= dim < tensor.ndim else None


def _depends_on_small(question: Question, known: Container[Any]) -> bool:
    """Whether a question may have another answer where a size is 0 or 1."""
    symbols = list(question.expression.free_symbols)
    if not symbols or not all(symbol in known for symbol in symbols):
        return False
    return len(symbols) > 1 or any(question.has_other_answer({symbols[0]: n}) for n in SMALL)


def have_same_ops(one: torch.fx.GraphModule, other: torch.fx.GraphModule) -> bool:
    """Whether two graphs compute the same, views aside: the same ops with the same numbers.

    Sizes, which are numbers in one graph and open in the other, may differ.
    """
    a, b = _calls(one), _calls(other)
    return len(a) == len(b) and all(map(_are_same, a, b))


def _calls(module: torch.fx.GraphModule) -> list[Node]:
    """What makes tensors that are no views, in the graph and in those that it calls."""
    graphs = [m.graph for m in module.modules() if isinstance(m, torch.fx.GraphModule)]
    return [
        node for graph in graphs for node in graph.nodes
        if node.op == "call_function" and not is_view(node)
        and any(isinstance(x, Tensor) for x in tree_leaves(node.meta.get("val")))
    ]  # fmt: skip


def _are_same(a: Node, b: Node) -> bool:
    given, other = tree_leaves((a.args, a.kwargs)), tree_leaves((b.args, b.kwargs))
    return a.target == b.target and len(given) == len(other) and all(
        isinstance(x, Node) or isinstance(y, Node) or x == y
        for x, y in zip(given, other, strict=True)
    )  # fmt: skip
