"""Batch norm in evaluation mode, folded into the convolution before it."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch.fx import Node

from tinytorch.fx.passes.nodes import arguments, aten, is_call, value
from tinytorch.graph.passes.aliasing import Aliasing
from tinytorch.graph.passes.base import OptimizationPass, register_pass

CONVOLUTIONS = (aten.conv1d.default, aten.conv2d.default, aten.conv3d.default,
                aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding,
                aten.convolution.default)  # fmt: skip
BATCH_NORMS = (aten.batch_norm.default, aten._native_batch_norm_legit_no_training.default)


@dataclass
class Pair:
    """A convolution and the batch norm of its result.

    Attributes:
        convolution, norm: the nodes.
        weight, bias: of the convolution that does the work of both.
    """

    convolution: Node
    norm: Node
    weight: Tensor
    bias: Tensor


@register_pass
class ConvBatchNorm(OptimizationPass):
    """Folds a batch norm that uses its running statistics into the convolution that it follows.

        y = gamma (conv(x, W) + b - mean) / sqrt(var + eps) + beta
          = conv(x, s W) + s (b - mean) + beta,    s = gamma / sqrt(var + eps)

    Only where weights and statistics do not change any more, and nothing else uses the
    convolution. The scale is computed in float64.

    Source: B. Jacob et al., "Quantization and training of neural networks for efficient
    integer-arithmetic-only inference", 2018, section 3.2.
    """

    name = "conv-bn"
    exact = False

    def analyze(self, graph: torch.fx.Graph) -> list[Pair]:
        """The pairs, with their new weights."""
        norms = [n for n in graph.nodes if is_call(n, *BATCH_NORMS)]
        if not norms:
            return []
        memory = Aliasing(graph, self.semantics)
        pairs = (self._match(norm, memory) for norm in norms)
        return [pair for pair in pairs if pair is not None]

    def transform(self, graph: torch.fx.Graph, found: list[Pair]) -> bool:
        for pair in found:
            with graph.inserting_before(pair.convolution):
                weight = self.semantics.constant(graph, pair.weight)
                bias = self.semantics.constant(graph, pair.bias)
            given = arguments(pair.convolution)
            given["weight"], given["bias"] = weight, bias
            pair.convolution.args, pair.convolution.kwargs = tuple(given.values()), {}
            if pair.norm.target is aten.batch_norm.default:
                pair.norm.replace_all_uses_with(pair.convolution)
            else:
                for item in list(pair.norm.users):
                    item.replace_all_uses_with(pair.convolution)
                    graph.erase_node(item)
            graph.erase_node(pair.norm)
        return bool(found)

    def _match(self, norm: Node, memory: Aliasing) -> Pair | None:
        given = arguments(norm)
        convolution = given["input"]
        if given.get("training") or not is_call(convolution, *CONVOLUTIONS):
            return None
        if len(convolution.users) > 1 or arguments(convolution).get("transposed"):
            return None
        if norm.target is not aten.batch_norm.default and not _only_result_used(norm):
            return None
        of = arguments(convolution)
        image, kernel = value(convolution), value(of["weight"])
        if image is None or kernel is None or image.ndim != kernel.ndim:
            return None  # without a batch, the norm's channels are the convolution's rows
        nodes = [of["weight"], of["bias"], given["weight"], given["bias"], given["running_mean"],
                 given["running_var"]]  # fmt: skip
        if any(n in memory.written for n in nodes if n is not None):
            return None
        values = [self._constant(n) for n in nodes]
        missing = [n for n, v in zip(nodes, values, strict=True) if n is not None and v is None]
        weight, bias, gamma, beta, mean, variance = values
        if missing or weight is None or mean is None or variance is None:
            return None
        return Pair(convolution, norm, *folded(
            weight, bias, gamma, beta, mean, variance, given["eps"]
        ))  # fmt: skip

    def _constant(self, node: Any) -> Tensor | None:
        is_attribute = isinstance(node, Node) and node.op == "get_attr"
        return self.semantics.constant_value(node) if is_attribute else None


def _only_result_used(norm: Node) -> bool:
    return all(is_call(u, operator.getitem) and u.args[1] == 0 for u in norm.users)


def folded(
    weight: Tensor,
    bias: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Weight and bias of the one convolution.

    Args:
        weight: (O, I / groups, ...) of the convolution.
        bias, gamma, beta: (O,); None stands for zeros, ones and zeros.
        mean, variance: (O,), the running statistics.
    """

    def exact(tensor: Tensor) -> Tensor:
        return tensor.detach().cpu().double()  # not all devices have float64

    scale = (exact(variance) + eps).rsqrt()
    if gamma is not None:
        scale = scale * exact(gamma)
    shift = -exact(mean) if bias is None else exact(bias) - exact(mean)
    shift = scale * shift if beta is None else scale * shift + exact(beta)
    per_channel = scale.to(weight).reshape(-1, *[1] * (weight.ndim - 1))
    return weight.detach() * per_channel, shift.to(weight)
