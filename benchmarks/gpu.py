"""The real models on a GPU: optimizer, training step, profiler and checkpoint, in absolute figures.

    python benchmarks/gpu.py                     all of it, on the first CUDA device (minutes)
    python benchmarks/gpu.py inference step      some of it
    python benchmarks/gpu.py --device cpu --small        the same on the CPU, to try it out

Times are medians of calls that run in turns, waiting for the device; memory is the peak of CUDA's
allocator above what was there before. The tables go to `benchmarks/results/<device>-<date>.md` and
`.json`, after each model what there is so far.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from tinytorch.bench import (
    CANNOT_RUN_HERE,
    format_bytes,
    format_seconds,
    markdown_table,
    time_callables,
)
from tinytorch.fx.capture.step import capture_step
from tinytorch.fx.models import LoadedModel, call, load_model
from tinytorch.fx.optimize.devices import resolve_device, synchronize
from tinytorch.fx.optimize.optimizer import GraphOptimizer
from tinytorch.fx.optimize.precision import FLOAT32, precision, precisions_of
from tinytorch.fx.optimize.step_optimizer import optimize_step
from tinytorch.fx.profile.memory_meter import measure_peak
from tinytorch.fx.profile.profiler import GraphProfiler
from tinytorch.fx.recompute.checkpointing import checkpoint
from tinytorch.graph.recompute.problem import RecomputeError

MODELS = ("hf:resnet152", "hf:bert-base", "hf:gpt2")
BUDGETS = (0.6, 0.4)
LEARNING_RATE = 1e-3
ROUNDS = 7


@dataclass
class Row:
    """One contestant on one model.

    Attributes:
        section, model, contestant: what it is.
        seconds: of a call; the median.
        peak_bytes: above what was there before.
        note: what else there is to say.
    """

    section: str
    model: str
    contestant: str
    seconds: float
    peak_bytes: int
    note: str = ""


def timed(
    section: str,
    model: str,
    contestants: Mapping[str, Callable[[], object]],
    device: torch.device,
    existing: Any,
) -> list[Row]:
    """Rows for functions that run in turns."""

    def waiting(function: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            function()
            synchronize(device)

        return run

    functions = {name: waiting(f) for name, f in contestants.items()}
    timings = time_callables(functions, rounds=ROUNDS, clock="wall", warmup=2)
    rows = []
    for name, function in functions.items():
        peak = measure_peak(function, existing, device).peak
        rows.append(Row(section, model, name, timings[name].median, peak))
    return rows


def in_precision(kind: str, device: torch.device, model: Any, inputs: Any) -> object:
    """A call of a model in another precision than float32."""
    with precision(kind, device):
        return call(model, inputs)


def inference(example: LoadedModel, device: torch.device, with_compile: bool) -> list[Row]:
    """Eager, optimized, and torch.compile, without gradients."""
    model, inputs = example.model.eval(), example.inputs
    optimizer = GraphOptimizer(model, inputs, device=device, trials=1, keep_slower=True)
    modules: dict[str, Any] = {"eager": model, "optimized": optimizer.optimize()}
    if with_compile:
        torch._dynamo.reset()
        modules["torch.compile"] = torch.compile(copy.deepcopy(model))
    contestants = {name: lambda m=m: call(m, inputs) for name, m in modules.items()}
    for kind in precisions_of(device)[1:]:
        contestants[f"eager, {kind}"] = lambda k=kind: in_precision(k, device, model, inputs)
    with torch.no_grad():
        rows = timed(
            "inference", example.name, contestants,
            device, [*model.parameters(), *model.buffers()],
        )  # fmt: skip
    report = optimizer.report()
    before, after = report.calls["eval"]
    rows[1].note = f"{before} calls to {after}, passes {report.pass_seconds:.1f} s"
    return rows


def step(example: LoadedModel, device: torch.device, with_compile: bool) -> list[Row]:
    """A training step with fused Adam: eager, captured, and captured and optimized."""
    model, batch = example.model.train(), example.batch
    eager = copy.deepcopy(model)
    adam = torch.optim.Adam(eager.parameters(), lr=LEARNING_RATE, fused=True)

    def eager_step() -> None:
        adam.zero_grad()
        example.loss(eager, batch).backward()
        adam.step()

    captured = capture_step(model, batch, "adam", loss=example.loss, lr=LEARNING_RATE)
    improved, report = optimize_step(captured, trials=0)
    state = captured.state_of(model)
    flat = captured.flat_inputs(state, batch)
    own = [x.clone() for x in flat]  # the optimized step writes to its state
    eager_step()  # its state is there before anything is measured
    adam.zero_grad()
    with torch.no_grad():
        contestants: dict[str, Callable[[], object]] = {
            "captured": lambda: captured.module(*flat),
            "optimized": lambda: improved.module(*own),
        }
        rows = timed("step", example.name, contestants, device, [flat, own])
    existing = [*eager.parameters(), *eager.buffers(),
                *(t for s in adam.state.values() for t in s.values())]  # fmt: skip
    rows = timed("step", example.name, {"eager": eager_step}, device, existing) + rows
    rows[2].note = ", ".join(r.name for r in report.results if r.changed)
    return rows


def profiler(example: LoadedModel, device: torch.device, with_compile: bool) -> list[Row]:
    """The profiler's prediction of the peak of a step beside what is measured."""
    captured = capture_step(
        example.model.train(), example.batch, "adam", loss=example.loss, lr=LEARNING_RATE
    )
    profile = GraphProfiler(captured, title=example.name).run(repeats=3)
    measured, predicted = profile.measured_peak, profile.predicted_peak
    note = f"predicted {format_bytes(predicted)}, {predicted / measured - 1:+.2%}"
    return [Row("profiler", example.name, "step", profile.whole_seconds, measured, note)]


def checkpointing(example: LoadedModel, device: torch.device, with_compile: bool) -> list[Row]:
    """Forward and backward within memory budgets, beside torch.utils.checkpoint per block."""
    model, batch = example.model.train(), example.batch
    modules: dict[str, Any] = {"save everything": model}
    if getattr(model, "supports_gradient_checkpointing", False):
        per_block: Any = copy.deepcopy(model)
        new = "activation_checkpointing_enable"  # not in every transformers 5
        getattr(per_block, new if hasattr(per_block, new) else "gradient_checkpointing_enable")()
        modules["torch.utils.checkpoint"] = per_block
    unmet = []
    for budget in BUDGETS:
        try:
            modules[f"budget {budget}"] = checkpoint(
                model, batch, budget=budget, select=lambda result: result.loss
            )
        except RecomputeError as error:
            unmet.append(str(error))

    def run(name: str, module: Any) -> Callable[[], None]:
        def function() -> None:
            module.zero_grad()
            loss = call(module, batch)
            (loss if name.startswith("budget") else loss.loss).backward()

        return function

    existing = [t for m in modules.values() for t in (*m.parameters(), *m.buffers())]
    contestants = {name: run(name, module) for name, module in modules.items()}
    rows = timed("checkpoint", example.name, contestants, device, existing)
    rows[0].note = "; ".join(unmet)
    return rows


SECTIONS: dict[str, Callable[[LoadedModel, torch.device, bool], list[Row]]] = {
    "inference": inference,
    "step": step,
    "profiler": profiler,
    "checkpoint": checkpointing,
}


def load(name: str, section: str, device: torch.device, small: bool) -> LoadedModel:
    """A model and a batch on a device, of sizes that make it work."""
    sizes: dict[str, Any] = {"batch": 2, "sequence": 16, "image": 32, "small": True}
    if not small:
        batch = 8 if section == "inference" else 16
        sizes = {"batch": batch, "sequence": 512, "image": 224}
    example = load_model(name, dropout=0.0, **sizes)
    example.model.to(device)

    def moved(nest: Any) -> Any:
        return tree_map_only(torch.Tensor, lambda x: x.to(device), nest)

    example.inputs, example.labels = moved(example.inputs), moved(example.labels)
    return example


def measure(
    sections: list[str], models: list[str], device: torch.device, small: bool, with_compile: bool
) -> Iterator[list[Row]]:
    """The rows so far, after each model of each section.

    Each starts from a fresh model, with the device's memory given back.
    """
    rows: list[Row] = []
    for section in sections:
        for name in models:
            print(f"{section} {name} ...", file=sys.stderr, flush=True)
            rows += SECTIONS[section](load(name, section, device, small), device, with_compile)
            yield rows
            if device.type == "cuda":
                torch.cuda.empty_cache()


def device_name(device: torch.device) -> str:
    """What the device is called by its maker."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()


def as_markdown(rows: list[Row], title: str) -> str:
    """A table for each section."""
    lines = [f"# {title}", ""]
    for section in dict.fromkeys(row.section for row in rows):
        cells = [
            [row.model.removeprefix("hf:"), row.contestant, format_seconds(row.seconds),
             format_bytes(row.peak_bytes), row.note]
            for row in rows
            if row.section == section
        ]  # fmt: skip
        columns = ["model", "", "time", "peak memory", ""]
        lines += [f"## {section}", "", markdown_table(columns, cells, left=2), ""]
    return "\n".join(lines)


def write(rows: list[Row], device: torch.device, folder: Path, small: bool) -> Path:
    """Write both files; returns the path of the table."""
    folder.mkdir(parents=True, exist_ok=True)
    date = datetime.date.today().isoformat()
    name = re.sub(r"[^a-z0-9]+", "-", device_name(device).lower()).strip("-")
    stem = folder / f"{name}-{date}{'-small' if small else ''}"
    sizes = "small models" if small else "ResNet-152 at 224 px, BERT-base and GPT-2 at 512 tokens"
    title = f"{device_name(device)}, {date}, PyTorch {torch.__version__}, {sizes}"
    facts = {"device": device_name(device), "date": date, "torch": torch.__version__,
             "small": small, "rows": [asdict(row) for row in rows]}  # fmt: skip
    stem.with_suffix(".json").write_text(json.dumps(facts, indent=2) + "\n")
    stem.with_suffix(".md").write_text(as_markdown(rows, title))
    return stem.with_suffix(".md")


def main(arguments: list[str] | None = None) -> int:
    """Measure and write the tables; without a CUDA device, unless another is named, do nothing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sections", nargs="*", help=f"{', '.join(SECTIONS)}; by default all")
    parser.add_argument("--model", action="append", help=", ".join(MODELS))
    parser.add_argument("--device", help="by default the first CUDA device")
    parser.add_argument("--small", action="store_true", help="small models")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"there is no section {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    if options.device is None and not torch.cuda.is_available():
        print(
            "there is no CUDA device here, so nothing is measured; run this on a machine with one, "
            "or try it out with --device cpu --small",
            file=sys.stderr,
        )
        return CANNOT_RUN_HERE
    device = resolve_device(options.device or "cuda")
    sections = options.sections or list(SECTIONS)
    models = options.model or list(MODELS)
    with precision(FLOAT32, device):  # and not TF32, unless a row says so
        for rows in measure(sections, models, device, options.small, not options.no_compile):
            path = write(rows, device, options.out, options.small)  # minutes, which may be cut off
    print((path.with_suffix(".json") if options.json else path).read_text())
    print(f"written to {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
