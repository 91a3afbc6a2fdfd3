"""The process in which one tier runs. Requests and answers are lines of JSON.

    {"do": "problem", "to": FILE}     write down the initial state and the batch
    {"do": "begin", "from": FILE}     build the model, and start from there
    {"do": "train", "to": FILE, "steps": 3}   train, and write down losses and state
    {"do": "time", "calls": 5}        {"wall": seconds of all calls, "cpu": the same of all threads}
    {"do": "trace", "to": FILE}       which functions one step runs, and how many FLOPs

What a student's code prints goes to stderr. An error is an answer as well: {"error": text}.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tito.ladder.steps import STEPS, Step
from tito.ladder.tiers import COMPILED, TORCH
from tito.workspace.trace import Trace

SEED = 1998
PR_SET_PDEATHSIG = 1  # of prctl(2)


class Training:
    """A model, its batch and its optimizer, in one of the two libraries."""

    def __init__(self, library: Any, step: Step, values: Any, compiled: bool) -> None:
        self.library, self.step = library, step
        self.model = step.model(library)
        with library.no_grad():
            for name, tensor in state_of(self.model).items():
                if f"state/{name}" in values:
                    tensor.copy_(library.from_numpy(np.array(values[f"state/{name}"])))
        count = sum(name.startswith("batch/") for name in values)
        self.batch = [library.from_numpy(np.array(values[f"batch/{i}"])) for i in range(count)]
        self.optimizer = library.optim.SGD(self.model.parameters(), lr=step.lr, momentum=0.9)
        self.run: Callable[..., Any] = library.compile(self.eager) if compiled else self.eager

    def eager(self, *batch: Any) -> Any:
        """One step: forward, backward, update; returns the loss before it."""
        loss = self.step.loss(self.library, self.model, *batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def __call__(self) -> float:
        return float(self.run(*self.batch).item())


def state_of(model: Any) -> dict[str, Any]:
    """Parameters and buffers by name."""
    return dict([*model.named_parameters(), *model.named_buffers()])


class Tier:
    """Answers requests."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.step, self.how = STEPS[options["step"]], options["how"]
        self.library: Any = self._library(options)
        self.training: Training | None = None
        self.traced: list[str] = options.get("traced", [])

    def _library(self, options: dict[str, Any]) -> ModuleType:
        if self.how == TORCH:
            import torch

            torch.set_num_threads(options["threads"])
            return torch
        import tinytorch
        from tinytorch.backends.load import load_backend

        tinytorch.set_backend(load_backend(options["backend"]))
        if "numba" in sys.modules:
            tinytorch.backends.set_num_threads(options["threads"])
        return tinytorch

    def problem(self, to: str) -> dict[str, Any]:
        self.library.manual_seed(SEED)
        state = state_of(self.step.model(self.library))
        arrays = {f"state/{name}": tensor.detach().numpy() for name, tensor in state.items()}
        arrays |= {f"batch/{i}": array for i, array in enumerate(self.step.batch())}
        np.savez(to, **arrays)
        return {}

    def begin(self, source: str) -> dict[str, Any]:
        with np.load(source) as values:
            self.training = Training(self.library, self.step, dict(values), self.how == COMPILED)
        return {}

    def train(self, to: str, steps: int) -> dict[str, Any]:
        training = self._begun()
        losses = [training() for _ in range(steps)]
        named = training.model.named_parameters()
        arrays = {f"state/{name}": tensor.detach().numpy() for name, tensor in named}
        np.savez(to, losses=np.array(losses), **arrays)
        return {}

    def time(self, calls: int) -> dict[str, Any]:
        training = self._begun()
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(calls):
            training()
        return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}

    def trace(self, to: str) -> dict[str, Any]:
        """A compiled step is one function: what it runs is not made of calls and ops."""
        training = self._begun()
        if self.how == COMPILED:
            Path(to).write_text("[]", encoding="utf-8")
            return {}
        from tito.workspace.work import Work

        trace = Trace(*self.traced)
        with Work(trace), trace:
            training()
        trace.write(to)
        return {}

    def _begun(self) -> Training:
        assert self.training is not None, "the request 'begin' comes first"
        return self.training


def main() -> None:
    """Answer until nobody asks."""
    _end_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    try:
        tier = Tier(json.loads(sys.argv[1]))
    except Exception:
        answer(_error())
        return
    answer({})
    for line in sys.stdin:
        request = json.loads(line)
        if "from" in request:
            request["source"] = request.pop("from")
        try:
            answer(getattr(tier, request.pop("do"))(**request))
        except Exception:
            answer(_error())


def _end_with_parent() -> None:
    """Have the kernel end this process with tito, however that ends: code may loop endlessly."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _error() -> dict[str, str]:
    """The error being handled: its line, and the last line of a file where it was raised."""
    kind, error, trace = sys.exc_info()
    frames = traceback.extract_tb(trace)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return {"error": f"{kind.__name__ if kind else 'error'}: {error}{where}"}


if __name__ == "__main__":
    main()
