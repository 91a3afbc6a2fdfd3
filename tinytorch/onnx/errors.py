"""What cannot be taken over from ONNX, or be said in it."""

from __future__ import annotations

from tinytorch.errors import TinyTorchError


class UnsupportedOnnxError(TinyTorchError, NotImplementedError):
    """An operator, a number type or an option that there is on one side only."""


class DamagedOnnxError(TinyTorchError, ValueError):
    """A file that is no whole ONNX model. The message names it."""
