"""`torch.utils`."""

from __future__ import annotations

from typing import Any

from tinytorch import data as data
from tinytorch.compat import checkpoint as checkpoint


def __getattr__(name: str) -> Any:
    from tinytorch.compat.names import module_name

    return module_name("torch.utils", name)
