"""`torch.types` and `torch.version`: names that annotations and printed versions use."""

from __future__ import annotations

from typing import Any

from tinytorch.compat.devices import device

#: The version of PyTorch whose names and meanings are followed.
__version__ = "2.13.0+tinytorch"
git_version = ""
cuda: str | None = None
hip: str | None = None
debug = False

Device = Any
Number = Any
Storage = Any

__all__ = ["Device", "Number", "Storage", "device"]
