"""Training memory against time: ours beside torch.utils.checkpoint and PyTorch's min-cut.

The joint graph of forward and backward is captured once. Ours and min-cut partition it, each in its
own way and order, and are run by the same code; eager training, plain and with every block
checkpointed, is run by autograd. Peaks are measured (live storages on the CPU), time is the CPU
time of one thread, in interleaved rounds; gradients are compared bit by bit.

    python benchmarks/recompute.py               # four layers of BERT, 8 x 256 tokens, and a plot
    python benchmarks/recompute.py --model bert-base --batch 16 --sequence 512 --simulate

With --simulate nothing is run and no memory needed: peaks are simulated, which is exact, and time
is an estimate from FLOPs and bytes.
"""

import thread_count  # noqa: F401, I001 - before torch

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.utils.checkpoint
from progress import progress

from tinytorch.bench import format_bytes, format_seconds, format_table
from tinytorch.fx.recompute.checkpointing import CLEANING, ORDERING
from tinytorch.fx.capture.joint import JointGraph, capture_joint
from tinytorch.fx.profile.memory_meter import MemoryMeter
from tinytorch.fx.models import LoadedModel, load_model
from tinytorch.fx.passes.chunked_cross_entropy import ChunkedCrossEntropy
from tinytorch.fx.recompute.mincut import STRATEGIES, min_cut_partition, min_cut_plans
from tinytorch.fx.recompute.partition import BoxedCodeGen, partition
from tinytorch.fx.semantics.semantics import TorchSemantics
from tinytorch.graph.passes import get_pass_by_name
from tinytorch.graph.recompute.budget import parse_budget
from tinytorch.graph.recompute.frontier import Frontier, find_frontier
from tinytorch.graph.recompute.mutwo import greedy_plans
from tinytorch.graph.recompute.problem import Plan, Problem, RecomputeError
from tinytorch.graph.recompute.rewrite import rewrite

BLOCKS = ("ResNetBottleNeckLayer", "BertLayer", "GPT2Block")
MIN_CUT_BUDGETS = (0.9, 0.7, 0.5, 0.3, 0.1)
Run = Callable[[], list[torch.Tensor]]  # one step; returns the gradients


class Loss(torch.nn.Module):
    """A model that returns its loss alone."""

    def __init__(self, example: LoadedModel) -> None:
        super().__init__()
        self.model, self.loss = example.model, example.loss

    def forward(self, **batch: Any) -> torch.Tensor:
        return self.loss(self.model, batch)


def joint_graph(model: Loss, batch: Any, rows: int) -> JointGraph:
    """Cleaned, and with the vocabulary in chunks if asked for."""
    joint = capture_joint(model, batch)
    semantics = TorchSemantics()
    passes = [get_pass_by_name(name)(semantics) for name in CLEANING]
    if rows:
        passes += [ChunkedCrossEntropy(semantics, rows), *passes]
    for each in passes:
        each.run(joint.module.graph)
    joint.module.recompile()
    return joint


def ordered(joint: JointGraph) -> JointGraph:
    """A copy with the backward as `checkpoint` orders it; only for ours."""
    own = copy_of(joint)
    for name in ORDERING:
        get_pass_by_name(name)(TorchSemantics()).run(own.module.graph)
    own.module.recompile()
    return own


def problem_of(joint: JointGraph) -> Problem:
    return Problem(joint.module.graph, TorchSemantics())


def copy_of(joint: JointGraph) -> JointGraph:
    graph = TorchSemantics().copy(joint.module.graph)
    return JointGraph(graph.owning_module, joint.inputs, joint.outputs, joint.result_leaves,
                      joint.result_spec)  # fmt: skip


def inputs_of(joint: JointGraph, model: Loss, batch: Any) -> list[torch.Tensor]:
    ones = [torch.ones(()) for slot in joint.inputs if slot.role == "tangent"]
    return joint.flat_inputs(model, batch, ones)


def run_plan(joint: JointGraph, plan: Plan, inputs: list[torch.Tensor]) -> Run:
    """Our rewriting of the joint graph."""
    own = copy_of(joint)
    rewrite(problem_of(own), plan)
    parts = partition(own)
    given = inputs[: len(parts.inputs)]
    tangents = inputs[len(parts.inputs) :]

    def run() -> list[torch.Tensor]:
        results = parts.forward(list(given))
        arguments = results[len(parts.outputs) :]
        del results[len(parts.outputs) :]
        arguments += [*(given[i] for i in parts.kept_inputs), *tangents]
        return parts.backward(arguments)

    return run


def run_min_cut(joint: JointGraph, budget: float, inputs: list[torch.Tensor]) -> Run:
    """PyTorch's two graphs, in PyTorch's order."""
    parts = min_cut_partition(joint.module, budget)
    for part in (parts.forward, parts.backward):
        part.graph.set_codegen(BoxedCodeGen())
        part.recompile()
    count = len([s for s in joint.inputs if s.role != "tangent"])
    given, tangents = inputs[:count], inputs[count:]

    def run() -> list[torch.Tensor]:
        results = list(parts.forward(list(given)))
        arguments = [*results[parts.results :], *tangents]
        del results[parts.results :]
        return [g for g in parts.backward(arguments) if g is not None]

    return run


def run_eager(model: Loss, batch: Any) -> Run:
    def run() -> list[torch.Tensor]:
        loss = model(**batch)
        found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        return [g for g in found if g is not None]

    return run


def checkpoint_blocks(model: torch.nn.Module) -> int:
    """Let each block of a model run under torch.utils.checkpoint."""
    blocks = [m for m in model.modules() if type(m).__name__ in BLOCKS]
    for block in blocks:
        block.forward = _checkpointed(block.forward)
    return len(blocks)


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return run


def peak_of(run: Run, existing: Any) -> tuple[int, list[torch.Tensor]]:
    torch.manual_seed(0)
    with MemoryMeter(existing) as meter:
        gradients = run()
    return meter.peak, gradients


def times_of(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    """The fastest of some interleaved rounds, in seconds of CPU time."""
    found = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.thread_time()
            run()
            found[name] = min(found[name], time.thread_time() - start)
    return found


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(map(torch.equal, a, b))


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Everything, run."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    example = example_of(options)
    model = Loss(example)
    joint = joint_graph(model, example.batch, options.rows)
    inputs = inputs_of(joint, model, example.batch)
    everything = problem_of(joint)
    whole_peak = everything.simulate(everything.everything).peak
    ours = ordered(joint)
    problem = problem_of(ours)
    frontier = find_frontier(problem, STRATEGIES)
    runs: dict[str, Run] = {"eager": run_eager(model, example.batch)}
    extra: dict[str, float] = {}
    budgets: dict[str, int] = {}
    for name, plan in plans_within(frontier, options.budgets, whole_peak).items():
        runs[name] = run_plan(ours, plan, inputs)
        extra[name] = plan.flops / problem.total_flops
        _, _, budget = name.partition(" ")
        budgets[name] = plan.peak if budget == "lowest" else int(float(budget) * whole_peak)
    for budget in MIN_CUT_BUDGETS:
        runs[f"min-cut {budget:g}"] = run_min_cut(joint, budget, inputs)
    existing = [inputs, list(model.buffers()), example.batch]
    peaks = {}
    for name, run in runs.items():
        with progress.during(f"{options.model}, memory of {name}"):
            peaks[name] = peak_of(run, existing)
    blocks = Loss(example_of(options))
    blocks.load_state_dict(model.state_dict())
    blocks.train(model.training)
    if checkpoint_blocks(blocks):
        runs["blocks"] = run_eager(blocks, example.batch)
        own = [list(blocks.parameters()), list(blocks.buffers()), example.batch]
        peaks["blocks"] = peak_of(runs["blocks"], own)
    with progress.during(f"{options.model}, times of all {len(runs)} plans"):
        seconds = times_of(runs, options.rounds)
    whole, reference = peaks["eager"]
    return [
        {
            "name": name,
            "peak": peak,
            "of_eager": peak / whole,
            "budget": budgets.get(name),
            "seconds": seconds[name],
            "slower": seconds[name] / seconds["eager"] - 1,
            "extra_flops": extra.get(name),
            "bit_equal": same(gradients, reference),
        }
        for name, (peak, gradients) in peaks.items()
    ]


def simulate(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Everything, simulated: min-cut's and muTWO's choices with our placement."""
    example = example_of(options)
    joint = joint_graph(Loss(example), example.batch, options.rows)
    problem = problem_of(joint)
    everything = problem.simulate(problem.everything)
    whole = everything.peak
    ours = ordered(joint)
    frontier = find_frontier(problem_of(ours), STRATEGIES)
    found = {"everything": everything}
    found |= plans_within(frontier, options.budgets, whole)
    for budget, kept in zip(MIN_CUT_BUDGETS, min_cut_plans(problem, MIN_CUT_BUDGETS),
                            strict=True):  # fmt: skip
        found[f"min-cut {budget:g}"] = problem.simulate(kept)
    greedy = [problem.simulate(kept) for kept in greedy_plans(problem)]
    for budget in options.budgets:
        fitting = [plan for plan in greedy if plan.peak <= budget * whole]
        if fitting:
            found[f"muTWO {budget:g}"] = min(fitting, key=lambda plan: plan.cost)
    return [
        {
            "name": name,
            "peak": plan.peak,
            "of_everything": plan.peak / whole,
            "slower": plan.cost / problem.total_cost,
            "extra_flops": plan.flops / problem.total_flops,
        }
        for name, plan in found.items()
    ]


PLOT = Path("build/recompute.png")
#: What the families of rows are called in the plot.
LEGEND = {
    "eager": "eager, everything kept",
    "ours": "ours, at budgets of memory",
    "min-cut": "PyTorch's min-cut, at its budgets",
    "blocks": "checkpoint of each block",
}
#: Where activations, not weights and their gradients, are most of the memory.
USUAL = {"batch": 8, "sequence": 256, "layers": 4}


def plans_within(frontier: Frontier, budgets: list[float], whole: int) -> dict[str, Plan]:
    """The plan at each budget, and at the lowest peak there is; one line names what cannot be."""
    found: dict[str, Plan] = {}
    refused = []
    for budget in budgets:
        try:
            found[f"ours {budget:g}"] = frontier.within(max(1, int(budget * whole)))
        except RecomputeError:
            refused.append(f"{budget:g}")
    lowest = frontier.plans[0]
    found = {name: plan for name, plan in found.items() if plan is not lowest}  # one row for it
    found["ours lowest"] = lowest
    if refused:
        print(f"budgets {', '.join(refused)} of the peak with everything kept cannot be met: the "
              f"lowest is {lowest.peak / whole:.2f} ({format_bytes(lowest.peak)}), which the "
              "gradients of the weights are a part of", file=sys.stderr)  # fmt: skip
    return found


def example_of(options: argparse.Namespace) -> LoadedModel:
    """The model by name, its dropout off: then all contestants must give the same gradients."""
    torch.manual_seed(0)
    return load_model(f"hf:{options.model}", small=options.small, dropout=0.0, **sizes_of(options))


def sizes_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the options say of the model's sizes, and the usual ones where they say nothing."""
    usual = {} if options.small or options.model == "resnet152" else USUAL
    sizes = {"batch": options.batch, "sequence": options.sequence, "image": options.image,
             "head": options.head, "layers": options.layers}  # fmt: skip
    sizes = {name: usual.get(name) if value is None else value for name, value in sizes.items()}
    return {name: value for name, value in sizes.items() if value is not None}


def table(rows: list[dict[str, Any]]) -> str:
    def cell(key: str, value: Any) -> str:
        if value is None:
            return ""
        if key in ("peak", "budget"):
            return format_bytes(value)
        if key == "seconds":
            return format_seconds(value)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return f"{100 * value:.1f} %" if isinstance(value, float) else str(value)

    columns = list(rows[0])
    return format_table(columns, [[cell(k, row[k]) for k in columns] for row in rows])


def memory_limit(text: str) -> int:
    """Bytes, of an option."""
    found = parse_budget(text)
    if isinstance(found, float):
        raise argparse.ArgumentTypeError("a limit is in bytes, such as 512MiB")
    return found


def plot(rows: list[dict[str, Any]], path: Path, title: str, limit: int | None = None) -> None:
    """Peak against extra time, a line for each family, and one for the limit of memory."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for family in dict.fromkeys(row["name"].partition(" ")[0] for row in rows):
        own = sorted(
            (r["peak"] / 2**20, 100 * r["slower"]) for r in rows
            if r["name"].partition(" ")[0] == family
        )  # fmt: skip
        axes.plot(*zip(*own, strict=True), marker="o", label=LEGEND.get(family, family))
    if limit is not None:
        axes.axvline(limit / 2**20, color="black", linestyle="--", label=format_bytes(limit))
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set_xlabel("peak of memory, MiB; lower is better")
    axes.set_ylabel("extra time over eager, %; lower is better")
    axes.set_title(title)
    axes.legend()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="bert-base", choices=("bert-base", "gpt2", "resnet152"))
    parser.add_argument("--small", action="store_true", help="a tiny configuration of the model")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--sequence", type=int)
    parser.add_argument("--layers", type=int, help="blocks, instead of all")
    parser.add_argument("--image", type=int)
    parser.add_argument("--head", choices=("masked-lm",), help="of BERT; by default a classifier")
    parser.add_argument("--rows", type=int, default=0, help="of a chunk of the cross entropy")
    parser.add_argument("--budgets", type=float, nargs="+", metavar="FRACTION",
                        default=[1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2])  # fmt: skip
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--simulate", action="store_true", help="run nothing")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--plot", type=Path, metavar="FILE", default=PLOT,
                        help=f"by default {PLOT}")  # fmt: skip
    parser.add_argument("--memory-limit", metavar="BYTES", type=memory_limit,
                        help="a line in the plot, such as 512MiB")  # fmt: skip
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = simulate(options) if options.simulate else measure(options)
    sizes = ", ".join(f"{name} {value}" for name, value in sizes_of(options).items())
    title = f"{options.model}, {sizes}" if sizes else options.model
    options.plot.parent.mkdir(parents=True, exist_ok=True)
    plot(rows, options.plot, title, options.memory_limit)
    if options.json:
        facts = {k: v for k, v in vars(options).items() if k not in ("json", "plot")}
        facts |= {"torch": torch.__version__, "plot": str(options.plot), "rows": rows}
        print(json.dumps(facts, indent=2))
        return
    print(table(rows))
    print(f"plot: {options.plot}")


if __name__ == "__main__":
    main()
