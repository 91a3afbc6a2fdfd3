"""The bridge to PyTorch: capture real models as graphs, and run our passes on them.

    from tinytorch.fx import capture_step, load_model

    example = load_model("hf:bert-base", batch=2)
    step = capture_step(example.model, example.batch, optimizer="adamw", lr=1e-4)
    state = step.state_of(example.model)
    loss, state = step.run(state, example.batch)

Nothing of TinyTorch imports this package; it needs torch, which comes with the extra "fx". Its
names load on first use.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from tinytorch.errors import missing_extra

if importlib.util.find_spec("torch") is None:
    raise missing_extra("torch", "fx", "tinytorch.fx")

HOME = {
    "CaptureError": "capture.slots",
    "Branches": "capture.branches",
    "capture_forward": "capture.forward",
    "JointGraph": "capture.joint",
    "capture_joint": "capture.joint",
    "TrainingStep": "capture.step",
    "capture_step": "capture.step",
    "TracerTable": "diagnosis.tracer_comparison",
    "compare_tracers": "diagnosis.tracer_comparison",
    "Diagnosis": "diagnosis.diagnosis",
    "diagnose": "diagnosis.diagnosis",
    "TorchSemantics": "semantics.semantics",
    "GraphProfiler": "profile.profiler",
    "ModelReport": "profile.model_report",
    "report_model": "profile.model_report",
    "MemoryMeter": "profile.memory_meter",
    "Checkpointed": "recompute.checkpointing",
    "checkpoint": "recompute.checkpointing",
    "RecomputeError": "recompute.swapping",
    "SwapReport": "recompute.swap_report",
    "simulate_swapping": "recompute.swap_report",
    "GraphOptimizer": "optimize.optimizer",
    "optimize_step": "optimize.step_optimizer",
    "resolve_device": "optimize.devices",
    "tinytorch_backend": "dynamo",
    "last_report": "dynamo",
    "from_torch": "convert.from_torch",
    "to_torch": "convert.to_torch",
    "LoadedModel": "models",
    "load_model": "models",
}
__all__ = [*HOME]


def __getattr__(name: str) -> Any:
    if name not in HOME:
        raise AttributeError(f"tinytorch.fx has no {name!r}; it has {', '.join(sorted(HOME))}")
    return getattr(importlib.import_module(f"tinytorch.fx.{HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(HOME)
