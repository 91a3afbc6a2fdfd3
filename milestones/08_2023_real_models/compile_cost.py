"""What torch.compile costs and what it gains: first call, later calls, and when it has paid.

    python compile_cost.py                        # an MLP, a CNN and a small GPT-2
    python compile_cost.py --model hf:bert-base   # a real one: takes minutes

The break-even count is how many calls it takes until compiling has cost less than it saved; a
backend whose calls are no faster than eager ones never gets there.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tinytorch.bench import format_seconds, format_table
from tinytorch.fx import load_model

BACKENDS = ("eager", "aot_eager", "inductor", "tinytorch")
WARM_CALLS = 15
Call = Callable[[], Any]


def small_models() -> dict[str, tuple[nn.Module, dict[str, Any]]]:
    """Models by name, each with the arguments of a call."""
    cnn = nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(864, 10)
    )
    mlp = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    gpt = load_model("hf:gpt2", small=True, batch=2)
    return {
        "MLP": (mlp, {"input": torch.randn(32, 784)}),
        "CNN": (cnn, {"input": torch.randn(32, 1, 28, 28)}),
        "small GPT-2": (gpt.model, gpt.inputs),
    }


def seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def break_even(first: float, warm: float, eager: float) -> str:
    """Calls until the first one's cost is regained."""
    return f"{first / (eager - warm):,.0f}" if warm < eager else "never"


def measure(name: str, model: nn.Module, inputs: dict[str, Any]) -> list[list[str]]:
    """One row a backend. Eager calls and compiled ones alternate, so that both meet one machine."""
    model.eval()
    eager = functools.partial(model, **inputs)
    rows = []
    for backend in BACKENDS:
        torch._dynamo.reset()
        compiled = functools.partial(torch.compile(model, backend=backend), **inputs)
        first = seconds(compiled)
        times = [(seconds(eager), seconds(compiled)) for _ in range(WARM_CALLS)]
        before = statistics.median(t[0] for t in times)
        after = statistics.median(t[1] for t in times)
        rows.append([
            name, backend, format_seconds(first), format_seconds(after), f"{before / after:.2f}",
            break_even(first, after, before),
        ])  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", help="such as hf:bert-base; by default three small models")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of PyTorch's own parts among each other
    torch.set_num_threads(1)
    torch.manual_seed(0)
    models = small_models()
    if options.model:
        loaded = load_model(options.model, batch=1)
        models = {options.model: (loaded.model, loaded.inputs)}
    header = ["model", "backend", "first call", "call", "eager / compiled", "break-even calls"]
    rows = []
    with torch.no_grad():
        for name, (model, inputs) in models.items():
            rows += measure(name, model, inputs)
    print(format_table(header, rows))


if __name__ == "__main__":
    main()
