"""`GraphOptimizer`: capture a model, run passes on it, check each, and measure what it brought."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch.utils._pytree import tree_map

import tinytorch.fx.passes  # noqa: F401  (makes the passes known by name)
from tinytorch.errors import TinyTorchError
from tinytorch.fx.capture.forward import capture_forward, read_only_state
from tinytorch.fx.models import check_model
from tinytorch.fx.optimize.captured_state import Modes
from tinytorch.fx.optimize.devices import generators_kept, resolve_device
from tinytorch.fx.optimize.model_comparison import ModelComparison, in_mode
from tinytorch.fx.optimize.optimized import OptimizedModule
from tinytorch.fx.optimize.report import SLOWER, OptimizationReport
from tinytorch.fx.optimize.speed_comparison import SpeedComparison, compare_speed, runner
from tinytorch.fx.optimize.verify import ForwardSemantics
from tinytorch.fx.passes.autotune import AutotunedPass, is_faster, times_as_fast
from tinytorch.fx.semantics.buffers import model_buffers_kept
from tinytorch.fx.semantics.semantics import untouched
from tinytorch.graph.ir import GraphError
from tinytorch.graph.passes.base import OptimizationPass, get_pass_by_name
from tinytorch.graph.passes.manager import PassManager

#: Passes that change no bit of any result, and keep the graph trainable. Gradients may differ by
#: rounding: what "cse" computes once has one gradient, the sum of several, added in another order.
TRAINING_PASSES = ("no-ops", "algebra", "cse", "fold", "dce", "dead-statistics")
#: For a model whose weights do not change any more.
INFERENCE_PASSES = (*TRAINING_PASSES, "attention", "gelu", "flat-linear", "conv-bn", "dce",
                    "attention-kernel", "prepacked-linear", "onednn", "channels-last",
                    "dce")  # fmt: skip

#: The same with Winograd's algorithm for 3x3 convolutions, whose rounding is another.
WINOGRAD_PASSES = tuple(
    name for each in INFERENCE_PASSES
    for name in (("winograd", each) if each == "onednn" else (each,))
)  # fmt: skip


class OptimizationError(TinyTorchError, RuntimeError):
    """A model that cannot be optimized, or an optimizer that is asked in the wrong order."""


@dataclass
class Change:
    """A change of a graph that was kept, and the graph before it."""

    position: int
    name: str
    mode: str
    before: torch.fx.Graph


class GraphOptimizer:
    """Makes a faster module of a model, and shows that it does the same.

        optimizer = GraphOptimizer(model.eval(), {"pixel_values": images})
        module = optimizer.optimize()
        print(optimizer.report())
        print(optimizer.benchmark())

    The graph is compared with the one captured: results, buffers and the state of the random
    generator on several inputs, and gradients unless it is frozen. This is done where the passes
    end that keep every bit, and behind the last pass; only if something differs there, all passes
    are run again and compared after each, and what fails is rolled back. In the end the module is
    compared with the model itself, also in what memory results share and which inputs are written,
    on other values and, if sizes are open, another batch.

    Last, both are timed. Where the module is slower, as it may be for small models, whose time goes
    into Python and not into kernels, there is a warning and the model itself is given back.

    Args:
        model: stays as it is. In evaluation mode it is frozen: its weights are folded and packed.
            Otherwise there are graphs for training and evaluation, on its own parameters.
        example_inputs: a dict of keyword arguments, a tuple of positional ones, or one tensor.
        passes: names or passes, in order; by default those for the mode.
        device: "auto" (CUDA, else MPS, else the CPU), "cpu", "cuda", "cuda:1", "mps". A model that
            is elsewhere is copied there.
        frozen: instead of what the mode of the model says.
        dynamic_dims: dimensions of the inputs whose sizes stay open, e.g. (0,).
        trials: inputs to compare on.
        rounds: apply all passes again, at most so often, until none changes anything.
        fallback: take the CPU, with a warning, if the device is not there.
        keep_slower: return the optimized module in any case, and do not time it.

    Raises:
        ModelError: the model is no module.
        DeviceError: no such device.
        KeyError: no such pass.
    """

    def __init__(
        self,
        model: nn.Module,
        example_inputs: Any,
        passes: Sequence[OptimizationPass | str] | None = None,
        device: str | torch.device = "auto",
        *,
        frozen: bool | None = None,
        dynamic_dims: tuple[int, ...] = (),
        trials: int = 2,
        rounds: int = 1,
        fallback: bool = False,
        keep_slower: bool = False,
    ) -> None:
        check_model(model, (), trains=False)
        self.device = resolve_device(device, fallback=fallback)
        self.model = _on_device(model, self.device)
        inputs = (example_inputs,) if isinstance(example_inputs, Tensor) else example_inputs
        self.inputs = tree_map(lambda x: x.to(self.device) if isinstance(x, Tensor) else x, inputs)
        self.frozen = not model.training if frozen is None else frozen
        self.semantics = ForwardSemantics(self.frozen)
        names = INFERENCE_PASSES if self.frozen else TRAINING_PASSES
        self.passes = [
            get_pass_by_name(p)(self.semantics) if isinstance(p, str) else p
            for p in (names if passes is None else passes)
        ]
        self.dynamic_dims, self.trials, self.rounds = dynamic_dims, trials, rounds
        self.keep_slower = keep_slower
        self._module: OptimizedModule | None = None
        self._report = OptimizationReport()
        self._changes: list[Change] = []

    def optimize(self) -> nn.Module:
        """Capture, run the passes, check. The module is called like the model.

        It is an `OptimizedModule`, or the model, if that is faster and `keep_slower` is not set.

        Raises:
            ModelError: the inputs are of another floating-point type than the model.
            CaptureError: the model cannot be captured; `diagnose` says more.
            OptimizationError: what was captured does not do what the model does.
        """
        report = self._report = OptimizationReport()
        self._changes = []
        graphs: dict[str, torch.fx.GraphModule] = {}
        modes: dict[str, Modes] = {}
        for mode in ("eval",) if self.frozen else ("train", "eval"):
            start = perf_counter()
            with in_mode(self.model, mode), torch.set_grad_enabled(not self.frozen):
                captured = capture_forward(self.model, self.inputs, dynamic_dims=self.dynamic_dims)
                modes[mode] = Modes(self.model)
            report.capture_seconds += perf_counter() - start
            self._remember_examples(captured.graph)
            is_random = any(map(self.semantics.is_random, captured.graph.nodes))
            start = perf_counter()
            graph = self._run_passes(captured.graph, mode)
            seconds = sum(r.seconds for r in report.results[mode])
            report.check_seconds += perf_counter() - start - seconds
            report.calls[mode] = (_calls(captured.graph), _calls(graph))
            graphs[mode] = _as_module(graph, captured.meta)
        self._module = OptimizedModule(self.model, graphs, self.inputs, self.frozen, modes)
        start = perf_counter()
        self._check_against_model(has_float64=not is_random and self.device.type != "mps")
        report.check_seconds += perf_counter() - start
        if self.frozen:
            self._module.freeze(read_only_state(self.model, captured))
        return self._module if self.keep_slower else self._faster()

    def report(self) -> OptimizationReport:
        """The report of `optimize`; printed it is a table.

        Raises:
            OptimizationError: nothing has been optimized yet.
        """
        self._optimized()
        return self._report

    def benchmark(self, rounds: int = 9) -> SpeedComparison:
        """Time, peak memory and graph size, of the model and of the optimized module.

        Both run in turns (A B A B), after a warm-up, waiting for the device; frozen without
        gradients, else forward and backward. The model's buffers stay as they are.

        Raises:
            OptimizationError: nothing has been optimized yet.
        """
        module = self._optimized()
        mode = "train" if module.training else "eval"
        with in_mode(self.model, mode), self._state_kept():
            return compare_speed(
                self.model, module, self.inputs, self.device,
                backward=not self.frozen, calls=self._report.calls[mode], rounds=rounds,
            )  # fmt: skip

    def undo(self) -> OptimizedModule:
        """Take back the last pass that changed something; returns the module, the same object.

        Raises:
            OptimizationError: there is nothing left to take back.
        """
        self._optimized()
        if not self._changes:
            raise OptimizationError("there is nothing to undo: the graphs are as captured")
        return self._undo("undo")

    def _faster(self) -> nn.Module:
        """The optimized module, or the model if that is faster."""
        module, report = self._optimized(), self._report
        with in_mode(self.model, "train" if module.training else "eval"):
            report.speedup = self._speedup(module)
        if SLOWER * report.speedup >= 1:
            return module
        said = f"slower than the model, {report.speedup:.2f} times as fast"
        if self.frozen and self.model.training:
            report.notes.append(f"{said}; but the model is in training mode, so it is kept")
            return module
        report.is_reverted = True
        report.notes.append(
            f"{said}: the model itself is given back (keep_slower=True keeps the optimized module)"
        )
        warnings.warn(f"{type(self.model).__name__} optimized is {report.notes[-1]}", stacklevel=3)
        return self.model

    def _speedup(self, module: OptimizedModule) -> float:
        """How many times as fast as the model; the state of both is as it was."""
        inputs = tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, self.inputs)
        new, old = (
            runner(each, self.model, inputs, self.device, not self.frozen)
            for each in (module, self.model)
        )
        with self._state_kept():
            return times_as_fast(new, old, self.device)

    @contextmanager
    def _state_kept(self) -> Iterator[None]:
        """Generators and the model's buffers are after the block as they were before."""
        with generators_kept([self.device]), model_buffers_kept(self.model):
            yield

    def _optimized(self) -> OptimizedModule:
        if self._module is None:
            raise OptimizationError("nothing has been optimized yet: call optimize() first")
        return self._module

    def _undo(self, why: str) -> OptimizedModule:
        """Take back what the last pass changed, in all modes."""
        module, report = self._optimized(), self._report
        last = max(change.position for change in self._changes)
        for change in [c for c in self._changes if c.position == last]:
            self._changes.remove(change)
            meta = module.graphs[change.mode].meta
            module.graphs[change.mode] = _as_module(change.before, meta)
            report.calls[change.mode] = (report.calls[change.mode][0], _calls(change.before))
            report.undone.append(f"{change.name} ({change.mode}): {why}")
        return module

    def _remember_examples(self, graph: torch.fx.Graph) -> None:
        """The first of the inputs that passes are compared on is the example."""
        leaves = torch.utils._pytree.tree_leaves(self.inputs)
        for node, leaf in zip(graph.find_nodes(op="placeholder"), leaves, strict=True):
            node.meta["example"] = leaf

    def _run_passes(self, graph: torch.fx.Graph, mode: str) -> torch.fx.Graph:
        manager = PassManager(
            self.passes, self.semantics, self.rounds, self.trials, each=False,
            after_pass=self._check_faster,
        )  # fmt: skip
        final, report = manager.run(graph)
        self._report.results[mode] = report.results
        before: Any = graph
        for position, result in enumerate(report.results):
            if result.changed:
                self._changes.append(Change(position, result.name, mode, before))
                before = result.made
            result.made = None  # what can be undone is in `_changes`
        assert before is final
        return before

    def _check_faster(self, each: Any, before: torch.fx.Graph, after: torch.fx.Graph) -> None:
        """Raise GraphError if a pass must make the graph faster, and has not."""
        if not (isinstance(each, AutotunedPass) and each.must_be_faster):
            return
        sample = each.semantics.sample(after, 0)
        inputs = [x.clone() if isinstance(x, Tensor) else x for x in sample]
        old, new = (_flat_function(graph, inputs) for graph in (before, after))
        with untouched(before):  # they run many times, and may write buffers and inputs
            faster = is_faster(new, old, self.device)
        if not faster:
            raise GraphError("the graph is not faster with it on this machine")

    def _check_against_model(self, has_float64: bool) -> None:
        """Compare with the model; take back passes until it does the same."""
        comparison = ModelComparison(
            self.model, self.inputs, self.frozen, has_float64, self.dynamic_dims, self.trials,
            self._report,
        )  # fmt: skip
        while True:
            why = comparison.difference(self._optimized())
            if why is None:
                return
            if not self._changes:
                raise OptimizationError(
                    f"the captured graph does not do what the model does: {why}\n  see "
                    "tinytorch.fx.diagnose"
                )
            self._undo(why)


def _flat_function(graph: torch.fx.Graph, inputs: Sequence[Any]) -> Callable[[], object]:
    """A graph as a function without arguments, without the form of the model's call."""
    flat = torch.fx.Graph()
    flat.output(flat.graph_copy(graph, {}))
    module = torch.fx.GraphModule(_owner(graph), flat)
    return lambda: module(*inputs)


def _as_module(graph: torch.fx.Graph, meta: dict[str, Any]) -> torch.fx.GraphModule:
    """A module of its own for a graph, which holds only what that uses."""
    module = torch.fx.GraphModule(_owner(graph), graph)
    module.meta["size_guards"] = meta.get("size_guards")
    return module


def _owner(graph: torch.fx.Graph) -> torch.fx.GraphModule:
    owner = graph.owning_module
    assert owner is not None  # a captured graph belongs to a module
    return owner


def _calls(graph: torch.fx.Graph) -> int:
    return sum(n.op.startswith("call_") for n in graph.nodes)


def _on_device(model: nn.Module, device: torch.device) -> nn.Module:
    """The model itself if it is there, else a copy."""
    tensors = [*model.parameters(), *model.buffers()]
    here = all(t.device.type == device.type and device.index in (None, t.device.index)
               for t in tensors)  # fmt: skip
    return model if here else copy.deepcopy(model).to(device)
