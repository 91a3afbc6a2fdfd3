"""Inference of ResNet-152, BERT-base and GPT-2: PyTorch eager, ours, torch.compile with freezing.

    python benchmarks/inference.py                    one thread, batch 1
    python benchmarks/inference.py --compile          also torch.compile with freezing (minutes)
    python benchmarks/inference.py --check            exits with 1 if a limit is missed

All run in turns (A B A B) on the CPU time of the thread. How much faster a model can become depends
on how well eager PyTorch uses the machine already: "peak" is the rate of the packed matrix product
of oneDNN here, "of peak" the part of it that a model reaches, and "bound" the speed-up at which all
of its arithmetic would run at that rate.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tinytorch.bench import Timing, format_seconds, format_table, ratio, time_callables
from tinytorch.fx.models import LoadedModel, call, load_model
from tinytorch.fx.optimize.optimizer import GraphOptimizer, OptimizationReport

MODELS = ("hf:resnet152", "hf:bert-base", "hf:gpt2")
LIMITS = {"hf:resnet152": 1.8, "hf:bert-base": 2.0, "hf:gpt2": 2.0}
MOST_PASS_SECONDS = 3.0


@dataclass
class Row:
    """One model.

    Attributes:
        timings: by contestant: "eager", "ours", "compile".
        gflop: of a call.
        report: of the optimizer.
        compile_seconds: the first call of torch.compile; None if it was not asked.
        error: largest difference from eager, relative to the largest value.
    """

    name: str
    timings: dict[str, Timing]
    gflop: float
    report: OptimizationReport
    compile_seconds: float | None
    error: float

    def speedup(self, other: str = "ours") -> float:
        """How many times as fast as eager."""
        return ratio(self.timings["eager"], self.timings[other])

    def bound(self, peak: float) -> float:
        """The speed-up over eager if all arithmetic ran at the peak rate."""
        return self.timings["eager"].median * peak / self.gflop

    def failures(self) -> list[str]:
        """The limits that are missed."""
        found = []
        if self.speedup() < LIMITS[self.name]:
            found.append(f"{self.name}: {self.speedup():.2f} < {LIMITS[self.name]} times eager")
        if self.report.pass_seconds > MOST_PASS_SECONDS:
            seconds = self.report.pass_seconds
            found.append(f"{self.name}: passes take {seconds:.1f} s > {MOST_PASS_SECONDS} s")
        if "compile" in self.timings and self.speedup() < self.speedup("compile"):
            found.append(f"{self.name}: behind torch.compile ({self.speedup('compile'):.2f})")
        return found

    def to_dict(self, peak: float) -> dict[str, Any]:
        """What a machine may read."""
        return {
            "model": self.name,
            "gflop": self.gflop,
            "timings": {name: t.to_dict() for name, t in self.timings.items()},
            "speedup": {n: self.speedup(n) for n in self.timings if n != "eager"},
            "speedup_bound": self.bound(peak),
            "compile_first_call_s": self.compile_seconds,
            "relative_error": self.error,
            "optimizer": self.report.to_dict(),
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
    optimizer = GraphOptimizer(model, inputs, device="cpu", trials=1)
    contestants: dict[str, Any] = {"eager": model, "ours": optimizer.optimize()}
    seconds = None
    if with_compile:
        contestants["compile"], seconds = compiled(model, inputs)
    with torch.no_grad():
        counter = FlopCounterMode(display=False)
        with counter:
            expected = call(model, inputs)[0]
        found = call(contestants["ours"], inputs)[0]
        error = ((found - expected).abs().max() / expected.abs().max()).item()
        functions = {n: lambda f=f: call(f, inputs) for n, f in contestants.items()}
        timings = time_callables(functions, rounds=rounds, warmup=2)
    flops = counter.get_total_flops()
    return Row(example.name, timings, flops / 1e9, optimizer.report(), seconds, error)


def peak_rate(rounds: int) -> float:
    """Gflop/s of oneDNN's packed product of (512, 768) and (768, 3072)."""
    m, k, n = 512, 768, 3072
    x = torch.randn(m, k)
    weight = torch.ops.mkldnn._reorder_linear_weight(torch.randn(n, k), m)
    kernel = torch.ops.mkldnn._linear_pointwise.default
    timing = time_callables({"gemm": lambda: kernel(x, weight, None, "none", [], "")},
                            rounds=rounds)["gemm"]  # fmt: skip
    return 2 * m * k * n / timing.fastest / 1e9


def table(rows: list[Row], peak: float) -> str:
    """A line for each model."""
    head = ["model", "eager", "ours", "speed-up", "bound", "of peak", "compile", "passes", "error"]
    lines = []
    for row in rows:
        rate = row.gflop / row.timings["ours"].median
        has_compile = "compile" in row.timings
        lines.append([
            row.name.removeprefix("hf:"), format_seconds(row.timings["eager"].median),
            format_seconds(row.timings["ours"].median), f"{row.speedup():.2f}",
            f"{row.bound(peak):.2f}", f"{rate / peak:.0%}",
            f"{row.speedup('compile'):.2f} ({row.compile_seconds:.0f} s)" if has_compile else "",
            f"{row.report.pass_seconds:.2f} s", f"{row.error:.0e}",
        ])  # fmt: skip
    return format_table(head, lines)


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
    peak = peak_rate(options.rounds)
    rows = []
    for name in options.models:
        example = load(name, options.batch, options.sequence, options.image, options.small)
        rows.append(measure(example, options.rounds, options.compile))
    if options.json:
        print(json.dumps({"peak_gflops": peak, "torch": torch.__version__,
                          "models": [row.to_dict(peak) for row in rows]}, indent=2))  # fmt: skip
    else:
        print(f"peak of one thread, packed float32 product: {peak:.0f} Gflop/s")
        print(table(rows, peak))
    failures = [line for row in rows for line in row.failures()] if options.check else []
    print(*failures, sep="\n", end="\n" if failures else "", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
