"""The kernel cache: machine code on disk, found again only if nothing it depends on has changed.

Numba's own cache looks at the one file that defines a function, so it serves stale code after a
change in a helper of another file, and two processes that compile different versions of one kernel
at once can exchange them. Here every compiled version is one file; its name is the hash of all it
depends on, it is written in one step, and it carries a checksum.

    <cache root>/kernels/<library key>/<kernel>-<version key>.bin

The checksum covers the file's name too. A library is bounded in size: the kernels that were not
used for longest go.

The *library key* covers the sources of all kernels, the versions of Python, numba and LLVM, and the
CPU; the *version key* the kernel, its argument types and the source of the file it is in.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import shutil
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
import numpy as np
from numba import types
from numba.core.compiler import CompileResult
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from tinytorch.files import cache_root
from tinytorch.jit import threads
from tinytorch.jit.caches import core_caches
from tinytorch.jit.lazy_numba import load_compiler

_RUNTIME_SYMBOLS = b"NRT_"  # in the symbol table of code that counts references to arrays
DIGEST_BYTES = hashlib.sha256().digest_size
_PACKAGE = Path(__file__).resolve().parents[1]
_KERNEL_FOLDERS = ("jit", "backends/blocked", "backends/optimized")

KEPT_BYTES = 512 * 2**20  # of one library; what was not used for longest goes
EVICT_EVERY = 32  # kernels written
ABANDONED_SECONDS = 3600.0  # a file that was begun so long ago is of a process that was killed
KEPT_LIBRARIES = 4  # older library keys are removed when a new one is begun
SHOW_AFTER_SECONDS = 1.0  # compiling that takes longer shows a progress line


def kernel_sources() -> list[Path]:
    """The files whose change makes every compiled kernel stale."""
    return sorted(p for folder in _KERNEL_FOLDERS for p in (_PACKAGE / folder).rglob("*.py"))


@cache
def library_key() -> str:
    """Hash of everything that all kernels depend on."""
    digest = hashlib.sha256()
    for path in kernel_sources():
        name = path.relative_to(_PACKAGE).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes())
    config: Any = numba.config
    digest.update(
        repr(
            (
                sys.implementation.cache_tag,
                platform.machine(),
                numba.__version__,
                llvmlite.__version__,
                llvm.llvm_version_info,
                config.CPU_NAME or llvm.get_host_cpu_name(),
                config.CPU_FEATURES or llvm.get_host_cpu_features().flatten(),
                core_caches(),
                (config.OPT, config.BOUNDSCHECK, config.LOOP_VECTORIZE, config.SLP_VECTORIZE),
            )
        ).encode()
    )
    return digest.hexdigest()[:16]


def _own_temporary_root() -> Path:
    """A folder in the system's temporary one that is ours alone: what it holds will be executed."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    root = Path(tempfile.gettempdir()) / f"tinytorch-{user}"
    root.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid"):
        status = root.lstat()
        mine = stat.S_ISDIR(status.st_mode) and status.st_uid == user
        if not mine or status.st_mode & 0o022:
            raise PermissionError(f"{root} is not a folder that only this user can write to")
    return root


class CacheDirectory:
    """The folder in use: the configured one, or a stand-in when that cannot be written."""

    def __init__(self) -> None:
        self._writable: Path | None = None
        self._checked = False
        self._fallback: Path | None = None
        self._written = 0
        self._has_warned = False

    def keep(self, folder: Path, name: str, payload: bytes) -> None:
        """Write a kernel; that it cannot be kept is said once, and costs only the caching."""
        try:
            _write_whole(folder / name, payload)
        except OSError as reason:
            if self._has_warned:
                return
            self._has_warned = True
            warnings.warn(
                f"could not keep the compiled kernel {name} in {folder} "
                f"({reason.strerror or reason}); it, and others that cannot be kept, will be "
                f"compiled again in the next process",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        self._written += 1
        if self._written % EVICT_EVERY == 0:
            evict(folder)

    def readable(self) -> list[Path]:
        """Folders to look in."""
        folders = [cache_root() / "kernels" / library_key()]
        if self._fallback is not None:
            folders.append(self._fallback)
        return folders

    def writable(self) -> Path | None:
        """The folder to write to, made if need be; None if nowhere can be written (said once)."""
        if not self._checked:
            self._checked = True
            self._writable = self._choose()
        return self._writable

    def _choose(self) -> Path | None:
        wanted = cache_root() / "kernels" / library_key()
        try:
            return _prepare(wanted)
        except OSError as reason:
            problem = f"the kernel cache {wanted} cannot be written ({reason.strerror or reason})"
        advice = "set TINYTORCH_CACHE_DIR to a folder that can be written"
        try:
            self._fallback = _prepare(_own_temporary_root() / "kernels" / library_key())
        except OSError:
            warnings.warn(
                f"{problem}; kernels will be compiled anew in every process: {advice}",
                RuntimeWarning,
                stacklevel=2,
            )
            return None
        warnings.warn(
            f"{problem}; using {self._fallback} instead: {advice}", RuntimeWarning, stacklevel=2
        )
        return self._fallback


def _prepare(folder: Path) -> Path:
    """Make `folder`, prove that a file can be written there, and drop the libraries before it."""
    is_new = not folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass
    if is_new:
        old = [p for p in folder.parent.iterdir() if p.is_dir() and p != folder]
        old.sort(key=lambda p: p.stat().st_mtime, reverse=True)
        for stale in old[KEPT_LIBRARIES - 1 :]:
            shutil.rmtree(stale, ignore_errors=True)
    evict(folder)
    return folder


def evict(folder: Path, kept_bytes: int = KEPT_BYTES) -> int:
    """Remove what killed processes have begun, and kernels beyond the bound; returns their bytes.

    A kernel's time is that of its last use, so what was not used for longest goes first.
    """
    kernels: list[tuple[float, int, Path]] = []
    freed = 0
    for path in folder.iterdir():
        with suppress(OSError):  # another process evicts too
            status = path.stat()
            if path.suffix == ".bin":
                kernels.append((status.st_mtime, status.st_size, path))
            elif path.suffix == ".part" and time.time() - status.st_mtime > ABANDONED_SECONDS:
                path.unlink()
                freed += status.st_size
    excess = sum(size for _, size, _ in kernels) - kept_bytes
    for _, size, path in sorted(kernels):
        if excess <= 0:
            break
        with suppress(OSError):
            path.unlink()
        excess -= size
        freed += size
    return freed


class CompileProgress:
    """Counts compilations, and shows them once they have taken a while.

    On a terminal that is a line which goes when they are done, elsewhere one line that stays.

    Attributes:
        loaded, compiled: versions.
        seconds: spent on compiling.
        quiet: show nothing; somebody else shows it.
    """

    def __init__(self) -> None:
        self.loaded = 0
        self.compiled = 0
        self.seconds = 0.0
        self._running: list[str] = []
        self._began = 0.0
        self._shown = False
        self._said = False
        self.quiet = False

    def begin(self, name: str) -> None:
        if not self._running:
            self._began = time.perf_counter()
        self._running.append(name)
        spent = self.seconds + time.perf_counter() - self._began
        if self.quiet or spent < SHOW_AFTER_SECONDS or sys.stderr is None:
            return
        if sys.stderr.isatty():
            line = f"tinytorch: compiling kernels, once: {self.compiled} done, now {name}"
            sys.stderr.write(f"\r\x1b[2K{line[:100]}")
            sys.stderr.flush()
            self._shown = True
        elif not self._said:
            self._said = True
            sys.stderr.write(
                "tinytorch: compiling kernels, once; they are kept on disk "
                "(`tito cache warm` compiles all of them)\n"
            )
            sys.stderr.flush()

    def end(self, name: str) -> None:
        if name not in self._running:
            return
        del self._running[self._running.index(name) :]  # an error may have left inner ones behind
        self.compiled += 1
        if not self._running:
            self.seconds += time.perf_counter() - self._began
            if self._shown:
                sys.stderr.write("\r\x1b[2K")
                sys.stderr.flush()
                self._shown = False


directory = CacheDirectory()
progress = CompileProgress()


@cache
def _file_digest(filename: str) -> str:
    try:
        return hashlib.sha256(Path(filename).read_bytes()).hexdigest()
    except OSError:  # a notebook cell or generated code: the code itself is in the fingerprint
        return ""


def fingerprint(value: Any) -> str:
    """A text that two values share only if code that uses them compiles to the same.

    For a function that is its code, its liberties with floating point and, in turn, every value
    that the code refers to, in its module or its closure: two kernels made by one factory, or
    generated from one text, differ only there.
    """
    return _describe(value, set())


def _describe(value: Any, seen: set[int]) -> str:
    liberties = sorted(getattr(value, "targetoptions", {}).get("fastmath", ()))
    value = getattr(value, "py_func", getattr(value, "_defn", value))
    if isinstance(value, tuple):
        return repr([_describe(v, seen) for v in value])
    if isinstance(value, np.ndarray):
        return repr((value.dtype, value.shape, value.tobytes()))
    if not isinstance(value, FunctionType):
        return repr(value) if isinstance(value, _CONSTANTS) else type(value).__name__
    code = value.__code__
    name = (value.__module__, value.__qualname__)
    if id(value) in seen:
        return repr(name)
    seen.add(id(value))
    found = {n: value.__globals__[n] for n in code.co_names if n in value.__globals__}
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    uses = [_describe(v, seen) for v in (*found.values(), *cells)]
    return repr((name, liberties, _file_digest(code.co_filename), _body(code), uses))


# Values that become part of the code; others, such as modules, only lead to it.
_CONSTANTS = (bool, int, float, complex, str, bytes, type, np.generic, types.Type)


def _body(code: CodeType) -> tuple[Any, ...]:
    constants = tuple(_body(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts)
    return (code.co_code, code.co_names, code.co_firstlineno, constants)


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
            payload = _read_checked(folder / name)
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


def _read_checked(path: Path) -> bytes | None:
    """The payload of a cache file; None if there is none, or it is damaged (and then removed)."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, payload = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    if _digest(path, payload) == digest:
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                os.utime(path)
        return payload
    with suppress(OSError):
        path.unlink()
    return None


def _write_whole(path: Path, payload: bytes) -> None:
    """Write `path` so that no reader ever sees a part of it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        try:
            file.write(_digest(path, payload) + payload)
            file.flush()
            os.replace(file.name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(file.name)
            raise


def _digest(path: Path, payload: bytes) -> bytes:
    """The name belongs to it: one kernel's code under another's name would end the process."""
    return hashlib.sha256(path.name.encode() + b"\0" + payload).digest()


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
    folders = {folder.parent for folder in directory.readable()}
    freed = 0
    for folder in folders:
        freed += sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        shutil.rmtree(folder, ignore_errors=True)
    directory._checked = False
    return freed
