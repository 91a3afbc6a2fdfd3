"""The training loop, and what belongs to it: metrics, history, callbacks, checkpoints."""

from tinytorch.errors import NonFiniteError
from tinytorch.training.callbacks import Callback, Checkpoint, EarlyStopping, ScheduleLR
from tinytorch.training.checkpoint import load_checkpoint, save_checkpoint
from tinytorch.training.history import History
from tinytorch.training.metrics import (
    accuracy,
    confusion_matrix,
    mean_absolute_error,
    top_k_accuracy,
)
from tinytorch.training.trainer import Trainer

__all__ = [
    "Callback",
    "Checkpoint",
    "EarlyStopping",
    "History",
    "NonFiniteError",
    "ScheduleLR",
    "Trainer",
    "accuracy",
    "confusion_matrix",
    "load_checkpoint",
    "mean_absolute_error",
    "save_checkpoint",
    "top_k_accuracy",
]
