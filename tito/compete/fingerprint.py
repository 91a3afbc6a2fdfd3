"""What machine and software a measurement was taken on: results of two kinds never mix."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from tito.sandbox import Sandbox


def fingerprint(confined: bool) -> dict[str, str]:
    """Processor, cores, versions, and what was around the entry."""
    blas = np.show_config("dicts")["Build Dependencies"]["blas"]  # type: ignore[index, call-overload]
    return {
        "cpu": _cpu(),
        "cores": str(len(os.sched_getaffinity(0))),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas['name']} {blas['version']}",
        "numba": _version("numba"),
        "torch": _version("torch"),
        "sandbox": Sandbox(confined=confined, may_fork=False).level,
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "CPU part"):
            return value.strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
