"""The folder of compiled kernels: which one, how its files are written and read, what is evicted.

    <cache root>/kernels/<library key>/<kernel>-<version key>.bin

The *library key* covers the sources of all kernels, the versions of Python, numba and LLVM, and the
CPU. A file is written in one step and carries a checksum, which covers its name too. A library is
bounded in size: the kernels that were not used for longest go.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba

from tinytorch.files import cache_root
from tinytorch.jit.caches import all_caches
from tinytorch.jit.cpu import use_whole_registers

DIGEST_BYTES = hashlib.sha256().digest_size
_PACKAGE = Path(__file__).resolve().parents[1]
_KERNEL_FOLDERS = ("jit", "backends/blocked", "backends/optimized")

KEPT_BYTES = 512 * 2**20  # of one library; what was not used for longest goes
EVICT_EVERY = 32  # kernels written
USE_SECONDS = 3600.0  # a use is written down once in so long
ABANDONED_SECONDS = 3600.0  # a file that was begun so long ago is of a process that was killed
KEPT_LIBRARIES = 4  # older library keys are removed when a new one is begun


def kernel_sources() -> list[Path]:
    """The files whose change makes every compiled kernel stale."""
    return sorted(p for folder in _KERNEL_FOLDERS for p in (_PACKAGE / folder).rglob("*.py"))


@cache
def library_key() -> str:
    """Hash of everything that all kernels depend on."""
    use_whole_registers()  # or the features are others until a first kernel is defined
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
                all_caches(),
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
            write_whole(folder / name, payload)
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

    def clear(self) -> int:
        """Remove the kernels of all libraries; returns the bytes freed."""
        freed = 0
        for folder in {folder.parent for folder in self.readable()}:
            freed += sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
            shutil.rmtree(folder, ignore_errors=True)
        self._checked = False
        return freed

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


def read_checked(path: Path) -> bytes | None:
    """The payload of a cache file; None if there is none, or it is damaged (and then removed)."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, payload = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    if _digest(path, payload) == digest:
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > USE_SECONDS:
                os.utime(path)
                os.utime(path.parent)  # a library that is only read is in use, too
        return payload
    with suppress(OSError):
        path.unlink()
    return None


def write_whole(path: Path, payload: bytes) -> None:
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


directory = CacheDirectory()
