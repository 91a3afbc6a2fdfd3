"""Learning-rate schedules, under PyTorch's names.

base         `LRScheduler`: what a schedule is, and how several on one optimizer go together
schedules    those that are one formula
restarts     cosine annealing with warm restarts
cyclic       up and down, again and again, with the momentum against it
one_cycle    up and down once, with the momentum against it
combined     one schedule after another, and several at once
plateau      a schedule that looks at the results
"""

from tinytorch.absent import names_of
from tinytorch.optim.lr_scheduler.base import LRScheduler
from tinytorch.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from tinytorch.optim.lr_scheduler.cyclic import CyclicLR
from tinytorch.optim.lr_scheduler.one_cycle import OneCycleLR
from tinytorch.optim.lr_scheduler.plateau import ReduceLROnPlateau
from tinytorch.optim.lr_scheduler.restarts import CosineAnnealingWarmRestarts
from tinytorch.optim.lr_scheduler.schedules import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)

_LRScheduler = LRScheduler  # the name that older programs inherit from

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

__getattr__ = names_of("torch.optim.lr_scheduler")  # names of PyTorch's that are not here
