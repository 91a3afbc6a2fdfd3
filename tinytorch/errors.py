"""The errors that TinyTorch raises on purpose. Each is also the built-in error one expects."""

from __future__ import annotations


class TinyTorchError(Exception):
    """Base of all errors that TinyTorch raises on purpose."""


class ShapeError(TinyTorchError, ValueError, RuntimeError):
    """Shapes that do not fit together. The message gives the shapes and what would fit."""


class DTypeError(TinyTorchError, TypeError):
    """A dtype that an op does not take."""


class BackendError(TinyTorchError, ValueError):
    """An unknown backend, or a backend whose kernel broke its contract."""


class AutogradError(TinyTorchError, RuntimeError):
    """A gradient that cannot be computed: no history, a freed one, or one whose values changed."""


class DataError(TinyTorchError, ValueError):
    """A data file that is missing, truncated or corrupt."""


class StateDictError(TinyTorchError, ValueError, RuntimeError):
    """A state that does not fit the module. The message lists every name that does not."""


class NonFiniteError(TinyTorchError, ArithmeticError):
    """The loss or a weight became NaN or infinite."""


class ProcessGroupError(TinyTorchError, RuntimeError):
    """Processes that do not work together: none are there, one has gone, or they disagree."""


class MissingExtraError(TinyTorchError, ImportError):
    """An optional dependency is not installed. The message names the extra that brings it."""


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtraError:
    """The error for an optional dependency that is not there.

    >>> print(missing_extra("numba", "fast", "the optimized backend"))
    the optimized backend needs numba, which is not installed: pip install 'tinytorch[fast]'
    """
    return MissingExtraError(
        f"{purpose} needs {package}, which is not installed: pip install 'tinytorch[{extra}]'"
    )
