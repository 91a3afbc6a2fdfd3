"""Checkpoints of a run on several ranks: written once, and loaded by any number of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tinytorch.distributed.group import all_reduce, barrier, get_rank
from tinytorch.errors import ProcessGroupError
from tinytorch.nn import Module
from tinytorch.optim import Optimizer
from tinytorch.tensor import Tensor
from tinytorch.training import checkpoint as files


def save_checkpoint(path: str | Path, model: Module, optimizer: Optimizer, **extra: Any) -> None:
    """Write model, optimizer and `extra` (epoch, step, ...) from rank 0. All ranks call this.

    The file is that of one process: nothing in it says how many ranks there were. It is complete,
    or the one before it is still there.

    Raises:
        ProcessGroupError: rank 0 could not write, on every rank; its own has the reason.
    """
    tree = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "extra": extra}
    failed = Tensor.from_numpy(np.zeros(1))
    error: Exception | None = None
    if get_rank() == 0:
        try:
            files.save_checkpoint(path, tree)
        except Exception as raised:  # the others wait to hear of it
            error = raised
            failed.fill_(1)
    all_reduce(failed)  # also: nobody goes on before the file is there
    if failed.item():
        raise ProcessGroupError(
            f"rank 0 could not write {path}: {error or 'see its message'}"
        ) from error


def load_checkpoint(path: str | Path, model: Module, optimizer: Optimizer) -> dict[str, Any]:
    """Bring model and optimizer to what `save_checkpoint` wrote, and return its `extra`.

    Every rank reads the file, and a `ShardedOptimizer` keeps its share of it.

    Raises:
        FileNotFoundError, DataError: as `tinytorch.training.load_checkpoint`.
    """
    tree = files.load_checkpoint(path)
    model.load_state_dict(tree["model"])
    optimizer.load_state_dict(tree["optimizer"])
    barrier()
    return dict(tree["extra"])
