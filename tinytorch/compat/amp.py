"""Mixed precision, which changes nothing here: every op computes in the dtype of its inputs.

Both classes say so once, by a warning, when they are switched on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any


class PrecisionWarning(UserWarning):
    """Mixed precision is asked for and changes nothing."""


def _warn(name: str) -> None:
    warnings.warn(
        f"{name} changes nothing: TinyTorch computes in the dtype of the tensors (float32)",
        PrecisionWarning,
        stacklevel=4,
    )


class autocast(ContextDecorator):
    """Compute in the dtype of the tensors, inside the block as outside of it.

    Args:
        device_type: "cpu" or "cuda", which is not looked at.
        enabled: False for no warning.
    """

    def __init__(
        self,
        device_type: str = "cuda",
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: Any = None,
    ) -> None:
        if enabled:
            _warn("autocast")
        self.enabled = False

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *error: Any) -> None:
        """Nothing was changed."""


class _CudaAutocast(autocast):
    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: Any = None) -> None:
        super().__init__("cuda", dtype, enabled)


class GradScaler:
    """A scale of 1, since gradients of float32 do not underflow: PyTorch's, switched off."""

    def __init__(self, device: str = "cuda", *, enabled: bool = True, **options: Any) -> None:
        if enabled:
            _warn("GradScaler")
        self._enabled = False

    def scale(self, outputs: Any) -> Any:
        """The outputs themselves."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Do nothing: gradients were not scaled."""

    def step(self, optimizer: Any, *args: Any, **keywords: Any) -> Any:
        """`optimizer.step()`."""
        return optimizer.step(*args, **keywords)

    def update(self, new_scale: float | None = None) -> None:
        """The scale stays 1."""

    def get_scale(self) -> float:
        """1."""
        return 1.0

    def is_enabled(self) -> bool:
        """False."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: there is no state."""


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """False."""
    return False


def custom_fwd(fwd: Any = None, **options: Any) -> Any:
    """The function itself."""
    return fwd if fwd is not None else lambda function: function


custom_bwd: Callable[..., Any] = custom_fwd
