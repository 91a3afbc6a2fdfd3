"""Optimizers, learning-rate schedules and gradient clipping."""

from tinytorch.optim.adam import Adam, AdamW
from tinytorch.optim.clip import clip_grad_norm_, clip_grad_value_
from tinytorch.optim.one_cycle import OneCycleLR
from tinytorch.optim.optimizer import Optimizer
from tinytorch.optim.plateau import ReduceLROnPlateau
from tinytorch.optim.rmsprop import RMSprop
from tinytorch.optim.schedules import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    SequentialLR,
    StepLR,
)
from tinytorch.optim.sgd import SGD

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "OneCycleLR",
    "Optimizer",
    "RMSprop",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
    "clip_grad_norm_",
    "clip_grad_value_",
]
