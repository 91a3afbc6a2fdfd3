"""Numba without what a kernel from the cache does not need: its registries, SciPy, metadata.

Numba prepares to compile whenever it looks for a kernel: it imports every implementation that it
has, cffi's parser of C, `scipy.linalg` (only to see whether `np.dot` could be offered), and the
entry points of all installed packages. Machine code that lies in the cache is linked and called
without any of that, so it happens when a kernel is first compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader, find_spec
from types import ModuleType
from typing import Any

_ENTRY_POINTS = "numba.core.entrypoints"  # imports importlib.metadata, and that the email package
_BLAS = "scipy.linalg.cython_blas"


class _EntryPointsLater:
    """A finder that has numba's entry points run when one is first asked for."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _ENTRY_POINTS:
            return None
        sys.meta_path.remove(cls)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def defer_entry_points() -> None:
    """Have the next import of numba do without the entry points of installed packages."""
    if _ENTRY_POINTS not in sys.modules and _EntryPointsLater not in sys.meta_path:
        sys.meta_path.insert(0, _EntryPointsLater)


def load_compiler(target_context: Any) -> None:
    """Import all that numba compiles with, and extensions of other packages.

    An empty module says that SciPy's BLAS is there. No kernel of ours calls it; a user's may, and
    then numba looks its address up in the real module.
    """
    is_replaced = _BLAS not in sys.modules and find_spec("scipy") is not None
    if is_replaced:
        sys.modules[_BLAS] = ModuleType(_BLAS)
    try:
        target_context.refresh()
    finally:
        if is_replaced:
            del sys.modules[_BLAS]
