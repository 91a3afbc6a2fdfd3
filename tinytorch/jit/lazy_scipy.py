"""Numba without SciPy at the start: SciPy's BLAS is imported when a kernel first asks for it.

Numba imports `scipy.linalg` when it first compiles, only to see whether `np.dot` could be offered:
0.3 s of every process that loads one kernel. No kernel of ours calls BLAS; a user's may, and then
numba looks its address up in the real module.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType

_BLAS = "scipy.linalg.cython_blas"


def import_numba() -> None:
    """Import the part of numba that asks for SciPy; a stand-in says that it is there."""
    is_replaced = _BLAS not in sys.modules and find_spec("scipy") is not None
    if is_replaced:
        sys.modules[_BLAS] = ModuleType(_BLAS)
    try:
        import numba.np.arraymath  # noqa: F401
    finally:
        if is_replaced:
            del sys.modules[_BLAS]
