"""What a processor says of itself, and which versions were measured on it: no name of a machine."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib import metadata
from typing import Any

PACKAGES = ("numpy", "numba", "llvmlite", "torch")


def describe() -> dict[str, Any]:
    """Model, LLVM's name for its core, vector unit in use, caches of a core, versions."""
    from llvmlite import binding

    from tinytorch.jit.caches import core_caches
    from tinytorch.jit.cpu import host_vector_unit, processor_name

    return {
        "model": processor_name(),
        "core": binding.get_host_cpu_name(),
        "vector_unit": host_vector_unit().name,
        "caches": {f"L{1 + i}": asdict(each) for i, each in enumerate(core_caches())},
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in PACKAGES},
        },
    }
