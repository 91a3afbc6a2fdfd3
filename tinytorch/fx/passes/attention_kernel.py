"""`scaled_dot_product_attention` by TinyTorch's kernel, where that is faster than PyTorch's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch.fx import Node

from tinytorch.fx.passes.attention import is_causal_mask
from tinytorch.fx.passes.autotune import AutotunedPass, is_faster
from tinytorch.fx.passes.fused_attention import FusedAttention
from tinytorch.fx.passes.nodes import arguments, aten, insert, on_cpu, value
from tinytorch.graph.passes.base import register_pass
from tinytorch.graph.semantics import Semantics


@dataclass
class Call:
    """A call of the op, and the kernel in its place.

    Attributes:
        node: the call.
        inputs: query, key, value, and the mask unless the kernel knows it.
        kernel: the function.
    """

    node: Node
    inputs: list[Node]
    kernel: FusedAttention

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that is equal for calls that take equally long."""
        kernel = self.kernel
        layouts = [(x.dtype, *_numbers(x)) for x in map(_known, self.inputs)]
        return kernel.is_causal, kernel.rows_first, arguments(self.node)["is_causal"], *layouts


@register_pass
class AttentionKernel(AutotunedPass):
    """Computes attention a block of scores at a time in TinyTorch's kernel, instead of PyTorch's.

    For queries, keys and values of four dimensions, in float32 or float64, on the CPU, without
    dropout, in a graph that nobody differentiates. A constant mask that shows query i the keys 0 to
    i becomes the kernel's causal order, of which it computes only what is seen; one that hides
    nothing is dropped. Each kind of call is timed on its shapes. Without numba nothing changes.

    Args:
        only_if_faster: time it; otherwise change all calls that can be.

    Source: T. Dao et al., "FlashAttention: fast and memory-efficient exact attention with
    IO-awareness", 2022.
    """

    name = "attention-kernel"
    exact = False

    def __init__(self, semantics: Semantics, only_if_faster: bool = True) -> None:
        super().__init__(semantics)
        self.must_be_faster = only_if_faster

    def analyze(self, graph: torch.fx.Graph) -> list[Call]:
        """The calls that can be changed."""
        target = aten.scaled_dot_product_attention.default
        nodes = graph.find_nodes(op="call_function", target=target)
        if not (nodes and on_cpu(graph) and self.semantics.is_closed(graph) and find_spec("numba")):
            return []
        return [call for call in map(self._match, nodes) if call is not None]

    def transform(self, graph: torch.fx.Graph, found: list[Call]) -> bool:
        verdicts: dict[Any, bool] = {}
        for call in found:
            if self.must_be_faster and call.key not in verdicts:
                verdicts[call.key] = self._wins(call)
            if verdicts.get(call.key, True):
                with graph.inserting_before(call.node):
                    new = insert(graph, call.kernel, tuple(call.inputs), like=call.node)
                call.node.replace_all_uses_with(new)
                graph.erase_node(call.node)
        return any(verdicts.values()) if self.must_be_faster else bool(found)

    def _match(self, node: Node) -> Call | None:
        given = arguments(node)
        inputs = [given[name] for name in ("query", "key", "value")]
        q, k, v = map(value, inputs)
        result, mask = value(node), value(given["attn_mask"])
        if q is None or k is None or v is None or result is None or given["dropout_p"] != 0:
            return None
        if any(x.ndim != 4 or x.dtype != q.dtype for x in (q, k, v)):
            return None
        if q.dtype not in (torch.float32, torch.float64) or not _fit(q, k, v, given["enable_gqa"]):
            return None
        if mask is not None and mask.dtype not in (torch.bool, q.dtype):
            return None
        sizes, strides = _numbers(result)
        rows_first = strides == _strides_of_rows(sizes)
        if not (rows_first or result.is_contiguous()):
            return None
        is_causal, mask_node = bool(given["is_causal"]), given["attn_mask"]
        if mask is not None and (known := self._known_mask(mask_node)) is not None:
            is_whole = known.shape[-2:] == (q.shape[-2], k.shape[-2])
            if bool(known.all()):
                mask_node = None
            elif is_whole and is_causal_mask(known):
                mask_node, is_causal = None, True
        scale = given["scale"]
        scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        if not isinstance(scale, float):  # of an open size
            return None
        if mask_node is not None:
            inputs.append(mask_node)
        return Call(node, inputs, FusedAttention(scale, is_causal, rows_first))

    def _known_mask(self, mask: Node) -> Tensor | None:
        """A constant mask of bool."""
        known = self.semantics.constant_value(mask) if mask.op == "get_attr" else None
        return (
            known if known is not None and known.dtype == torch.bool and known.ndim >= 2 else None
        )

    def _wins(self, call: Call) -> bool:
        """The kernel is faster, on random numbers in these layouts and a mask that hides nothing
        unless it is known."""
        generator = torch.Generator().manual_seed(0)

        def real(node: Node) -> Tensor:
            constant = self.semantics.constant_value(node) if node.op == "get_attr" else None
            if constant is not None:
                return constant.detach()
            found = _known(node)
            x = torch.empty_strided(*_numbers(found), dtype=found.dtype)
            if node is given["attn_mask"]:
                return x.fill_(found.dtype == torch.bool)
            return x.normal_(generator=generator)

        given = arguments(call.node)
        values = {node: real(node) for node in call.node.all_input_nodes}
        inputs = [values[node] for node in call.inputs]
        args, kwargs = torch.fx.node.map_arg(
            (call.node.args, dict(call.node.kwargs)), values.__getitem__
        )
        target: Any = call.node.target
        return is_faster(lambda: call.kernel(*inputs), lambda: target(*args, **kwargs))


def _known(node: Node) -> Tensor:
    found = value(node)
    assert found is not None  # AttentionKernel._match
    return found


def _numbers(x: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides; of an open size those in the example."""
    sizes, strides = (
        tuple(n if isinstance(n, int) else n.node.hint for n in each)
        for each in (x.shape, x.stride())
    )
    return sizes, strides


def _strides_of_rows(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of (B, H, L, V) that is stored as (B, L, H, V)."""
    _, heads, length, v = sizes
    return length * heads * v, v, heads * v, 1


def _fit(q: Tensor, k: Tensor, v: Tensor, is_grouped: bool) -> bool:
    """Batch and heads are those that the kernel takes: nothing is broadcast, but groups of queries
    may share a head of the keys."""
    is_one = str(k.shape[:-1]) == str(v.shape[:-1]) and str(q.shape[0]) == str(k.shape[0])
    if not is_grouped or not is_one:
        return is_one and str(q.shape[1]) == str(k.shape[1])
    heads, shared = q.shape[1], k.shape[1]
    are_known = isinstance(heads, int) and isinstance(shared, int) and shared > 0
    return are_known and heads % shared == 0
