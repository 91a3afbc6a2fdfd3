"""One page about a model: its graph before and after the passes, and how others do with it.

    report = report_model(load_model("hf:bert-base", small=True), "BERT")
    report.write("bert.html")

It is put together from what `GraphOptimizer`, `diagnose` and `GraphProfiler` say; only the times of
the contestants are measured here, all of them in the same rounds.
"""

from __future__ import annotations

import copy
import html
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from tinytorch.bench.timer import Timing, ratio, time_callables
from tinytorch.bench.units import format_bytes, format_count, format_seconds, format_table
from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.capture.step import capture_step
from tinytorch.fx.diagnosis.diagnosis import Diagnosis, diagnose
from tinytorch.fx.models import Batch, LoadedModel
from tinytorch.fx.optimize.optimizer import GraphOptimizer
from tinytorch.fx.optimize.report import OptimizationReport
from tinytorch.fx.optimize.speed_comparison import runner
from tinytorch.fx.profile.memory_meter import measure_peak
from tinytorch.fx.profile.profile import Profile
from tinytorch.fx.profile.profiler import GraphProfiler
from tinytorch.fx.profile.report_page import STYLE
from tinytorch.graph.passes import get_pass_by_name

EAGER, OURS, EXPORTED = "the model itself", "GraphOptimizer", "torch.export"
COMPILERS = ("tinytorch", "inductor")  # backends of torch.compile
ROUNDS = 7
REFUSED = "Refused, and why"
SIZE, CONTEST, PASSES = "Size of the graph", "Time and memory of an inference", "Passes"
TRAINING, STEP = "The training step", "the training step"
FASTER = "times as fast"
#: Columns of words; all others are numbers.
WORDS = ("mode", "contestant", "pass", "result", "what it does", "what", "why", "phase")
#: What a reader has to know of a table.
NOTES = {
    SIZE: "Calls of operators in the captured graph, before and after all passes that stayed.",
    CONTEST: f"All contestants in turn, in the same {ROUNDS} rounds. How many times as fast one "
             "is, is the median of the ratios within the rounds, not the ratio of medians. The "
             "peak is of what is allocated above weights and inputs; compiled code allocates where "
             "it cannot be seen.",
    PASSES: "In the order in which they ran. Nodes are calls, inputs, parameters and constants. A "
            "pass whose graph gives other results is rolled back, and so is one that is there for "
            "speed alone (such as onednn) and is not faster here.",
    REFUSED: "The model itself runs; here is what does not take it, or what was not kept.",
    TRAINING: "Forward, backward and the update as one captured graph, run node by node. Times are "
              "sums over nodes, each of which is timed by itself.",
}  # fmt: skip

OWN_STYLE = """body { max-width: 80em; }
p { max-width: 60em; line-height: 1.45; }
table { font-size: 13px; }
th { cursor: default; }
th, td { padding: 4px 12px; vertical-align: top; }
td.text { white-space: pre-wrap; overflow-wrap: anywhere; }
td.text:not(:last-child) { white-space: nowrap; }
td.text:last-child { min-width: 22em; }
td.bar { min-width: 9em; background: linear-gradient(to right, color-mix(in srgb, var(--accent) 30%,
  transparent) var(--of), transparent var(--of)); }
.wide { overflow-x: auto; }
"""
LONGEST_BAR = 4.0  # times as fast

Table = tuple[list[str], list[list[str]]]


@dataclass
class ModelReport:
    """The report on one model: capture, passes, speed, memory.

    Attributes:
        title: its name.
        optimization: what the passes did, for inference.
        diagnosis: which tracers take it.
        timings: of an inference, by contestant.
        peaks: bytes above weights and inputs, of those whose memory can be followed on the CPU:
            compiled code allocates unseen.
        refused: contestants that did not run, with why.
        training: a profile of the whole training step; None if it is refused, as `optimization`.
    """

    title: str
    optimization: OptimizationReport | None
    diagnosis: Diagnosis
    timings: dict[str, Timing]
    peaks: dict[str, int]
    refused: dict[str, str]
    training: Profile | None

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, as for JSON; times in seconds."""
        return {
            "title": self.title,
            "optimization": self.optimization and self.optimization.to_dict(),
            "diagnosis": self.diagnosis.to_dict(),
            "contestants": {
                name: {**timing.to_dict(), "peak_bytes": self.peaks.get(name),
                       "speedup": ratio(self.timings[EAGER], timing)}
                for name, timing in self.timings.items()
            },
            "refused": self.refused,
            "training": self.training and {
                "nodes": len(self.training.nodes), "seconds": self.training.whole_seconds,
                "peak_bytes": self.training.predicted_peak},
        }  # fmt: skip

    def sections(self) -> dict[str, Table]:
        """The tables of the report, each with its title: columns and rows; of what is refused
        there is none but its reason."""
        found: dict[str, Table] = {}
        if self.optimization is not None:
            calls = self.optimization.calls.items()
            found[SIZE] = (["mode", "calls before", "calls after"],
                           [[mode, *map(str, counts)] for mode, counts in calls])  # fmt: skip
        found[CONTEST] = self._contest()
        if self.optimization is not None:
            found[PASSES] = self._passes(self.optimization)
        found[REFUSED] = (["what", "why"], self._refusals())
        if self.training is not None:
            found[TRAINING] = self._training(self.training)
        return found

    def _contest(self) -> Table:
        rows = []
        for name, timing in self.timings.items():
            peak = self.peaks.get(name)
            rows.append([
                name, format_seconds(timing.median), f"{timing.spread:.1%}",
                f"{ratio(self.timings[EAGER], timing):.2f}",
                "not seen" if peak is None else format_bytes(peak),
            ])  # fmt: skip
        return ["contestant", "median", "spread", FASTER, "peak"], rows

    def _passes(self, optimization: OptimizationReport) -> Table:
        rows = []
        for mode, results in optimization.results.items():
            for r in results:
                state = "rolled back" if r.error else "changed" if r.changed else "no change"
                nodes = f"{r.nodes_before} to {r.nodes_after}" if state == "changed" else (
                    f"{r.nodes_before}")  # fmt: skip
                rows.append([mode, r.name, state, nodes, format_seconds(r.seconds),
                             _meaning(r.name)])  # fmt: skip
        return ["mode", "pass", "result", "nodes", "time", "what it does"], rows

    def _refusals(self) -> list[list[str]]:
        rows = [[name, why] for name, why in self.refused.items()]
        if (done := self.optimization) is not None:
            rows += [[f"pass {r.name}", str(r.error)] for r in done.failures]
            for results in done.results.values():
                rows += [[f"a rewrite of {r.name}", why] for r in results for why in r.left_out]
            rows += [["taken back", line] for line in done.undone]
            rows += [["not checked", line] for line in done.notes]
        rows += [[f"{v.tracer}: {v.status}", " ".join([v.what, str(v.reason or "")]).strip()]
                 for v in self.diagnosis.verdicts.values() if v.reason or v.what]  # fmt: skip
        return [[what, _short(why)] for what, why in rows] or [
            ["nothing", "every pass and every tracer took the model"]
        ]

    def _training(self, training: Profile) -> Table:
        nodes = training.nodes
        rows = []
        for phase in training.phases:
            own = [n for n in nodes if n.phase == phase]
            rows.append([
                phase, str(len(own)), format_seconds(sum(n.seconds for n in own)),
                format_count(sum(n.flops for n in own)),
                format_bytes(max(n.predicted_bytes for n in own)),
            ])  # fmt: skip
        return ["phase", "nodes", "time", "FLOP", "peak, all included"], rows

    def summary(self) -> str:
        """What a reader should know first: who is how fast, and what it costs to train."""
        said = [f"{name} {ratio(self.timings[EAGER], timing):.2f}"
                for name, timing in self.timings.items() if name != EAGER]  # fmt: skip
        found = [f"How fast an inference is, with {EAGER} as 1: {', '.join(said)}."] if said else []
        if self.training is not None:
            time, peak = self.training.whole_seconds, self.training.predicted_peak
            found.append(
                f"A training step takes {format_seconds(time)}, and {format_bytes(peak)} with "
                "weights and the optimizer's state."
            )
        if failed := [name for name in (OURS, STEP, EXPORTED) if name in self.refused]:
            found.append(f"Refused: {', '.join(failed)}.")
        return " ".join(found)

    def __str__(self) -> str:
        lines = [self.title, self.summary()]
        for title, (columns, rows) in self.sections().items():
            lines += ["", title, *([NOTES[title]] if title in NOTES else [])]
            if title == REFUSED:  # sentences, which no column holds
                lines += [f"{what}: {why}" for what, why in rows]
            else:
                lines.append(format_table(columns, rows))
        return "\n".join(lines)

    def write(self, path: str | Path) -> None:
        """Write the page: HTML that needs no other file and no network."""
        Path(path).write_text(self.render())

    def render(self) -> str:
        """The page as text."""
        parts = []
        for title, (columns, rows) in self.sections().items():
            head = _cells("th", columns, columns)
            body = "".join(f"<tr>{_cells('td', columns, row)}</tr>\n" for row in rows)
            note = f"<p>{html.escape(NOTES[title])}</p>\n" if title in NOTES else ""
            parts.append(
                f'<h2>{html.escape(title)}</h2>\n{note}<div class="wide"><table><thead>'
                f"<tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
            )
        title, about, first = map(html.escape, (self.title, _machine(), self.summary()))
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{title}</title>\n<style>{STYLE}{OWN_STYLE}</style></head>\n"
            f"<body><h1>{title}</h1>\n<p>{first}</p>\n{''.join(parts)}\n<p>{about}</p>\n"
            "</body></html>\n"
        )


def _meaning(name: str) -> str:
    """The first sentence that a pass says of itself."""
    return " ".join((get_pass_by_name(name).__doc__ or "").split("\n\n")[0].split())


def _cells(tag: str, columns: Iterable[str], row: Iterable[str]) -> str:
    """A row of cells: words on the left, numbers on the right; what is faster has a longer bar."""
    found = []
    for column, cell in zip(columns, row, strict=True):
        kind = ' class="text"' if column in WORDS else ""
        if tag == "td" and column == FASTER:
            kind = f' class="bar" style="--of: {min(float(cell), LONGEST_BAR) / LONGEST_BAR:.1%}"'
        found.append(f"<{tag}{kind}>{html.escape(cell)}</{tag}>")
    return "".join(found)


def _machine() -> str:
    threads = torch.get_num_threads()
    return f"PyTorch {torch.__version__}, {threads} thread{'s' if threads > 1 else ''} of the CPU"


def _short(reason: str) -> str:
    """Without the folders in which packages are installed."""
    return re.sub(r"\S*/site-packages/", "", reason)


def report_model(example: LoadedModel, title: str, optimizer: str = "adamw") -> ModelReport:
    """Try everything on a model, and measure it. Takes minutes for a large one.

    Args:
        example: a model with a loss, its inputs and its batch.
        title: of the page.
        optimizer: of the training step: "sgd", "adam" or "adamw".

    What cannot be captured is among the refusals, with its reason.
    """
    refused: dict[str, str] = {}
    training, optimizing = None, None
    try:
        step = capture_step(example.model, example.batch, optimizer, loss=example.loss, lr=1e-3)
        training = GraphProfiler(step, title=title).run(repeats=3)
    except CaptureError as error:
        refused[STEP] = str(error)
    model = example.model.eval()
    contestants: dict[str, nn.Module] = {EAGER: model}
    try:
        optimizing = GraphOptimizer(model, example.inputs, keep_slower=True)
        contestants[OURS] = optimizing.optimize()
    except CaptureError as error:
        refused[OURS], optimizing = str(error), None
    for name, module in _peers(model, example.inputs, refused):
        contestants[name] = module
    device = torch.device("cpu")
    runs = {name: runner(module, model, example.inputs, device, backward=False)
            for name, module in contestants.items()}  # fmt: skip
    clock = "cpu" if torch.get_num_threads() == 1 else "wall"
    timings = time_callables(runs, rounds=ROUNDS, clock=clock, warmup=2)
    existing = [*model.parameters(), *model.buffers(), *tree_leaves(example.inputs)]
    peaks = {name: measure_peak(runs[name], existing, device).peak
             for name in (EAGER, OURS, EXPORTED) if name in runs}  # fmt: skip
    report = None if optimizing is None else optimizing.report()
    return ModelReport(title, report, diagnose(model, example.inputs), timings, peaks, refused,
                       training)  # fmt: skip


def _peers(
    model: nn.Module, inputs: Batch, refused: dict[str, str]
) -> Iterable[tuple[str, nn.Module]]:
    """PyTorch's own, each called once; one that cannot is noted with its words."""
    makers: dict[str, Callable[[], nn.Module]] = {EXPORTED: partial(_exported, model, inputs)}
    for backend in COMPILERS:
        makers[f"torch.compile({backend})"] = partial(_compiled, model, backend)
    for name, make in makers.items():
        try:
            module: Any = make()
            runner(module, model, inputs, torch.device("cpu"), backward=False)()
        except Exception as error:  # whatever a peer raises is its answer, and on the page
            refused[name] = f"{type(error).__name__}: {error}".split("\n")[0]
        else:
            yield name, module


def _exported(model: nn.Module, inputs: Batch) -> nn.Module:
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (tuple(inputs), {})
    exported: Any = torch.export.export(model, args, kwargs)
    found: nn.Module = exported.module()
    return found


def _compiled(model: nn.Module, backend: str) -> nn.Module:
    found: Any = torch.compile(copy.deepcopy(model), backend=backend)
    module: nn.Module = found
    return module
