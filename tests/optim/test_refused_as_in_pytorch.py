"""What PyTorch's optimizers and schedules refuse of their options, ours refuse too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import tinytorch
from tests.changed_arguments import CRUDE, changed, error_of

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.1},
    "Adam": {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1},
    "AdamW": {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1},
    "RMSprop": {"lr": 0.1, "alpha": 0.9, "eps": 1e-8, "momentum": 0.5, "weight_decay": 0.1},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.1, "eps": 1e-8, "initial_accumulator_value": 0.1},
    "Adadelta": {"lr": 0.1, "rho": 0.9, "eps": 1e-8, "weight_decay": 0.1},
    "Adamax": {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1},
    "NAdam": {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "momentum_decay": 0.1},
    "RAdam": {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8},
    "Rprop": {"lr": 0.1, "etas": (0.5, 1.2), "step_sizes": (1e-6, 50)},
}
SCHEDULES: dict[str, dict[str, Any]] = {
    "StepLR": {"step_size": 3, "gamma": 0.1},
    "MultiStepLR": {"milestones": [2, 4], "gamma": 0.1},
    "ExponentialLR": {"gamma": 0.9},
    "CosineAnnealingLR": {"T_max": 5, "eta_min": 0.01},
    "LinearLR": {"start_factor": 0.3, "end_factor": 1.0, "total_iters": 5},
    "ConstantLR": {"factor": 0.3, "total_iters": 5},
    "PolynomialLR": {"total_iters": 5, "power": 1.0},
    "OneCycleLR": {"max_lr": 0.5, "total_steps": 10, "pct_start": 0.3},
    "CyclicLR": {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "cycle_momentum": False},
    "ReduceLROnPlateau": {"mode": "min", "factor": 0.1, "patience": 2, "threshold": 1e-4},
    "CosineAnnealingWarmRestarts": {"T_0": 3, "T_mult": 2, "eta_min": 0.01},
}


def _steps(library: Any, name: str, options: dict[str, Any], schedule: str = "") -> None:
    p = library.nn.Parameter(library.ones(2, 2))
    own = {"lr": 0.1} if schedule else options
    optimizer = getattr(library.optim, name)([p], **own)
    follow: Callable[..., Any] = dict
    if schedule:
        made = getattr(library.optim.lr_scheduler, schedule)(optimizer, **options)
        follow = partial(made.step, *[1.0] * (schedule == "ReduceLROnPlateau"))
    for _ in range(4):
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()
        follow()


@pytest.mark.parametrize("name", [*OPTIMIZERS, *SCHEDULES])
def test_what_pytorch_refuses_is_refused(name: str) -> None:
    options = OPTIMIZERS.get(name) or SCHEDULES[name]
    call = partial(_steps, schedule="" if name in OPTIMIZERS else name)
    optimizer = name if name in OPTIMIZERS else "SGD"
    for library in (tinytorch, torch):
        call(library, optimizer, options)
    wrong = []
    for key, value in options.items():
        for what, other in changed(value):
            given = {**options, key: other}
            ours, theirs = (
                error_of(partial(call, lib, optimizer, given)) for lib in (tinytorch, torch)
            )
            if theirs is not None and (ours is None or isinstance(ours, CRUDE)):
                wrong.append(f"{key}: {what}: {ours!r:.100}; PyTorch: {theirs!r:.150}")
    assert not wrong, "\n".join(wrong)
