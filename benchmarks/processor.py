"""What a processor says of itself, and which versions were measured on it: no name of a machine."""

from __future__ import annotations

import platform
import subprocess
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "numba", "llvmlite", "torch")


def model() -> str:
    """The processor's name for itself."""
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def describe() -> dict[str, Any]:
    """Model, LLVM's name for its core, vector unit in use, caches of a core, versions."""
    from llvmlite import binding

    from tinytorch.jit.caches import core_caches
    from tinytorch.jit.cpu import host_vector_unit

    return {
        "model": model(),
        "core": binding.get_host_cpu_name(),
        "vector_unit": host_vector_unit().name,
        "caches": {f"L{1 + i}": asdict(each) for i, each in enumerate(core_caches())},
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in PACKAGES},
        },
    }
