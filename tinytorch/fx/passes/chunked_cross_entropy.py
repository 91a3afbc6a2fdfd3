"""Cross entropy over a large vocabulary, in chunks of rows.

The logits of a language model are by far its largest value, and are alive three times over at the
loss: as logits, as their log-softmax and as its gradient. The gradient of the loss is known as soon
as the loss is, so each chunk of rows goes through the linear layer, the loss and back before the
next one comes: only a chunk's logits are ever there, and no FLOP is added.

Source: P. Hsu et al., "Liger kernel: efficient Triton kernels for LLM training", 2024, section 3.2
(the fused linear cross entropy), here as a rewriting of a joint graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from tinytorch.fx.semantics.semantics import results
from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.semantics import Semantics

aten = torch.ops.aten
RESHAPES = (aten.view.default, aten._unsafe_view.default, aten.detach.default)
TRANSPOSES = (aten.t.default,)
MEAN, SUM = 1, 2  # reductions of nll_loss


@dataclass
class Head:
    """A linear layer into a cross entropy, and its backward.

    Attributes:
        hidden, weight, bias: what the linear layer takes; the weight as it is multiplied, (D, V).
        labels: (N,), with `ignore_index` for rows that do not count.
        reduction: MEAN or SUM.
        loss: the node that the loss comes out of.
        upstream: the gradient of the loss.
        hidden_gradients, weight_gradients, bias_gradients: nodes of the backward; those of the
            weight in the form (V, D).
    """

    hidden: torch.fx.Node
    weight: torch.fx.Node
    bias: torch.fx.Node | None
    labels: torch.fx.Node
    ignore_index: int
    reduction: int
    loss: torch.fx.Node
    upstream: torch.fx.Node
    hidden_gradients: list[torch.fx.Node]
    weight_gradients: list[torch.fx.Node]
    bias_gradients: list[torch.fx.Node]


def chunked_head(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    ignore_index: int,
    reduction: int,
    rows: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """cross_entropy(hidden @ weight + bias, labels) and its gradients, so many rows at a time.

    Args:
        hidden: (N, D).
        weight: (D, V).
        bias: (V,) or None.
        labels: (N,) int64.

    Returns:
        The loss; its gradients for hidden (N, D), for the transposed weight (V, D), and for the
        bias (V,), which is empty without one.
    """
    counted = (labels != ignore_index).sum().to(hidden.dtype)
    scale = torch.ones_like(counted)
    total = torch.zeros_like(counted)
    hidden_gradients = []
    weight_gradient = bias_gradient = hidden.new_zeros(())
    for h, y in zip(torch.split(hidden, rows), torch.split(labels, rows), strict=True):
        logits = aten.mm(h, weight) if bias is None else aten.addmm(bias, h, weight)
        log_probabilities = aten._log_softmax(logits, 1, False)
        del logits
        total = total + aten.nll_loss_forward(log_probabilities, y, None, SUM, ignore_index)[0]
        gradient = aten.nll_loss_backward(
            scale, log_probabilities, y, None, reduction, ignore_index, counted
        )
        gradient = aten._log_softmax_backward_data(gradient, log_probabilities, 1, hidden.dtype)
        del log_probabilities
        hidden_gradients.append(aten.mm(gradient, weight.t()))
        if not weight_gradient.ndim:
            weight_gradient = aten.mm(gradient.t(), h)
        else:
            weight_gradient = aten.addmm(weight_gradient, gradient.t(), h)
        if bias is not None:
            bias_gradient = bias_gradient + gradient.sum(0)
    loss = total / counted if reduction == MEAN else total
    return loss, torch.cat(hidden_gradients), weight_gradient, bias_gradient


def find_heads(graph: torch.fx.Graph) -> list[Head]:
    """The cross entropies of linear layers whose logits nothing else reads."""
    nodes = graph.find_nodes(op="call_function", target=aten.nll_loss_forward.default)
    return [head for head in map(_match, nodes) if head is not None]


def _match(nll: torch.fx.Node) -> Head | None:
    arguments: Any = nll.args
    log_softmax, labels, weight, reduction, ignore_index = arguments
    if weight is not None or reduction not in (MEAN, SUM):
        return None
    if log_softmax.target is not aten._log_softmax.default or log_softmax.args[1] not in (1, -1):
        return None
    linear = log_softmax.args[0]
    path = [log_softmax]
    while linear.target in RESHAPES and _same_columns(linear):
        path.append(linear)
        linear = linear.args[0]
    if linear.target is aten.mm.default:
        bias, (hidden, matrix) = None, linear.args
    elif linear.target is aten.addmm.default and not linear.kwargs:
        bias, hidden, matrix = linear.args
    else:
        return None
    if any(len(node.users) > 1 for node in (linear, *path[1:])):
        return None  # somebody else reads the logits
    return _match_backward(nll, log_softmax, Head(
        hidden, matrix, bias, labels, ignore_index, reduction, nll, nll, [], [], [],
    ))  # fmt: skip


def _same_columns(node: Any) -> bool:
    """A reshape that leaves rows of logits whole, and in order."""
    source = node.args[0]
    return bool(node.meta["val"].shape[-1] == source.meta["val"].shape[-1])


def _match_backward(nll: torch.fx.Node, log_softmax: torch.fx.Node, head: Head) -> Head | None:
    """Fill in the gradients; None if the backward looks otherwise than expected."""
    backward = [n for n in nll.graph.nodes if n.target is aten.nll_loss_backward.default
                and n.args[1] is log_softmax]  # fmt: skip
    if len(backward) != 1 or set(log_softmax.users) - {nll, backward[0]} != set(backward[0].users):
        return None
    head.upstream = backward[0].args[0]
    pending = list(next(iter(backward[0].users)).users)
    while pending:
        node = pending.pop()
        if node.target in (*RESHAPES, *TRANSPOSES):
            pending += node.users
        elif node.target is aten.mm.default and _is_transposed(node.args[1], head.weight):
            head.hidden_gradients.append(node)
        elif node.target is aten.mm.default and node.args[1] is head.hidden:
            head.weight_gradients.append(node)
        elif node.target is aten.sum.dim_IntList and head.bias is not None:
            head.bias_gradients.append(node)
        else:
            return None
    return head


def _is_transposed(node: torch.fx.Node, other: torch.fx.Node) -> bool:
    """One of them is the other transposed; a transpose of a transpose may have been simplified."""
    pairs = ((node, other), (other, node))
    return any(a.target in TRANSPOSES and a.args[0] is b for a, b in pairs)


@register_pass
class ChunkedCrossEntropy(OptimizationPass):
    """Linear layer and cross entropy so many rows at a time, gradients computed on the way.

    Results change by rounding: sums are taken in another order. Dead code elimination belongs
    before it, since what is read by nobody looks like a use of the logits, and behind it.

    Args:
        rows: of a chunk.
    """

    name = "chunked-cross-entropy"
    exact = False

    def __init__(self, semantics: Semantics, rows: int = 512) -> None:
        super().__init__(semantics)
        if rows < 1:
            raise ValueError(f"a chunk has at least one row, not {rows}")
        self.rows = rows

    def analyze(self, graph: torch.fx.Graph) -> list[Head]:
        """The heads with more rows than a chunk has."""
        return [h for h in find_heads(graph) if h.hidden.meta["val"].shape[0] > self.rows]

    def transform(self, graph: torch.fx.Graph, found: list[Head]) -> bool:
        for head in found:
            self._rewrite(graph, head)
        return bool(found)

    def _rewrite(self, graph: torch.fx.Graph, head: Head) -> None:
        with graph.inserting_before(head.loss):
            loss, hidden, weight, bias = self._inline(graph, head)
        for user in list(head.loss.users):
            if user.args[1] == 0:
                user.replace_all_uses_with(loss)
        gradients = [
            (hidden, head.hidden_gradients),
            (weight, head.weight_gradients),
            (bias, head.bias_gradients),
        ]
        for new, olds in gradients:
            for old in olds:
                with graph.inserting_before(old):
                    old.replace_all_uses_with(self._scaled(graph, new, old, head.upstream))

    def _inline(self, graph: torch.fx.Graph, head: Head) -> list[torch.fx.Node]:
        """The nodes of `chunked_head` on the inputs of the head; returns its results."""
        given = [n for n in (head.hidden, head.weight, head.labels, head.bias) if n is not None]

        def function(h: Tensor, w: Tensor, y: Tensor, *bias: Tensor) -> Any:
            b = bias[0] if bias else None
            return chunked_head(h, w, b, y, head.ignore_index, head.reduction, self.rows)

        values = [n.meta["val"] for n in given]
        with values[0].fake_mode, torch.no_grad():
            traced = make_fx(function)(*values)
        copies = dict(zip(traced.graph.find_nodes(op="placeholder"), given, strict=True))
        for node in traced.graph.nodes:
            if node.op not in ("placeholder", "output"):
                new = copies[node] = graph.node_copy(node, copies.__getitem__)
                new.meta["phase"] = head.loss.meta.get("phase", "forward")
                new.meta["stack_trace"] = head.loss.meta.get("stack_trace")
        return [copies[n] for n in results(traced.graph)]

    def _scaled(
        self, graph: torch.fx.Graph, new: torch.fx.Node, old: torch.fx.Node, by: torch.fx.Node
    ) -> torch.fx.Node:
        """A gradient times that of the loss, in the shape of the one it replaces."""
        if by.target is not aten.ones_like.default:  # the loss is not all that is differentiated
            value = new.meta["val"]
            new = graph.call_function(aten.mul.Tensor, (new, by))
            new.meta = {**old.meta, "val": value}
        if new.meta["val"].shape != old.meta["val"].shape:
            shape = list(old.meta["val"].shape)
            new = graph.call_function(aten.view.default, (new, shape))
            new.meta = dict(old.meta)
        return new
