"""FLOPs and bytes of a node of a torch.fx graph, from the fake values in its `meta`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.experimental import symbolic_shapes
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import (
    FlopCounterMode,
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from tinytorch.fx.semantics.effects import is_view
from tinytorch.graph.semantics import Cost

aten = torch.ops.aten
#: The kernels for the CPU, which torch's counter leaves out: how many tensors, and their formula.
ATTENTION: dict[Any, tuple[int, Any]] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: (3, sdpa_flop_count),
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: (
        4, sdpa_backward_flop_count
    ),
}  # fmt: skip
#: The guess for a size that only the run tells, as in PyTorch's own estimates.
UNKNOWN_SIZE = 8192


def cost(node: Node) -> Cost:
    """FLOPs and bytes; nothing for a view, and for what has no fake value.

    A multiply-add counts as two FLOPs, as in torch's own counter, whose formulas are used. What
    that does not count (elementwise ops, reductions) takes one for each element of its largest
    tensor, or list of tensors (the update of all parameters).
    """
    value = node.meta.get("val")
    if node.op not in ("call_function", "call_method", "call_module") or value is None:
        return Cost(0, 0)
    if is_view(node):
        return Cost(0, 0)
    args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    tensors = [t for t in tree_leaves([args, kwargs, value]) if isinstance(t, Tensor)]
    moved = sum(numel(t) * t.element_size() for t in tensors)
    flops = _counted(node, args, kwargs, value)
    if flops == 0:
        lists = [sum(numel(t) for t in x if isinstance(t, Tensor))
                 for x in args if isinstance(x, (list, tuple))]  # fmt: skip
        flops = max([*map(numel, tensors), *lists], default=0)
    return Cost(flops, moved)


def numel(tensor: Tensor) -> int:
    """Elements; of a tensor with open sizes as many as in the example."""
    return _in_the_example(tensor.numel())


def _counted(node: Node, args: Any, kwargs: Any, value: Any) -> int:
    """What torch's counter says; 0 if it does not count the op."""
    target: Any = node.target
    if target in ATTENTION:
        tensors, formula = ATTENTION[target]
        return _in_the_example(formula(*(t.shape for t in args[:tensors])))
    if isinstance(target, OpOverload):
        formula = flop_registry.get(target.overloadpacket)
        if formula is not None:
            return _in_the_example(formula(*args, **kwargs, out_val=value))
        if not target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            return 0
    return _counted_by_running(node, args, kwargs)


def _counted_by_running(node: Node, args: Any, kwargs: Any) -> int:
    """Of an op that is made of others: run it on its fake inputs."""
    target: Any = node.target
    mode = next((t.fake_mode for t in tree_leaves(args) if hasattr(t, "fake_mode")), None)
    if mode is None:
        return 0
    with mode, torch.no_grad(), FlopCounterMode(display=False) as counter:
        if node.op == "call_method":
            getattr(args[0], target)(*args[1:], **kwargs)
        elif node.op == "call_module":
            owner = node.graph.owning_module
            assert owner is not None, "a call of a module is in a graph that has one"
            owner.get_submodule(target)(*args, **kwargs)
        else:
            target(*args, **kwargs)
    return _in_the_example(counter.get_total_flops())


def _in_the_example(size: Any) -> int:
    """The value of an open size in the example that the graph was captured with."""
    if hasattr(symbolic_shapes, "optimization_hint"):
        return int(symbolic_shapes.optimization_hint(size))
    if isinstance(size, torch.SymInt):  # before PyTorch 2.12
        return int(size.node.require_hint(UNKNOWN_SIZE))
    return int(size)
