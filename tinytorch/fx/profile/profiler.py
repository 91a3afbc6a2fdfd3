"""`GraphProfiler`: time and memory of every node of a training step, and what its activations do.

    profile = GraphProfiler(capture_step(model, batch, "adam"), title="step").run()
    print(profile)

Source: S. Purandare et al., "muTWO: compile-time techniques for concurrent training of multiple
models", 2023, the computational graph profiler.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch.fx import Node
from torch.utils._pytree import tree_map_only

from tinytorch.fx.capture.joint import JointGraph
from tinytorch.fx.capture.slots import GRADIENT as GRADIENT_SLOT, CaptureError
from tinytorch.fx.capture.step import TrainingStep
from tinytorch.fx.profile.clock import Clock, clock_of, copy_bandwidth
from tinytorch.fx.profile.memory_meter import MemoryMeter
from tinytorch.fx.profile.modules import modules_of
from tinytorch.fx.profile.profile import Profile
from tinytorch.fx.profile.rows import (
    ACTIVATION,
    CATEGORIES,
    GRADIENT,
    OTHER,
    PARAMETER,
    STATE,
    ActivationProfile,
    NodeProfile,
)
from tinytorch.fx.semantics.semantics import TorchSemantics, results
from tinytorch.graph.interpret import last_uses
from tinytorch.graph.memory import Lifetime, accumulate, lifetimes
from tinytorch.graph.recompute.mutwo import candidates
from tinytorch.graph.recompute.problem import Problem, is_forward

Captured = TrainingStep | JointGraph | torch.fx.GraphModule


class GraphProfiler:
    """Profiles a captured graph.

    Args:
        captured: a training step, a joint graph, or any module of ATen ops whose nodes have
            meta["val"], and meta["phase"] where there is more than a forward.
        inputs: its flat arguments; by default the examples of the capture.
        title: what it is, for reports.

    Raises:
        CaptureError: an input is not known.
    """

    def __init__(
        self, captured: Captured, inputs: Sequence[Any] | None = None, title: str = "graph"
    ) -> None:
        self.module = captured if isinstance(captured, torch.fx.GraphModule) else captured.module
        self.title = title
        self.semantics = TorchSemantics()
        self.graph = self.module.graph
        self.inputs = list(inputs) if inputs is not None else self._examples()
        tensors = [x for x in self.inputs if isinstance(x, Tensor)]
        self.device = tensors[0].device if tensors else torch.device("cpu")
        self.found = self.semantics.storages(self.graph, self.inputs)
        self._gradients = _gradients(captured)
        self._updated = _updated(captured)
        self._modules = modules_of(self.graph, self.semantics)
        self._writes = any(self.semantics.mutates(n) for n in self.graph.nodes)

    def _examples(self) -> list[Any]:
        placeholders = self.graph.find_nodes(op="placeholder")
        unknown = [n.name for n in placeholders if "example" not in n.meta]
        if unknown:
            raise CaptureError(f"there is no example of {', '.join(unknown)}: pass inputs")
        return [n.meta["example"] for n in placeholders]

    def run(self, repeats: int = 5, warm_up: int = 1) -> Profile:
        """Measure each node `repeats` times, after running the graph `warm_up` times.

        Raises:
            ValueError: less than one repetition.
        """
        if repeats < 1:
            raise ValueError(f"a profile needs at least one run, not {repeats}")
        clock = clock_of(self.device)
        with torch.no_grad():
            whole = self._whole_seconds(clock, repeats, warm_up)
            seconds = self._node_seconds(clock, repeats)
            measured, meter = self._measured_memory()
        types = self.types()
        memory = self._memory_by_category(types)
        live = [sum(row) for row in zip(*memory.values(), strict=True)]
        nodes = [
            self._node_profile(rank, n, types[n], seconds.get(n, 0.0), live[rank], measured[rank])
            for rank, n in enumerate(self.graph.nodes)
        ]
        bandwidth = copy_bandwidth(self.device)
        activations = self._activations(seconds, bandwidth)
        return Profile(
            self.title, str(self.device), nodes, activations, memory, bandwidth, whole,
            self.found.external_bytes, meter,
        )  # fmt: skip

    def node_seconds(self, repeats: int = 3) -> dict[Node, float]:
        """The median time of each call, without anything else that a profile says.

        The first run warms up; its times do not count.
        """
        clock = clock_of(self.device)
        with torch.no_grad():
            self.module(*self._arguments())
            return self._node_seconds(clock, repeats)

    # -- measuring ---------------------------------------------------------------------------------

    def _arguments(self) -> list[Any]:
        """The inputs; copies if the graph writes to them."""
        return tree_map_only(Tensor, torch.clone, self.inputs) if self._writes else self.inputs

    def _whole_seconds(self, clock: Clock, repeats: int, warm_up: int) -> float:
        times = []
        for i in range(warm_up + repeats):
            arguments = self._arguments()
            start = clock.stamp()
            self.module(*arguments)
            end = clock.stamp()
            clock.wait()
            if i >= warm_up:
                times.append(clock.seconds(start, end))
        return statistics.median(times)

    def _node_seconds(self, clock: Clock, repeats: int) -> dict[Node, float]:
        times: dict[Node, list[float]] = defaultdict(list)
        for _ in range(repeats):
            timed = _Timed(self.module, clock)
            timed.run(*self._arguments())
            clock.wait()
            for node, start, end in timed.stamps:
                times[node].append(clock.seconds(start, end))
        return {node: statistics.median(values) for node, values in times.items()}

    def _measured_memory(self) -> tuple[list[int], str]:
        """Bytes alive at each node, inputs and constants included, and what measured them."""
        arguments = self._arguments()
        external = self.found.external_bytes
        if self.device.type == "cuda":
            watched = _CudaWatched(self.module, self.device)
            watched.run(*arguments)
            return [n + external for n in watched.live], "cuda"
        targets = [str(n.target) for n in self.graph.find_nodes(op="get_attr")]
        constants = [attrgetter(target)(self.module) for target in targets]
        with MemoryMeter([arguments, constants]) as meter:
            metered = _Metered(self.module, meter)
            metered.run(*arguments)
        return [n + external for n in metered.live], "dispatch"

    # -- reading the graph -------------------------------------------------------------------------

    def types(self) -> dict[Node, str]:
        """What each node is: parameter, gradient, activation, optimizer state, or other."""
        types = {}
        crossing = self._crossing()
        for n in self.graph.nodes:
            role = n.meta.get("role")
            if n.op == "placeholder" and role in (PARAMETER, STATE):
                types[n] = role
            elif n in self._updated:
                types[n] = self._updated[n]
            elif n in self._gradients:
                types[n] = GRADIENT
            elif any(s in crossing for s in self.found.made(n)):
                types[n] = ACTIVATION
            else:
                types[n] = OTHER
        return types

    def _crossing(self) -> set[int]:
        """Storages that the forward makes and the backward reads."""
        made = {s for n in self.graph.nodes if is_forward(n) for s in self.found.made(n)}
        read = {s for n in self.graph.nodes if n.meta.get("phase") == "backward"
                for s in self.found.read(n)}  # fmt: skip
        return made & read

    def _memory_by_category(self, types: dict[Node, str]) -> dict[str, list[int]]:
        gradients = {s for n in self._gradients for s in self.found.held[n]}
        of = {s: types[n] for n in self.graph.nodes for s in self.found.made(n)}
        of |= {s: kind for n, kind in self._updated.items() for s in self.found.held[n]}
        of |= dict.fromkeys(gradients - self.found.external, GRADIENT)
        alive, end = lifetimes(self.graph, self.found), len(self.graph.nodes) - 1
        for s in self.found.external:
            alive[s] = Lifetime(self.found.makers[s], self.found.sizes[s], 0, end)
        return {
            category: accumulate(
                self.graph, [t for s, t in alive.items() if of[s] == category]
            ).live
            for category in CATEGORIES
        }

    def _node_profile(
        self, rank: int, node: Node, kind: str, seconds: float, live: int, measured: int
    ) -> NodeProfile:
        cost = self.semantics.cost(node)
        made = sum(self.found.sizes[s] for s in self.found.made(node))
        line = (node.meta.get("stack_trace") or "").strip().split("\n")
        return NodeProfile(
            rank, node.name, str(node.target), self._phase(node), kind, seconds, cost.flops,
            cost.bytes, made, live, measured, tuple(a.name for a in node.all_input_nodes),
            " ".join(part.strip() for part in line[-2:]), self._modules.get(node, ""),
        )  # fmt: skip

    def _phase(self, node: Node) -> str:
        is_call = node.op not in ("placeholder", "get_attr", "output")
        return str(node.meta.get("phase", "forward")) if is_call else ""

    def _activations(self, seconds: dict[Node, float], bandwidth: float) -> list[ActivationProfile]:
        crossing = self._crossing()
        if not crossing:
            return []
        problem = Problem(self.graph, self.semantics, found=self.found, seconds=seconds,
                          read_only=True)  # fmt: skip
        recomputed = candidates(problem)
        uses: dict[int, list[int]] = defaultdict(list)
        ranks = {n: i for i, n in enumerate(self.graph.nodes)}
        ends, elapsed = [], 0.0
        for n, rank in ranks.items():
            for s in self.found.read(n):
                uses[s].append(rank)
            elapsed += seconds.get(n, 0.0)
            ends.append(elapsed)
        start = {n: ends[i] - seconds.get(n, 0.0) for n, i in ranks.items()}
        nodes = list(ranks)
        found = []
        for s in sorted(crossing & recomputed.keys(), key=problem.defined_at.__getitem__):
            maker = problem.made_by[s].node
            forward = [r for r in uses[s] if is_forward(nodes[r])]
            later = [r for r in uses[s] if nodes[r].meta.get("phase") == "backward"]
            last = max(forward, default=ranks[maker])
            size, again = self.found.sizes[s], recomputed[s]
            found.append(ActivationProfile(
                maker.name, size, ranks[maker], last, later[0], max(uses[s]),
                start[nodes[later[0]]] - ends[last], size / bandwidth, again.cost,
                again.made_bytes,
            ))  # fmt: skip
        return found


def _gradients(captured: Captured) -> set[Node]:
    """The nodes that are gradients of parameters."""
    if isinstance(captured, JointGraph):
        slots = zip(captured.outputs, results(captured.module.graph), strict=True)
        return {n for slot, n in slots if slot.role == GRADIENT_SLOT}
    if not isinstance(captured, TrainingStep):
        return set()
    return {
        a
        for n in captured.module.graph.nodes
        if n.meta.get("phase") == "optimizer" and n.op == "call_function"
        for a in n.all_input_nodes
        if a.meta.get("phase") == "backward" and a.op == "call_function"
    }


def _updated(captured: Captured) -> dict[Node, str]:
    """The nodes that are new parameters and new optimizer state."""
    if not isinstance(captured, TrainingStep):
        return {}
    slots = zip(captured.outputs, results(captured.module.graph), strict=True)
    return {n: slot.role for slot, n in slots if slot.role in (PARAMETER, STATE)}


class _Freeing(torch.fx.Interpreter):
    """Frees a value that nothing uses at once, as generated code does."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        uses = last_uses(module.graph)
        self.user_to_last_uses = {n: dead for n, dead in uses.items() if n.op != "output"}


class _Timed(_Freeing):
    """Takes a stamp before and behind each call."""

    def __init__(self, module: torch.fx.GraphModule, clock: Clock) -> None:
        super().__init__(module)
        self.clock = clock
        self.stamps: list[tuple[Node, Any, Any]] = []

    def run_node(self, n: Node) -> Any:
        if n.op in ("placeholder", "get_attr", "output"):
            return super().run_node(n)
        start = self.clock.stamp()
        result = super().run_node(n)
        self.stamps.append((n, start, self.clock.stamp()))
        return result


class _Metered(_Freeing):
    """Reads the meter at each node, its result there and its inputs not yet freed."""

    def __init__(self, module: torch.fx.GraphModule, meter: MemoryMeter) -> None:
        super().__init__(module)
        self.meter = meter
        self.live: list[int] = []

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        self.live.append(self.meter.current)
        return result


class _CudaWatched(_Freeing):
    """Asks the allocator for the peak within each node."""

    def __init__(self, module: torch.fx.GraphModule, device: torch.device) -> None:
        super().__init__(module)
        self.device = device
        self.before = torch.cuda.memory_allocated(device)
        self.live: list[int] = []

    def run_node(self, n: Node) -> Any:
        torch.cuda.reset_peak_memory_stats(self.device)
        result = super().run_node(n)
        self.live.append(torch.cuda.max_memory_allocated(self.device) - self.before)
        return result
