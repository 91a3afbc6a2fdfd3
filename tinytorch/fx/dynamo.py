"""`torch.compile(model, backend="tinytorch")`: PyTorch programs on our compiler and kernels.

Dynamo captures the program, AOTAutograd cuts it into a functional forward and backward in ATen
operators; each of those graphs is cut here into parts that TinyTorch can run as a whole, which are
compiled, and nodes that stay with PyTorch.

    model = torch.compile(model, backend="tinytorch")
    model(x)
    print(last_report())                      # what was compiled, and what stayed with PyTorch

Options: torch.compile(..., backend="tinytorch", options={"backend": "numpy", "mode": "python"}).

Recurrent layers (nn.LSTM, nn.GRU, nn.RNN) run on PyTorch's kernels, and what is before and after
them is compiled. Dynamo leaves a function that calls one to Python, and never asks a backend,
unless `torch._dynamo.config.allow_rnn` is true; that is for the user to set, as it counts for all
backends.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch._functorch.aot_autograd
from torch._dynamo.backends.common import aot_autograd
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner

from tinytorch.autograd import no_grad
from tinytorch.backends import find_backend
from tinytorch.fx.convert.aten import ATEN
from tinytorch.fx.convert.aten_module import AtenModule, aten_name
from tinytorch.fx.convert.exchange import array_from_torch, array_to_torch
from tinytorch.fx.convert.support import Support, empty_example
from tinytorch.fx.recurrent_parts import RECURRENT_REASON, compile_around_recurrent, is_recurrent
from tinytorch.graph.bindings import StateBinding
from tinytorch.graph.compiler.generate import MODES, Target, generate, say_failure
from tinytorch.graph.compiler.lower import without_detach
from tinytorch.graph.compiler.schedule import Role
from tinytorch.graph.pytree import LEAF, tree_unflatten
from tinytorch.graph.trace import trace
from tinytorch.graph.traced import TENSOR
from tinytorch.state import using_backend

_aot: Any = torch._functorch.aot_autograd
boxed = _aot.make_boxed_func  # it takes a list, and empties it
DRAWN_BEFORE = "drawn_before"  # a keyword that no operator has


@dataclass
class GraphReport:
    """The outcome of compiling one graph.

    Attributes:
        kind: forward, backward or inference.
        compiled: operators that run on TinyTorch, all parts together.
        parts: into how many functions they are compiled.
        fallbacks: for each operator that PyTorch runs, how often it does and why.
    """

    kind: str
    compiled: int
    parts: int
    fallbacks: dict[str, tuple[int, str]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.compiled} operators in {self.parts} compiled parts"]
        for target, (count, reason) in sorted(self.fallbacks.items()):
            lines.append(f"  PyTorch runs {count} x {target}: {reason}")
        return "\n".join(lines)


@dataclass
class CompileReport:
    """The outcomes of one program's graphs, in the order in which they were compiled.

    Attributes:
        graphs: one for each forward, backward or inference.
        breaks: why Dynamo has left code to Python so far, in any program, and how often. Such code
            never comes to a backend; parts of a function on both sides of it are programs.
    """

    graphs: list[GraphReport] = field(default_factory=list)
    breaks: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.graphs), *_said(self.breaks)])


_reports: list[CompileReport] = []


def last_report() -> CompileReport:
    """The report of the program that was compiled last.

    Raises:
        LookupError: none was, in this process; and why, where Dynamo left it to Python.
    """
    if not _reports:
        lines = ["nothing was compiled yet: call torch.compile(f, backend='tinytorch')(x)"]
        raise LookupError("\n".join([*lines, *_said(_breaks())]))
    _reports[-1].breaks = _breaks()
    return _reports[-1]


def _breaks() -> Counter[str]:
    """What Dynamo could not trace so far, each reason in a line."""
    found: Counter[str] = Counter()
    for kind in ("unimplemented", "graph_break"):
        for text, count in torch._dynamo.utils.counters[kind].items():
            lines = [line.strip().removeprefix("Explanation: ") for line in text.splitlines()]
            found[": ".join(line for line in lines[:2] if line)] += count
    return found


def _said(breaks: Counter[str]) -> list[str]:
    lines = [f"Dynamo has left code to Python, {n} x: {why}" for why, n in sorted(breaks.items())]
    if any("RNN" in why for why in breaks):
        lines.append(
            "  fix: torch._dynamo.config.allow_rnn = True; what is around the recurrent layers is "
            "compiled then"
        )
    return lines


def tinytorch_backend(
    module: GraphModule,
    inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The backend that `torch.compile` calls; registered as the entry point "tinytorch".

    Args:
        options: "backend" (by default "optimized"), "mode" and "fast_math", as for
            `tinytorch.compile`.
    """
    report = CompileReport()
    _reports.append(report)
    target = _target(**(options or {}))

    def compiler(kind: str) -> Callable[..., Any]:
        return functools.partial(_compile_graph, report=report, kind=kind, target=target)

    compile_part = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=_decompositions(),
    )
    recurrent = Counter(str(n.target.__name__) for n in module.graph.nodes if is_recurrent(n))
    if not recurrent:
        return compile_part(module, inputs)
    counts = {f"torch.{name}": (n, RECURRENT_REASON) for name, n in recurrent.items()}
    report.graphs.append(GraphReport("recurrent layers", 0, 0, counts))
    return compile_around_recurrent(module, compile_part)


def _target(backend: str = "optimized", mode: str = "auto", fast_math: bool = False) -> Target:
    if mode not in MODES:
        raise ValueError(f"there is no mode {mode!r}; there are {', '.join(MODES)}")
    return Target(find_backend(backend), mode, None, fast_math)


@functools.cache
def _decompositions() -> dict[Any, Any]:
    """Core ATen, but for the operators that we run whole."""
    table: Any = torch._decomp.core_aten_decompositions()
    return {op: rule for op, rule in table.items() if aten_name(op) not in ATEN}


def _compile_graph(
    module: GraphModule,
    inputs: Sequence[Any],
    *,
    report: CompileReport,
    kind: str,
    target: Target,
) -> Callable[..., Any]:
    support = Support()
    before = {node: node.target for node in module.graph.nodes if node.op == "call_function"}
    with _random_in_order(module, support):
        module = CapabilityBasedPartitioner(
            module, support, allows_single_node_partition=True,
            non_compute_ops=["_operator.getitem"],
        ).partition_and_fuse()  # fmt: skip
    parts, failures = 0, []
    for name, child in list(module.named_children()):
        if isinstance(child, GraphModule):
            try:
                setattr(module, name, CompiledPart(child, target))
                parts += 1
            except Exception as error:
                if target.mode != "auto":
                    raise
                reason = say_failure(f"a part of a PyTorch {kind} graph", error)
                failures.append((sum(n.op == "call_function" for n in child.graph.nodes), reason))
    report.graphs.append(_report(kind, support, before, parts, failures))
    module.recompile()
    return boxed(_whole(module) or module.forward)


@contextmanager
def _random_in_order(module: GraphModule, support: Support) -> Iterator[None]:
    """Have each operator of PyTorch's that draws numbers depend on the one before, while parts are
    taken out of a graph: in another order the numbers would not be those of eager mode."""
    drawing = [
        node
        for node in module.graph.nodes
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        and not support.is_node_supported({}, node)
    ]
    for before, node in pairwise(drawing):
        node.kwargs = {**node.kwargs, DRAWN_BEFORE: before}
    yield
    for node in module.graph.nodes:  # others than before
        node.kwargs = {k: v for k, v in node.kwargs.items() if k != DRAWN_BEFORE}


def _whole(module: GraphModule) -> Callable[..., Any] | None:
    """The one compiled part that the graph consists of; None if it has more than that."""
    *inputs, call, output = [n for n in module.graph.nodes if n.op != "get_attr"]
    is_whole = (
        call.op == "call_module"
        and all(n.op == "placeholder" for n in inputs)
        and call.args == tuple(inputs)
        and isinstance(part := getattr(module, str(call.target)), CompiledPart)
    )
    return part.forward if is_whole and output.args[0] in (call, (call,), [call]) else None


def _report(
    kind: str,
    support: Support,
    targets: dict[Node, Any],
    parts: int,
    failures: list[tuple[int, str]],
) -> GraphReport:
    counts: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    compiled = 0
    for node, target in targets.items():
        reason = support.reasons.get(node)
        if reason is None or target is operator.getitem:
            compiled += reason is None
            continue
        counts[str(target)] += 1
        reasons[str(target)] = reason
    fallbacks = {target: (count, reasons[target]) for target, count in counts.items()}
    for i, (count, reason) in enumerate(failures, 1):
        fallbacks[f"part {i}"] = (count, reason)
        compiled -= count
    return GraphReport(kind, compiled, parts, fallbacks)


class CompiledPart(torch.nn.Module):
    """A part of a PyTorch graph, compiled by TinyTorch; called with PyTorch's tensors.

    Attributes:
        code: what runs.
    """

    def __init__(self, part: GraphModule, target: Target) -> None:
        super().__init__()
        self._layouts = _expected_layouts(part)
        examples = [
            empty_example(node.meta["val"]) for node in part.graph.find_nodes(op="placeholder")
        ]
        with using_backend(target.backend), no_grad():
            traced = trace(AtenModule(part).forward, *examples, decompose=None)
        graph, _ = target.manager().run(without_detach(traced.graph))
        # positions that are kept from call to call, as those that a border is read from
        kept = traced.signature.inputs[len(examples) :]
        assert all(isinstance(binding, StateBinding) for binding in kept), "a part's only state"
        self._kept = [binding.read([]).numpy() for binding in kept]
        roles = [Role.ARGUMENT] * len(examples) + [Role.STATE] * len(kept)
        self.code = generate(graph, target, roles)
        self._leaves, self._spec = traced.signature.out_leaves, traced.signature.out_spec

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The part's outputs; memory of inputs is read in place."""
        arrays = self.code.run([*map(array_from_torch, inputs), *self._kept])
        made = map(_as_expected, arrays, self._layouts)
        if self._spec is LEAF:
            return next(made)
        return tree_unflatten(
            [next(made) if leaf is TENSOR else leaf for leaf in self._leaves], self._spec
        )


class Layout(NamedTuple):
    """What the rest of PyTorch's graph expects of a tensor among the outputs of a part.

    Attributes:
        is_bfloat16: its elements are, of which an array has the bits.
        strides: None where they do not matter: the tensor repeats its elements.
    """

    is_bfloat16: bool
    strides: tuple[int, ...] | None


def _expected_layouts(part: GraphModule) -> list[Layout]:
    outputs = part.graph.output_node().args[0]
    nodes = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    found = []
    for value in (node.meta["val"] for node in nodes if isinstance(node, Node)):
        is_dense = is_non_overlapping_and_dense_or_false(value)
        # one that is open is of a dimension of size 1, where any will do
        strides = tuple(s if isinstance(s, int) else s.node.hint for s in value.stride())
        found.append(Layout(value.dtype is torch.bfloat16, strides if is_dense else None))
    return found


def _as_expected(array: Any, layout: Layout) -> torch.Tensor:
    """A result for PyTorch."""
    result, strides = array_to_torch(array, layout.is_bfloat16), layout.strides
    if strides is not None and result.stride() != strides and result.numel() > 1:
        return torch.empty_strided(result.shape, strides, dtype=result.dtype).copy_(result)
    return result
