"""Attention written out in products and a softmax, as the one fused op, in either world.

`RecognizedAttention` finds it in our graphs and in PyTorch's alike; how a node is read, what may be
replaced, and by what, is each world's own. The backward of a training step that was traced with it
is replaced too, where the world has an op for it.

Batched products of matrices may have the dimensions in front of these merged into one, as PyTorch's
trace of a product has. So what only divides those otherwise, or copies, is looked through: operands
and users of a node are those behind it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

from tinytorch.graph.passes.algebra import INHERITED
from tinytorch.graph.passes.aliasing import Aliasing
from tinytorch.graph.passes.base import OptimizationPass
from tinytorch.graph.semantics import AnyGraph, AnyNode

Call = tuple[str, tuple[Any, ...], dict[str, Any]]

#: Filled in for a score these leave nothing of its weight, beside another score: e^-5000 is 0 for
#: scores of up to 5000. Added to scores of up to 32, all are equal in float32.
HIDES_SOME, HIDES_ALL = -1e4, -1e9
#: Ops that may leave all matrices as they are, each in its place (`detach` where nothing is
#: differentiated any more).
PASSAGES = ("reshape", "expand", "clone", "detach")


@dataclass
class Gradients:
    """The nodes of the gradients that a traced backward computes; None for those it does not.

    Attributes:
        g: the gradient of the result.
        readers: the nodes that read it.
        query, keys, values: products that are the gradients of what `WrittenOut` names so.
        key: that of the keys before they were transposed, in place of `keys`.
    """

    g: AnyNode | None = None
    readers: list[AnyNode] = field(default_factory=list)
    query: AnyNode | None = None
    keys: AnyNode | None = None
    key: AnyNode | None = None
    values: AnyNode | None = None


@dataclass
class WrittenOut:
    """dropout(softmax(query @ keys * scale, masked)) @ values, and the node of the result.

    Attributes:
        last, query, keys, values: (..., l, v), (..., l, e), (..., e, s), (..., s, v): keys are
            transposed.
        softmax: the node of the weights.
        front: the sizes in front of (l, s), as the mask has them.
        scale: what multiplies the scores.
        mask: bool, of what takes part, or floats that are added; None for none.
        fill: what becomes of the scores that do not take part; None if the mask is added.
        hides: the mask is true for what does not take part.
        is_causal: in place of a mask, query i sees the keys 0 to i.
        seed, dropout_p: of the random numbers below which a weight is dropped.
        kept: what dropout multiplies the weights with.
        backward: the gradients, where they are in the graph.
    """

    last: AnyNode
    query: AnyNode
    keys: AnyNode
    values: AnyNode
    softmax: AnyNode | None = None
    front: tuple[Any, ...] = ()
    scale: float = 1.0
    mask: AnyNode | None = None
    fill: float | None = None
    hides: bool = False
    is_causal: bool = False
    seed: AnyNode | None = None
    dropout_p: float = 0.0
    kept: AnyNode | None = None
    backward: Gradients | None = None
    chain: list[AnyNode] = field(default_factory=list)  # from the weights back to the scores


class RecognizedAttention(OptimizationPass):
    """Finds attention that is written out.

        softmax(q @ k.mT * scale + mask, -1) @ v

    The scale may be missing, multiply or divide; the mask may be missing, be added, or fill in a
    number; after the softmax there may be a dropout. Nothing else may use the scores or weights,
    but for the backward.

    Source: A. Vaswani et al., "Attention is all you need", 2017, section 3.2.1.
    """

    exact = False

    def analyze(self, graph: AnyGraph) -> list[WrittenOut]:
        """The attentions that are written out."""
        products = [n for n in graph.nodes if self._is(n, "matmul")]
        if not products:
            return []
        self._memory = Aliasing(graph, self.semantics)
        self._is_closed = self.semantics.is_closed(graph)
        found = [self._match(node) for node in products]
        return [each for each in found if each is not None]

    def transform(self, graph: AnyGraph, found: list[WrittenOut]) -> bool:
        self._replaced: dict[AnyNode, AnyNode] = {}  # one attention may read another's result
        for each in found:
            for part in filter(None, (each, each.backward)):
                for name, value in vars(part).items():
                    if self.semantics.is_node(value):
                        setattr(part, name, self._replaced.get(value, value))
            with graph.inserting_before(each.last):
                self.rewrite(graph, each)
        return bool(found)

    def replace(self, graph: AnyGraph, old: AnyNode, new: AnyNode) -> None:
        """Put a new node in the place of one that was found, and of its views in the same shape."""
        shape = self.semantics.meta(new).shape
        inherit(new, old)
        for view in [n for n in self._through(old) if self.semantics.meta(n).shape == shape]:
            view.replace_all_uses_with(new)
        if old.users:
            with graph.inserting_before(old):
                new = self.with_front(graph, new, self.semantics.meta(old).shape[:-2])
        old.replace_all_uses_with(new)
        graph.erase_node(old)
        self._replaced[old] = new

    def with_front(self, graph: AnyGraph, node: AnyNode, front: tuple[Any, ...]) -> AnyNode:
        """Matrices with these sizes in front of their own two."""
        old = self.semantics.meta(node).shape
        shape = (*front, *old[-2:])
        if tuple(old) == shape:
            return node
        new = self.semantics.call(graph, "reshape", (node,), {"shape": shape})
        inherit(new, node)
        return new

    def call_of(self, node: AnyNode) -> Call | None:
        """The op of our table that a node computes: its name, operands and parameters."""
        return self.semantics.signature(node)

    @abstractmethod
    def fits(self, each: WrittenOut) -> bool:
        """Whether the fused op takes these masks, and means the same."""

    @abstractmethod
    def rewrite(self, graph: AnyGraph, each: WrittenOut) -> None:
        """Put the fused op in the place of `each.last`; nodes are inserted before that."""

    # -- reading -----------------------------------------------------------------------------------

    def _match(self, last: AnyNode) -> WrittenOut | None:
        """Follow the weights from the last product back to the first; None if it is none."""
        weights, values = self._operands(last)
        each = WrittenOut(last, last, last, values)
        chain = each.chain
        chain.append(weights)
        if self._is(weights, "mul") and self._take_dropout(weights, each):
            chain.append(weights := self._other(weights, "softmax"))
        if not self._is(weights, "softmax") or not self._is_over_last(weights):
            return None
        each.softmax, each.front = weights, tuple(self.semantics.meta(weights).shape[:-2])
        scores = self._operands(weights)[0]
        chain.append(scores)
        if self._is(scores, "where") or self._is(scores, "add"):
            each.front = tuple(self.semantics.meta(scores).shape[:-2])
            scores = self._take_mask(scores, each)
            chain.append(scores)
        if self._is(scores, "mul") or self._is(scores, "div"):
            scores = self._take_scale(scores, each)
            chain.append(scores)
        if not self._is(scores, "matmul"):
            return None
        each.query, each.keys = self._operands(scores)
        if any(self._memory.touches_written(n) for n in chain):
            return None
        if any(len(self._users(n)) != 1 for n in chain) and not self._take_backward(each):
            return None
        return each if self._has_one_front(each) and self.fits(each) else None

    def _is(self, value: Any, name: str) -> bool:
        s = self.semantics
        if not s.is_node(value) or value.op != "call_function":
            return False
        call = self.call_of(value)
        return call is not None and call[0] == name

    def _given(self, node: AnyNode) -> tuple[Any, ...]:
        call = self.call_of(node)
        assert call is not None
        return call[1]

    def _operands(self, node: AnyNode) -> tuple[Any, ...]:
        """What is given to a node, behind what only divides the dimensions in front."""
        return tuple(map(self._behind, self._given(node)))

    def _behind(self, value: Any) -> Any:
        while self._is_passage(value):
            value = self._given(value)[0]
        return value

    def _is_passage(self, value: Any) -> bool:
        """Whether a node gives the same matrices in the same order."""
        s = self.semantics
        call = self.call_of(value) if s.is_node(value) and value.op == "call_function" else None
        if call is None or call[0] not in PASSAGES or self._memory.touches_written(value):
            return False
        new, old = s.meta(value), s.meta(call[1][0])
        if new is None or old is None or (call[0] == "detach" and not self._is_closed):
            return False
        same = new.shape[-2:] == old.shape[-2:]
        return bool(same and math.prod(new.shape) == math.prod(old.shape))

    def _through(self, node: AnyNode) -> list[AnyNode]:
        """The nodes that give the same matrices as this one, in the same order."""
        found = [node]
        for each in found:  # it grows
            found += [n for n in each.users if self._is_passage(n)]
        return found[1:]

    def _users(self, node: AnyNode) -> list[AnyNode]:
        """Who uses a node, behind what only divides the dimensions in front."""
        passages = self._through(node)
        users = dict.fromkeys(n for each in (node, *passages) for n in each.users)
        return [n for n in users if n not in passages]

    def _only_user(self, node: AnyNode) -> AnyNode | None:
        users = self._users(node)
        return users[0] if len(users) == 1 else None

    def _parameter(self, node: AnyNode, name: str) -> Any:
        call = self.call_of(node)
        assert call is not None
        return call[2][name]

    def _other(self, node: AnyNode, name: str) -> Any:
        """The operand of this op; None if there is none."""
        return next((x for x in self._operands(node) if self._is(x, name)), None)

    def _is_over_last(self, softmax: AnyNode) -> bool:
        last = len(self.semantics.meta(softmax).shape) - 1
        return bool(self._parameter(softmax, "dim") == last)

    def _take_dropout(self, node: AnyNode, each: WrittenOut) -> bool:
        """softmax * (cast(p <= uniform(seed)) * (1 / (1 - p)))"""
        s, kept = self.semantics, self._other(node, "mul")
        cast = None if kept is None else self._other(kept, "cast")
        is_drawn: Any = None if cast is None else self._operands(cast)[0]
        if self._other(node, "softmax") is None or not self._is(is_drawn, "le"):
            return False
        p, drawn = self._operands(is_drawn)
        a, b = self._operands(kept)
        factor = b if a is cast else a
        if not self._is(drawn, "uniform") or type(p) is not float or not 0 < p < 1:
            return False
        # the op draws in the type of the weights, one number for each
        same = s.interchangeable(drawn, node) and s.interchangeable(cast, node)
        if not same or type(factor) is not float or not math.isclose(factor, 1 / (1 - p)):
            return False
        each.seed, each.dropout_p, each.kept = self._operands(drawn)[0], p, kept
        return True

    def _take_mask(self, node: AnyNode, each: WrittenOut) -> Any:
        """The scores before the mask, which have its shape; None if it is no mask."""
        operands = self._given(node)
        scores = None
        if self._is(node, "where"):
            each.mask, yes, no = operands
            each.hides = not self.semantics.is_node(yes)
            fill, scores = (yes, no) if each.hides else (no, yes)
            if not isinstance(fill, float):
                return None
            each.fill = fill
        else:
            for first, second in (operands, operands[::-1]):
                if self._is_product(first) and self.semantics.is_node(second):
                    scores, each.mask = first, second
                    break
        meta = self.semantics.meta
        is_whole = self.semantics.is_node(scores) and meta(scores).shape == meta(node).shape
        return self._behind(scores) if is_whole else None

    def _is_product(self, value: Any) -> bool:
        """A product of matrices, perhaps scaled."""
        value = self._behind(value)
        if self._is(value, "mul") or self._is(value, "div"):
            value = self._take_scale(value, None)
        return self._is(value, "matmul")

    def _take_scale(self, node: AnyNode, each: WrittenOut | None) -> Any:
        """The scores before the scale; None if it is none."""
        a, b = self._operands(node)
        if self._is(node, "mul") and isinstance(a, (int, float)):
            a, b = b, a
        if not isinstance(b, (int, float)) or b == 0 or not math.isfinite(b):
            return None
        if each is not None:
            each.scale = float(b) if self._is(node, "mul") else 1.0 / b
        return a

    def _has_one_front(self, each: WrittenOut) -> bool:
        """Dtypes are equal, and as many matrices are in each: none is expanded."""
        q, k, v = (self.semantics.meta(n) for n in (each.query, each.keys, each.values))
        if q is None or k is None or v is None or not q.dtype == k.dtype == v.dtype:
            return False
        return all(math.prod(x.shape[:-2]) == math.prod(each.front) for x in (q, k, v))

    # -- the backward ------------------------------------------------------------------------------

    def _take_backward(self, each: WrittenOut) -> bool:
        """Whether all other users of weights and scores are their gradients; notes those.

        dvalues = dropped.mT @ g          dweights = g @ values.mT * kept
        dscores = softmax_backward(dweights, weights), masked, * scale
        dquery = dscores @ key            dkeys = query.mT @ dscores, or dkey = dscores.mT @ query
        """
        dropped, softmax = each.chain[0], each.softmax
        changes = [n for n in self._users(softmax) if self._is(n, "softmax_backward")]
        others = [n for n in each.chain if n is not dropped and n is not softmax]
        if len(changes) > 1 or any(len(self._users(n)) != 1 for n in others):
            return False
        found = each.backward = Gradients()
        allowed = {each.last, dropped, *changes}
        if changes and not self._take_change(each, changes[0], found):
            return False
        for user in self._users(dropped):
            if self._is(user, "permute") and self._are_transposed(user, dropped):
                of_values = self._only_user(user)
                if not self._is(of_values, "matmul") or self._operands(of_values)[0] is not user:
                    return False
                g = self._operands(of_values)[1]
                if found.g is not None and found.g is not g:
                    return False
                found.g, found.values = g, of_values
                found.readers.append(of_values)
                allowed.add(user)
        all_known = all(n in allowed for n in (*self._users(dropped), *self._users(softmax)))
        return all_known and (not changes or self._take_scores(each, changes[0], found))

    def _take_change(self, each: WrittenOut, change: AnyNode, found: Gradients) -> bool:
        """Whether softmax's backward begins with g @ values.mT, times what is kept."""
        product = self._operands(change)[0]
        if each.kept is not None:
            if not self._is(product, "mul") or each.kept not in self._operands(product):
                return False
            a, b = self._operands(product)
            if self._only_user(product) is not change:
                return False
            product = b if a is each.kept else a
        if not self._is(product, "matmul") or self._only_user(product) is None:
            return False
        found.g, values = self._operands(product)
        found.readers.append(product)
        return self._are_transposed(values, each.values)

    def _take_scores(self, each: WrittenOut, change: AnyNode, found: Gradients) -> bool:
        """Follow the gradient of the scores to those of query and keys."""
        current = change
        if each.fill is not None:
            masked = self._only_user(current)
            if not self._is(masked, "where"):
                return False
            mask, yes, no = self._given(masked)
            zero, kept = (yes, no) if each.hides else (no, yes)
            if mask is not each.mask or zero != 0.0 or self._behind(kept) is not current:
                return False
            current = masked
        if each.scale != 1.0:
            scaled = self._only_user(current)
            factor = WrittenOut(scaled, scaled, scaled, scaled)
            if not (self._is(scaled, "mul") or self._is(scaled, "div")):
                return False
            if self._take_scale(scaled, factor) is not current or factor.scale != each.scale:
                return False
            current = scaled
        for user in self._users(current):
            if self._is(user, "permute") and self._are_transposed(user, current):
                of_key = self._only_user(user)
                is_product = self._is(of_key, "matmul")
                if not is_product or self._operands(of_key) != (user, each.query):
                    return False
                found.key = of_key
                continue
            if not self._is(user, "matmul"):
                return False
            a, b = self._operands(user)
            if a is current and self._are_transposed(b, each.keys):
                found.query = user
            elif b is current and self._are_transposed(a, each.query):
                found.keys = user
            else:
                return False
        return True

    def _are_transposed(self, a: AnyNode, b: AnyNode) -> bool:
        """Whether one is the other with its last two dimensions exchanged.

        Of heads that were split off, both are permutations of what was split.
        """
        for one, other in ((a, b), (b, a)):
            if self._is(one, "permute") and self._operands(one)[0] is other:
                dims = tuple(self._parameter(one, "dims"))
                if dims == transposed_dims(len(dims)):
                    return True
        (source, dims), (same, turned) = self._permuted(a), self._permuted(b)
        if source is not same or dims == turned:
            return False
        order = dims or range(len(turned))
        turned = turned or tuple(range(len(dims)))
        return (*order,) == (*turned[:-2], turned[-1], turned[-2])

    def _permuted(self, node: AnyNode) -> tuple[AnyNode, tuple[int, ...]]:
        """What a node is a permutation of, and which dimension of that each of its own is; of a
        node that is none, itself and ()."""
        dims: tuple[int, ...] = ()
        while self._is(node, "permute"):
            own = tuple(self._parameter(node, "dims"))
            dims = tuple(own[d] for d in dims) or own
            node = self._given(node)[0]
        return node, dims

    def constant(self, node: AnyNode) -> Any:
        """The value of a node that depends on no input; None if it does."""
        s = self.semantics
        if node.op == "get_attr":
            return s.constant_value(node)
        if node.op != "call_function" or not s.is_pure(node) or s.is_random(node):
            return None
        known = {a: self.constant(a) for a in node.all_input_nodes}
        if any(value is None for value in known.values()):
            return None
        args, kwargs = (s.map_arg(x, known.__getitem__) for x in (node.args, dict(node.kwargs)))
        return s.evaluate(node, args, kwargs)


def inherit(new: AnyNode, old: AnyNode) -> None:
    """Give a new node the phase and the line of the one that it replaces."""
    new.meta.update({k: v for k, v in old.meta.items() if k in INHERITED})


def transposed_dims(ndim: int) -> tuple[int, ...]:
    """The order of dimensions that exchanges the last two."""
    return (*range(ndim - 2), ndim - 1, ndim - 2)
