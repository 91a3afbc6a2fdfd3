"""Passes that only native code profits from."""

from __future__ import annotations

from tinytorch.graph.passes.algebra import INHERITED
from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.passes.fusion import Fusion
from tinytorch.graph.semantics import TINYTORCH, AnyGraph, AnyNode, Semantics, TinyTorchSemantics


class _ProductsAreContractions(TinyTorchSemantics):
    """The fused ops that are one product may begin a group as `matmul` does."""

    def kind(self, node: AnyNode) -> str:
        if self.op_name(node) in ("linear", "linear_weight"):
            return "contraction"
        return super().kind(node)


@register_pass
class NativeFusion(Fusion):
    """Fusion in which groups may begin with `linear` and `linear_weight` too.

    So relu is done in the product's store, and a step of gradient descent is a product that adds to
    the weight.
    """

    name = "native-fusion"

    def __init__(self, semantics: Semantics = TINYTORCH) -> None:
        super().__init__(_ProductsAreContractions() if semantics is TINYTORCH else semantics)


@register_pass
class EarlyUpdates(OptimizationPass):
    """Moves the optimizer's nodes forward, to where the gradient has just been made.

    A gradient need then not live to the end of the step, and is still in the cache. An update stays
    behind the last node that reads the value it replaces, so that it can be done in place. What is
    computed from the number of the step alone comes first of all, or an update that reads it could
    not join the loop over the gradient.
    """

    name = "native-early-update"

    def analyze(self, graph: AnyGraph) -> list[tuple[AnyNode, AnyNode]]:
        """Nodes to move, with the node after which each belongs."""
        order = list(graph.nodes)
        inputs = [n for n in order if n.op == "placeholder"]
        moves = []
        for node in [n for n in order if n.meta.get("phase") == "optimizer"]:
            if node.op != "call_function":
                continue
            rank = {n: i for i, n in enumerate(order)}
            before = [a for a in node.all_input_nodes]
            shape = self.semantics.meta(node)
            for old in node.all_input_nodes:
                if old.op == "placeholder" and self.semantics.meta(old) == shape:
                    before += [u for u in old.users if rank[u] < rank[node]]
            last = max(before, key=rank.__getitem__, default=None)
            if last is not None and last.op == "placeholder":
                last = inputs[-1] if not shape.shape else None
            if last is None or order[rank[last] + 1] is node:
                continue
            moves.append((node, last))
            order.remove(node)
            order.insert(order.index(last) + 1, node)
        return moves

    def transform(self, graph: AnyGraph, found: list[tuple[AnyNode, AnyNode]]) -> bool:
        for node, last in found:
            last.append(node)
        return bool(found)


@register_pass
class NormGradients(OptimizationPass):
    """Moves the gradients of a layer norm for b and w behind the one for x.

    All three read the same rows, and are then one call (`ops.write_together`). The one for w is the
    last: until it is done nothing may be written where g and x are stored.
    """

    name = "native-norm-gradients"

    def analyze(self, graph: AnyGraph) -> list[tuple[AnyNode, AnyNode, AnyNode]]:
        """The nodes of the gradients for x, b and w, where there are all three."""
        name_of = self.semantics.op_name
        rank = {node: i for i, node in enumerate(graph.nodes)}
        found = []
        for node in graph.nodes:
            if node.op != "call_function" or name_of(node) != "layer_norm_backward":
                continue
            g, x, _ = node.args
            if not self.semantics.is_node(g):
                continue
            for_w = [
                user for user in g.users
                if name_of(user) == "layer_norm_weight"
                and user.args == (g, x)
                and user.kwargs == node.kwargs
            ]  # fmt: skip
            rows = tuple(range(len(self.semantics.meta(g).shape) - 1))
            for_b = [
                user for user in g.users
                if name_of(user) == "sum" and user.kwargs == {"dims": rows, "keepdim": False}
            ]  # fmt: skip
            users = [user for made in (*for_b, *for_w) for user in made.users]
            if len(for_w) == len(for_b) == 1 and all(rank[user] > rank[node] for user in users):
                found.append((node, for_b[0], for_w[0]))
        return found

    def transform(self, graph: AnyGraph, found: list[tuple[AnyNode, AnyNode, AnyNode]]) -> bool:
        for for_x, for_b, for_w in found:
            for_x.append(for_b)
            for_b.append(for_w)
        return bool(found)


@register_pass
class GeluAgain(OptimizationPass):
    """Computes gelu(x) again where its gradient is computed, for what else the backward does.

        forward                                      backward
          y = gelu(x)                                  dx = gelu_backward(dy, x),  y = gelu(x)
          z = linear(y, w)                             dw = linear_weight(dz, y)

    x is kept for the gradient anyway, and both are made from one exp in one loop. So y, which is
    as large as x, need not be kept from the forward to the backward: of what a step touches less
    has left the caches by the time it is wanted.
    """

    name = "native-gelu-again"
    exact = False

    def analyze(self, graph: AnyGraph) -> list[tuple[AnyNode, AnyNode, AnyNode, list[AnyNode]]]:
        """gelu, gelu_backward, the node after which both belong, and who uses gelu after that."""
        name_of = self.semantics.op_name
        order = list(graph.nodes)
        rank = {node: i for i, node in enumerate(order)}
        found, seen = [], set()
        for gradient in order:
            if gradient.op != "call_function" or name_of(gradient) != "gelu_backward":
                continue
            upper, x = gradient.args
            if not self.semantics.is_node(x) or not self.semantics.is_node(upper):
                continue
            last = max(upper, x, key=rank.__getitem__)
            for made in [
                u for u in x.users if name_of(u) == "gelu" and u.kwargs == gradient.kwargs
            ]:
                late = [user for user in made.users if rank[user] > rank[last]]
                is_kept = len(late) == len(made.users) or any(
                    user.op == "output" or self.semantics.aliases(user) for user in made.users
                )
                if late and not is_kept and last.op == "call_function" and made not in seen:
                    seen.add(made)
                    found.append((made, gradient, last, late))
        return found

    def transform(
        self, graph: AnyGraph, found: list[tuple[AnyNode, AnyNode, AnyNode, list[AnyNode]]]
    ) -> bool:
        for made, gradient, last, late in found:
            last.append(gradient)
            with graph.inserting_before(gradient):
                again = self.semantics.call(graph, "gelu", made.args, dict(made.kwargs))
            again.meta.update({k: v for k, v in gradient.meta.items() if k in INHERITED})
            again.meta["beside_gradient"] = True
            for user in late:
                user.replace_input_with(made, again)
        return bool(found)


@register_pass
class PoolBeforeRelu(OptimizationPass):
    """max_pool(relu(x)) becomes relu(max_pool(x)), which treats fewer elements; backward as well.

    Both choose the same element of every window whose maximum is above 0, and where it is not, the
    result and the gradient are 0 either way.
    """

    name = "pool-before-relu"

    def analyze(self, graph: AnyGraph) -> list[tuple[AnyNode, AnyNode, list[AnyNode]]]:
        """relu, max_pool, and the pairs of their backward nodes, where nothing else uses relu."""
        found = []
        for relu in graph.nodes:
            if relu.op != "call_function" or self.semantics.op_name(relu) != "relu":
                continue
            by_name: dict[str | None, list[AnyNode]] = {}
            for user in relu.users:
                by_name.setdefault(self.semantics.op_name(user), []).append(user)
            pools = by_name.pop("max_pool2d", [])
            scattered = by_name.pop("max_pool2d_backward", [])
            masked = by_name.pop("relu_backward", [])
            closed = all(
                s.args[1] is relu and list(s.users) == [m] and m.args == (s, relu)
                for s, m in zip(scattered, masked, strict=False)
            )
            alike = all(s.kwargs == pools[0].kwargs for s in scattered) if pools else False
            if (
                len(pools) == 1
                and len(scattered) == len(masked)
                and closed
                and alike
                and not by_name
            ):
                found.append((relu, pools[0], scattered))
        return found

    def transform(
        self, graph: AnyGraph, found: list[tuple[AnyNode, AnyNode, list[AnyNode]]]
    ) -> bool:
        for relu, pool, scattered in found:
            x = relu.args[0]
            with graph.inserting_before(pool):
                before = self.semantics.call(graph, "max_pool2d", (x,), dict(pool.kwargs))
                after = self.semantics.call(graph, "relu", (before,), {})
            _replace(graph, pool, after, (before, after))
            for scatter in scattered:
                (masked,) = scatter.users
                with graph.inserting_before(masked):
                    g = self.semantics.call(graph, "relu_backward", (scatter.args[0], after), {})
                    dx = self.semantics.call(
                        graph, "max_pool2d_backward", (g, x), dict(scatter.kwargs)
                    )
                _replace(graph, masked, dx, (g, dx))
                graph.erase_node(scatter)
            graph.erase_node(relu)
        return bool(found)


def _replace(graph: AnyGraph, old: AnyNode, new: AnyNode, made: tuple[AnyNode, ...]) -> None:
    """Put new nodes in the place of an old one; they inherit its phase and line."""
    for node in made:
        node.meta.update({k: v for k, v in old.meta.items() if k in INHERITED})
    old.replace_all_uses_with(new)
    graph.erase_node(old)


@register_pass
class SlicesTogether(OptimizationPass):
    """A sum of slices put back into zeros becomes their concatenation, where they leave no gap.

    So the gradient of `unbind` and `split` is written once, and not once for each part and a sum.
    The sign of a zero may change.
    """

    name = "slices-together"
    exact = False

    def analyze(self, graph: AnyGraph) -> list[tuple[AnyNode, list[AnyNode], int]]:
        """Sums, the nodes they add up in order, and the dimension."""
        found = []
        for node in graph.nodes:
            if self.semantics.op_name(node) != "add" or self._is_part(node):
                continue
            leaves = self._leaves(node)
            dim = self._dimension(leaves) if leaves else None
            if dim is not None:
                found.append((node, sorted(leaves, key=lambda n: n.kwargs["bounds"][dim]), dim))
        return found

    def transform(self, graph: AnyGraph, found: list[tuple[AnyNode, list[AnyNode], int]]) -> bool:
        for node, leaves, dim in found:
            with graph.inserting_before(node):
                parts = tuple(leaf.args[0] for leaf in leaves)
                new = self.semantics.call(graph, "cat", parts, {"dim": dim})
            _replace(graph, node, new, (new,))
        return bool(found)

    def _is_part(self, node: AnyNode) -> bool:
        return [self.semantics.op_name(user) for user in node.users] == ["add"]

    def _leaves(self, node: AnyNode) -> list[AnyNode]:
        """The `unslice` nodes that a tree of sums adds up; none if there is anything else."""
        leaves: list[AnyNode] = []
        for a in node.args:
            name = self.semantics.op_name(a) if self.semantics.is_node(a) else None
            if name == "unslice":
                leaves.append(a)
            elif name == "add" and self._is_part(a) and (inner := self._leaves(a)):
                leaves += inner
            else:
                return []
        return leaves

    def _dimension(self, leaves: list[AnyNode]) -> int | None:
        """The dimension along which the slices lie side by side and fill the whole."""
        shape = self.semantics.meta(leaves[0]).shape
        cut = {
            d for leaf in leaves for d, b in enumerate(leaf.kwargs["bounds"])
            if b != (0, shape[d], 1)
        }  # fmt: skip
        if len(cut) != 1 or any(self.semantics.meta(leaf).shape != shape for leaf in leaves):
            return None
        (dim,) = cut
        end = 0
        for start, stop, step in sorted(leaf.kwargs["bounds"][dim] for leaf in leaves):
            if start != end or step != 1:
                return None
            end = stop
        return dim if end == shape[dim] else None
