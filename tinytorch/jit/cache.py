"""The kernel cache: machine code on disk, found again only if nothing it depends on has changed.

Numba's own cache looks at the one file that defines a function, so it serves stale code after a
change in a helper of another file, and two processes that compile different versions of one kernel
at once can exchange them. Here every compiled version is one file of `cache_folder`; its name is
the hash of all it depends on: the *version key* covers the kernel, its argument types and the
source of the file it is in (`fingerprint`), the folder's *library key* what all kernels share.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numba.core.compiler import CompileResult
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from tinytorch.jit import threads
from tinytorch.jit.cache_folder import directory, read_checked
from tinytorch.jit.compile_progress import progress
from tinytorch.jit.fingerprint import fingerprint
from tinytorch.jit.lazy_numba import load_compiler

_RUNTIME_SYMBOLS = b"NRT_"  # in the symbol table of code that counts references to arrays


class KernelCache:
    """The cache of one kernel, in the form that numba's dispatcher expects (`dispatcher._cache`).

    Args:
        function: the Python function that is compiled.
        before_load: called before machine code is loaded or made; it registers the C symbols that
            the code refers to. Without them a load ends the process.
        liberties: what LLVM may do with floating point in it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        before_load: Callable[[], None],
        liberties: Iterable[str] = (),
    ) -> None:
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        self._function = function
        self._before_load = before_load
        self._liberties = sorted(liberties)

    @property
    def cache_path(self) -> str:
        return str(directory.readable()[0])

    def _file_name(self, signature: Any, codegen: Any) -> str:
        key = repr((signature, codegen.magic_tuple(), self._liberties))
        key += fingerprint(self._function)
        name = "".join(c if c.isalnum() or c in "._" else "-" for c in self._name)
        return f"{name[:80]}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.bin"

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The compiled version for `signature`, or None: it must be compiled."""
        self._before_load()
        name = self._file_name(signature, target_context.codegen())
        for folder in directory.readable():
            payload = read_checked(folder / name)
            if payload is not None:
                if _RUNTIME_SYMBOLS in payload:
                    rtsys.initialize(target_context)
                progress.loaded += 1
                return _rebuilt(target_context, pickle.loads(payload))
        progress.begin(self._name)
        load_compiler(target_context)
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep a freshly compiled version."""
        progress.end(self._name)
        if result.lifted or result.library.has_dynamic_globals:
            return  # holds addresses of this process
        folder = directory.writable()
        if folder is None:
            return
        payload: bytes = dumps(result._reduce())  # type: ignore[no-untyped-call]
        directory.keep(folder, self._file_name(signature, result.codegen), payload)

    def flush(self) -> None:
        """Do nothing: nothing is held in memory."""

    def enable(self) -> None:
        """The cache is always on."""


def _rebuilt(target_context: Any, parts: tuple[Any, ...]) -> Any:
    """The compiled version of which these are the parts (`CompileResult._reduce`).

    A kernel that calls a parallel one starts the threads when it is loaded, as that would: the
    layer must be chosen by then, or numba takes OpenMP where it does not find TBB by itself.
    """
    *_, starts_threads, _ = parts
    if starts_threads:
        threads.select_layer()
    return CompileResult._rebuild(target_context, *parts)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class CacheInfo:
    """The contents of the kernel cache, and what this process did.

    Attributes:
        path: the folder of the present library.
        entries, nbytes: compiled versions of the present library, and their size on disk.
        other_libraries: how many older libraries (changed sources, other numba or CPU) are kept.
        loaded, compiled: versions that this process loaded from the cache, and compiled itself.
        compile_seconds: time this process spent compiling.
    """

    path: Path
    entries: int
    nbytes: int
    other_libraries: int
    loaded: int
    compiled: int
    compile_seconds: float


def cache_info() -> CacheInfo:
    """Describe the kernel cache without touching it."""
    folder = directory.readable()[-1]
    sizes = [p.stat().st_size for p in folder.glob("*.bin")] if folder.is_dir() else []
    others = [p for p in folder.parent.iterdir() if p != folder] if folder.parent.is_dir() else []
    return CacheInfo(
        folder, len(sizes), sum(sizes), len(others), progress.loaded, progress.compiled,
        progress.seconds,
    )  # fmt: skip


def clear_cache() -> int:
    """Remove all compiled kernels from disk, of all libraries; returns the bytes freed.

    Kernels that this process has loaded keep working.
    """
    return directory.clear()
