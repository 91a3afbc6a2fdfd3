"""`torch.distributed` in one process, and `torch.multiprocessing`, which is Python's."""

from __future__ import annotations

import multiprocessing
from typing import Any


def is_available() -> bool:
    """False."""
    return False


is_initialized = is_nccl_available = is_gloo_available = is_mpi_available = is_available


def get_rank(group: Any = None) -> int:
    """0: the process is the only one."""
    return 0


def get_world_size(group: Any = None) -> int:
    """1."""
    return 1


def barrier(*args: Any, **options: Any) -> None:
    """Return at once: nobody else is waited for."""


destroy_process_group = barrier


def init_process_group(*args: Any, **options: Any) -> None:
    """Raise an error: a program runs in one process here."""
    raise NotImplementedError(
        "init_process_group: a PyTorch program runs in one process here; guard it by "
        "`if torch.distributed.is_available():`"
    )


def set_sharing_strategy(strategy: str) -> None:
    """Accept the setting without effect: tensors reach other processes as copies."""


def __getattr__(name: str) -> Any:
    return getattr(multiprocessing, name)
