"""Inference of ResNet-152, BERT-base and GPT-2: PyTorch eager, ours, torch.compile with freezing.

    python benchmarks/inference.py                    one thread, batch 1
    python benchmarks/inference.py --compile          also torch.compile with freezing (minutes)
    python benchmarks/inference.py --check            exits with 1 if a limit is missed

A model with 3x3 convolutions is optimized a second time, with the pass "winograd" among the others;
the limit is for the faster of both.

All run in turns (A B A B) on the CPU time of the thread. How much faster a model can become depends
on how well eager PyTorch uses the machine already: "peak" is the rate of the packed matrix product
of oneDNN, which takes its turn among them, "of peak" the part of it that a model reaches, and
"bound" the speed-up at which all of its arithmetic would run at that rate. Winograd's algorithm
multiplies less often, and is not held by that bound.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from progress import progress
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tinytorch.bench import Timing, format_seconds, format_table, ratio, time_callables
from tinytorch.fx.models import LoadedModel, call, load_model
from tinytorch.fx.optimize.optimizer import WINOGRAD_PASSES, GraphOptimizer
from tinytorch.fx.optimize.report import OptimizationReport

MODELS = ("hf:resnet152", "hf:bert-base", "hf:gpt2")
LIMITS = {"hf:resnet152": 1.8, "hf:bert-base": 2.0, "hf:gpt2": 2.0}
MOST_PASS_SECONDS = 3.0
ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
Shape = tuple[int, ...]
PEAK = "peak"
PEAK_SHAPE = (512, 768, 3072)  # m, k, n of the product
PEAK_GFLOP = 2 * math.prod(PEAK_SHAPE) / 1e9


@dataclass
class Row:
    """One model.

    Attributes:
        timings: by contestant: "eager", "ours", "winograd", "compile"; and of the "peak".
        gflop: of a call.
        reports: of the optimizers, by contestant.
        compile_seconds: the first call of torch.compile; None if it was not asked.
    """

    name: str
    timings: dict[str, Timing]
    gflop: float
    reports: dict[str, OptimizationReport]
    compile_seconds: float | None

    def speedup(self, other: str = "ours") -> float:
        """How many times as fast as eager."""
        return ratio(self.timings["eager"], self.timings[other])

    @property
    def best(self) -> str:
        """The fastest of our contestants."""
        return max(self.reports, key=self.speedup)

    @property
    def peak(self) -> float:
        """Gflop/s of the packed product, between the runs of the model."""
        return PEAK_GFLOP / self.timings[PEAK].median

    def share(self, contestant: str) -> float:
        """The part of the peak that a contestant reaches."""
        return self.gflop / self.timings[contestant].median / self.peak

    @property
    def bound(self) -> float:
        """The speed-up over eager if all arithmetic ran at the peak rate."""
        return 1 / self.share("eager")

    def failures(self) -> list[str]:
        """The limits that are missed."""
        found = []
        reached = self.speedup(self.best)
        if reached < LIMITS[self.name]:
            found.append(f"{self.name}: {reached:.2f} < {LIMITS[self.name]} times eager")
        for contestant, report in self.reports.items():
            if report.pass_seconds > MOST_PASS_SECONDS:
                found.append(
                    f"{self.name}: passes of {contestant} take {report.pass_seconds:.1f} s > "
                    f"{MOST_PASS_SECONDS} s"
                )
        if "compile" in self.timings and reached < self.speedup("compile"):
            found.append(f"{self.name}: behind torch.compile ({self.speedup('compile'):.2f})")
        return found

    def to_dict(self) -> dict[str, Any]:
        """What a machine may read."""
        return {
            "model": self.name,
            "gflop": self.gflop,
            "timings": {name: t.to_dict() for name, t in self.timings.items()},
            "speedup": {n: self.speedup(n) for n in self.timings if n not in ("eager", PEAK)},
            "speedup_bound": self.bound,
            "peak_gflops": self.peak,
            "compile_first_call_s": self.compile_seconds,
            "optimizers": {name: report.to_dict() for name, report in self.reports.items()},
        }


def load(name: str, batch: int, sequence: int, image: int, small: bool) -> LoadedModel:
    """A model in evaluation mode; BERT with the head over the vocabulary."""
    head = "masked-lm" if name == "hf:bert-base" else None
    example = load_model(
        name, batch=batch, sequence=sequence, image=image, small=small, head=head
    )  # fmt: skip
    example.model.eval()
    return example


def compiled(model: nn.Module, inputs: Any) -> tuple[Any, float]:
    """The model under torch.compile with freezing, and how long its first call took."""
    from torch._inductor import config

    torch._dynamo.reset()
    frozen = copy.deepcopy(model)
    with config.patch(freezing=True), torch.no_grad():
        function = torch.compile(frozen)
        start = time.perf_counter()
        call(function, inputs)
        return function, time.perf_counter() - start


def measure(example: LoadedModel, rounds: int, with_compile: bool) -> Row:
    """Time the contestants on one model."""
    model, inputs = example.model, example.inputs
    options: dict[str, Any] = {"device": "cpu", "trials": 1, "keep_slower": True}
    optimizers = {"ours": GraphOptimizer(model, inputs, **options)}
    if any(getattr(m, "kernel_size", None) == (3, 3) for m in model.modules()):
        optimizers["winograd"] = GraphOptimizer(model, inputs, WINOGRAD_PASSES, **options)
    contestants: dict[str, Any] = {"eager": model}
    contestants.update({name: each.optimize() for name, each in optimizers.items()})
    seconds = None
    if with_compile:
        contestants["compile"], seconds = compiled(model, inputs)
    with torch.no_grad():
        counter = FlopCounterMode(display=False, custom_mapping={ATTENTION: attention_flops})
        with counter:
            call(model, inputs)
        functions = {n: lambda f=f: call(f, inputs) for n, f in contestants.items()}
        functions[PEAK] = packed_product()
        timings = time_callables(functions, rounds=rounds, warmup=2)
    reports = {name: each.report() for name, each in optimizers.items()}
    return Row(example.name, timings, counter.get_total_flops() / 1e9, reports, seconds)


def attention_flops(
    query: Shape, key: Shape, value: Shape, dropout: float = 0.0, is_causal: bool = False, **_: Any
) -> int:
    """Of the two products of an attention, which PyTorch does not count on the CPU; where it is
    causal, of no key after the query."""
    batch, heads, queries, width = query
    keys = key[-2]
    pairs = queries * (queries + 1) // 2 if is_causal else queries * keys
    return 2 * batch * heads * pairs * (width + value[-1])


def packed_product() -> Callable[[], object]:
    """oneDNN's product with a packed weight."""
    m, k, n = PEAK_SHAPE
    x = torch.randn(m, k)
    weight = torch.ops.mkldnn._reorder_linear_weight(torch.randn(n, k), m)
    kernel = torch.ops.mkldnn._linear_pointwise.default
    return lambda: kernel(x, weight, None, "none", [], "")


def table(rows: list[Row]) -> str:
    """A line for each model."""
    head = ["model", "", "time", "speed-up", "bound", "of peak", "passes", "error against float64"]
    lines = []
    for row in rows:
        name = row.name.removeprefix("hf:")
        for contestant, timing in row.timings.items():
            if contestant == PEAK:
                continue
            line = [name, contestant, format_seconds(timing.median), "", "", "", "", ""]
            report = row.reports.get(contestant)
            if contestant != "eager":
                line[3] = f"{row.speedup(contestant):.2f}"
            if contestant == "ours":
                line[4] = f"{row.bound:.2f}"
            if contestant != "winograd":
                line[5] = f"{row.share(contestant):.0%}"
            if contestant == "compile":
                line[6] = f"first call {row.compile_seconds:.0f} s"
            if report is not None:
                line[6] = f"{report.pass_seconds:.2f} s"
                line[7] = _errors(report)
            lines.append(line)
            name = ""
    return format_table(head, lines)


def _errors(report: OptimizationReport) -> str:
    found = report.accuracy
    return "" if found is None else f"{found.optimized:.1e}, of the model {found.original:.1e}"


def main() -> int:
    """Measure, print, and with --check compare with the limits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), help=", ".join(MODELS))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--small", action="store_true", help="small models, to try it out")
    parser.add_argument("--compile", action="store_true", help="also torch.compile with freezing")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in options.models:
        with progress.during(name):
            example = load(name, options.batch, options.sequence, options.image, options.small)
            rows.append(measure(example, options.rounds, options.compile))
    if options.json:
        found = {"torch": torch.__version__, "models": [row.to_dict() for row in rows]}
        print(json.dumps(found, indent=2))
    else:
        rates = sorted(row.peak for row in rows)
        print(
            f"peak of one thread, packed float32 product: {rates[0]:.0f} to {rates[-1]:.0f} Gflop/s"
        )
        print(table(rows))
    failures = [line for row in rows for line in row.failures()] if options.check else []
    print(*failures, sep="\n", end="\n" if failures else "", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
