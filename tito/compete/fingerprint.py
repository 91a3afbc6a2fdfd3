"""What machine and software a measurement was taken on: results of two kinds never mix."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from tinytorch.jit.cpu import processor_name
from tito.sandbox import Sandbox


def fingerprint(confined: bool) -> dict[str, str]:
    """Processor, cores, versions, and what was around the entry."""
    blas = np.show_config("dicts")["Build Dependencies"]["blas"]  # type: ignore[index, call-overload]
    return {
        "cpu": processor_name(),
        "cores": str(len(os.sched_getaffinity(0))),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas['name']} {blas['version']}",
        "numba": _version("numba"),
        "torch": _version("torch"),
        "sandbox": Sandbox(confined=confined, may_fork=False).level,
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
