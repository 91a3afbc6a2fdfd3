"""PyTorch's own partitioner as one more strategy: minimum cut under `activation_memory_budget`.

It chooses what to keep by a minimum cut between forward and backward, and below a budget of 1 a
knapsack over what to recompute in addition. Its budget bounds the bytes that are kept, not the
peak, and the recomputed ops are placed elsewhere; here only its choice is taken.

Source: H. He, S. Yang, "Min-cut optimal(*) recomputation (i.e. activation checkpointing) with
AOTAutograd", 2022; torch/_functorch/partitioners.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch._functorch.config
import torch.fx
from torch._functorch import partitioners
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensor

from tinytorch.fx.capture.functional import CaptureError
from tinytorch.fx.semantics.in_place import FUNCTIONAL
from tinytorch.fx.semantics.semantics import results
from tinytorch.graph.recompute.frontier import STRATEGIES as OURS, Strategy
from tinytorch.graph.recompute.problem import Problem, RecomputeError, is_forward

BUDGETS = (0.9, 0.7, 0.5, 0.4, 0.3, 0.2, 0.1)


@dataclass
class Partition:
    """The forward and backward that the partitioner makes of a joint graph.

    Attributes:
        forward, backward: its graphs.
        results: how many outputs of the forward are not kept for the backward.
        kept: names of the nodes, of the joint graph, that are.
    """

    forward: torch.fx.GraphModule
    backward: torch.fx.GraphModule
    results: int
    kept: list[str]


def min_cut_partition(module: torch.fx.GraphModule, budget: float) -> Partition:
    """Partition a joint graph with torch's min-cut partitioner.

    Args:
        module: with meta["phase"] and meta["val"] on its nodes.
        budget: `activation_memory_budget`, from 0 to 1.
    """
    joint, count = _as_aot(module)
    placeholders = joint.graph.find_nodes(op="placeholder")
    inputs = [n.meta["val"] for n in placeholders]
    mode = next((v.fake_mode for v in inputs if isinstance(v, FakeTensor)), None)
    if mode is None:
        raise CaptureError("the inputs of the graph have no fake values in meta['val']")
    config: Any = torch._functorch.config
    with config.patch(activation_memory_budget=budget), tracing(TracingContext(mode)):
        forward, backward = partitioners.min_cut_rematerialization_partition(
            joint, inputs, num_fwd_outputs=count, static_lifetime_input_indices=[]
        )
    kept = [n.name for n in results(forward.graph)[count:] if isinstance(n, torch.fx.Node)]
    return Partition(forward, backward, count, kept)


def _as_aot(module: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, int]:
    """A copy in the form that AOTAutograd gives its partitioners.

    Results of the forward come first. What starts the backward (the gradient of the loss, which
    the graph makes itself) becomes an input that is called a tangent.
    """
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in module.graph.nodes:
        starts = node.op == "call_function" and not is_forward(node) and _is_seed(node)
        if node.op == "output":
            continue
        if node.op == "placeholder" and node.meta.get("role") != "tangent":
            copies[node] = graph.placeholder(f"primals_{node.name}")
        elif node.op == "placeholder" or starts:
            with graph.inserting_before(_first_call(graph)):
                copies[node] = graph.placeholder(f"tangents_{node.name}")
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            copies[node].name = node.name
            if node.target in FUNCTIONAL:  # the partitioner knows no op that writes
                copies[node].target = FUNCTIONAL[node.target]
                copies[node].kwargs = {k: v for k, v in copies[node].kwargs.items()
                                       if k != "grad_input"}  # fmt: skip
        copies[node].meta = dict(node.meta)
    originals = results(module.graph)
    forward = [copies[n] for n in originals if is_forward(n) or n.op == "placeholder"]
    backward = [copies[n] for n in originals if copies[n] not in forward]
    graph.output((*forward, *backward))
    graph.output_node().meta["desc"] = [None] * (len(forward) + len(backward))
    return torch.fx.GraphModule(module, graph), len(forward)


def _is_seed(node: torch.fx.Node) -> bool:
    return node.target is torch.ops.aten.ones_like.default and node.meta["val"].ndim == 0


def _first_call(graph: torch.fx.Graph) -> torch.fx.Node:
    return next((n for n in graph.nodes if n.op != "placeholder"), graph._root)


def min_cut_plans(problem: Problem, budgets: Sequence[float] = BUDGETS) -> Iterator[frozenset[int]]:
    """The storages that the partitioner keeps at each budget.

    It partitions once, and is asked for every budget where it chooses: what it does before and
    after that takes longer than the choice.
    """
    module = problem.graph.owning_module
    if module is None:
        raise RecomputeError("the graph belongs to no module, so its constants are not known")
    nodes = {node.name: node for node in module.graph.nodes}
    with _choosing(budgets) as chosen:
        partition = min_cut_partition(module, budgets[0])
    for kept in chosen or [partition.kept]:  # it chooses nothing where the backward needs nothing
        held = [problem.found.held[nodes[name]] for name in kept if name in nodes]
        yield frozenset(s for storages in held for s in storages if s in problem.defined_at)


#: All ways of choosing for a torch graph.
STRATEGIES: dict[str, Strategy] = {**OURS, "min-cut": min_cut_plans}


@contextmanager
def _choosing(budgets: Sequence[float]) -> Iterator[list[list[str]]]:
    """Let the partitioner choose at all budgets whenever it runs; equal cuts are made once.

    Yields:
        The names of the nodes that it keeps, by budget; filled when it runs.
    """
    found: list[list[str]] = []
    torchs: Any = partitioners
    choose, cut = torchs.choose_saved_values_set, torchs.solve_min_cut
    cuts: dict[Any, Any] = {}

    def choose_all(graph: torch.fx.Graph, info: Any, memory_budget: float = 1) -> Any:
        chosen = [choose(graph, info, budget) for budget in budgets]
        found.extend([node.name for node in nodes] for nodes in chosen)
        return chosen[0]

    def solve_once(graph: torch.fx.Graph, info: Any, options: Any, allowed: Any = ()) -> Any:
        key = (*vars(options).values(), frozenset(allowed))
        if key not in cuts:
            cuts[key] = cut(graph, info, options, allowed or None)
        return cuts[key]

    torchs.choose_saved_values_set, torchs.solve_min_cut = choose_all, solve_once
    try:
        yield found
    finally:
        torchs.choose_saved_values_set, torchs.solve_min_cut = choose, cut
