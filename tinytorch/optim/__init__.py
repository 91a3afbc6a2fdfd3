"""Optimizers, learning-rate schedules and gradient clipping."""

from tinytorch.absent import names_of
from tinytorch.optim import lr_scheduler
from tinytorch.optim.adadelta import Adadelta
from tinytorch.optim.adagrad import Adagrad
from tinytorch.optim.adam import Adam, AdamW
from tinytorch.optim.adamax import Adamax
from tinytorch.optim.asgd import ASGD
from tinytorch.optim.clip import clip_grad_norm_, clip_grad_value_
from tinytorch.optim.lbfgs import LBFGS
from tinytorch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from tinytorch.optim.muon import Muon
from tinytorch.optim.nadam import NAdam
from tinytorch.optim.optimizer import Optimizer
from tinytorch.optim.radam import RAdam
from tinytorch.optim.rmsprop import RMSprop
from tinytorch.optim.rprop import Rprop
from tinytorch.optim.sgd import SGD

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "Muon",
    "NAdam",
    "OneCycleLR",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "ReduceLROnPlateau",
    "Rprop",
    "SequentialLR",
    "StepLR",
    "clip_grad_norm_",
    "clip_grad_value_",
    "lr_scheduler",
]

__getattr__ = names_of("torch.optim")  # names of PyTorch's that are not here
