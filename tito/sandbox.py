"""A sandbox for code that nobody has checked: bubblewrap, as an ordinary user, without a network.

Inside there are the system and Python, read-only; the packages named; a few small folders in
memory that vanish with it; and its own processes. Limits on each process come from `tito.limits`,
limits on all of them together are for whoever watches (`tito.usage`).

Process 1 in there is bubblewrap's own, with our user where we are not root. So it starts with an
empty environment and with limits, and an empty folder hides its /proc/1, through which its
environment could be read and its memory written.

Source: bwrap(1); user_namespaces(7) for why root has to become someone else first: RLIMIT_NPROC
does not hold for the kernel's user 0, whatever it is called inside a namespace.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from tito import limits, syscalls
from tito.limits import CPU_GRACE_SECONDS, Limits, limited

HOME = "/home/student"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SETTINGS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives",
            "/etc/localtime", "/etc/fonts")  # fmt: skip
SCRATCH_BYTES = 64 << 20
WRITABLE = ("/dev/shm", "/tmp", HOME)  # folders in memory, each of SCRATCH_BYTES
PROBE_SECONDS = 20
USERS = range(20_000, 60_000)  # numbers that belong to nobody, and exist in a container as well
ENVIRONMENT = {
    "HOME": HOME,
    "USER": "student",
    "LOGNAME": "student",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "MPLBACKEND": "Agg",
    "MPLCONFIGDIR": "/tmp/matplotlib",
    "NUMBA_CACHE_DIR": "/tmp/numba",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
BARE = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}  # what bubblewrap gets
_started = itertools.count()


class NoSandboxError(Exception):
    """There is no sandbox here; the text says what to do."""


@dataclass(frozen=True)
class Sandbox:
    """What is around a process.

    Attributes:
        confined: False runs it as an ordinary child, with limits only.
        visible: files and folders that it can read besides the system and Python.
        scratch_bytes: of each folder that it can write to; they lie in memory.
        threads: of the libraries that compute, where they ask their environment.
        may_fork: False lets it start threads, but no process, and keeps it on its cores.
    """

    confined: bool = True
    visible: tuple[Path, ...] = ()
    scratch_bytes: int = SCRATCH_BYTES
    may_fork: bool = True
    threads: int = 1

    @property
    def level(self) -> str:
        """In words, for the record: what held this process."""
        if not self.confined:
            return "none: limits on single processes only"
        user = "a user of its own" if os.geteuid() == 0 else "a user namespace"
        calls = "filtered" if self._calls() else "not filtered"
        return f"bubblewrap: {user}, no network, read-only system, system calls {calls}"

    def start(
        self,
        command: Sequence[str],
        bounds: Limits,
        *,
        files: Mapping[str, Path] | None = None,
        over: Mapping[Path, Path] | None = None,
        cwd: Path | None = None,
        stderr: IO[bytes] | None = None,
        keep: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a command inside, with pipes to its stdin and stdout.

        It ends when the thread that started it does; wall time is the caller's to watch.

        Args:
            files: what it finds in its home, read-only: name to file.
            over: what it finds in place of visible files: their path to a file of ours. Where it is
                not confined, it finds the files themselves.
            cwd: where it starts if it is not confined, and has no home.
            keep: open file descriptors that it inherits.

        Raises:
            NoSandboxError: there is none here.
        """
        if not self.confined:
            own = limited(command, bounds, ends_with_us=True)
            env = _unconfined() | self._threads()
            return self._start(own, stderr, keep=keep, cwd=cwd, env=env)
        reason = unavailable()
        if reason is not None:
            raise NoSandboxError(reason)
        arguments = [
            *self._bwrap(files or {}, over or {}),
            "--",
            *_become_a_user(),
            *limited(command, bounds),
        ]
        bwrap = [*_limited_bwrap(bounds), "bwrap"]
        calls = self._calls()
        if calls is None:
            return self._start([*bwrap, *arguments], stderr, keep=keep, env=BARE)
        with tempfile.TemporaryFile() as program:
            program.write(calls)
            program.seek(0)
            filtered = [*bwrap, "--seccomp", str(program.fileno()), *arguments]
            return self._start(filtered, stderr, keep=(*keep, program.fileno()), env=BARE)

    def _threads(self) -> dict[str, str]:
        return dict.fromkeys(THREADS, str(self.threads)) if self.threads > 1 else {}

    def _calls(self) -> bytes | None:
        return syscalls.program(may_fork=self.may_fork)

    def _start(
        self,
        command: Sequence[str],
        stderr: IO[bytes] | None,
        *,
        keep: Sequence[int] = (),
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr if stderr is not None else subprocess.DEVNULL,
            cwd=cwd,
            env=env,
            start_new_session=True,
            pass_fds=keep,
        )

    def _bwrap(
        self, files: Mapping[str, Path], over: Mapping[Path, Path] | None = None
    ) -> list[str]:
        size = str(self.scratch_bytes)
        arguments = ["--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox"]
        arguments += _namespaces()
        for name, value in (ENVIRONMENT | self._threads()).items():
            arguments += ["--setenv", name, value]
        arguments += _read_only([*map(Path, SYSTEM + SETTINGS)])
        arguments += ["--proc", "/proc", "--tmpfs", "/proc/1", "--remount-ro", "/proc/1"]
        arguments += ["--dev", "/dev"]
        for writable in WRITABLE:
            arguments += _parents(Path(writable))
            arguments += ["--perms", "1777", "--size", size, "--tmpfs", writable]
        # after the folders in memory: a clone or an environment may be below /tmp or the home
        folders = [Path(sys.prefix), Path(sys.base_prefix), Path(limits.__file__), *self.visible]
        arguments += _read_only(folders)
        for hidden, file in (over or {}).items():
            arguments += ["--ro-bind", str(file), str(hidden)]
        for name, file in files.items():
            arguments += ["--ro-bind", str(file), f"{HOME}/{name}"]
        return [*arguments, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME]


def for_python(*packages: str, **settings: bool | int) -> Sandbox:
    """The sandbox in which these packages, which this Python finds, can be imported.

    Raises:
        ModuleNotFoundError: there is no such package.
    """
    visible = []
    for name in packages:
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"there is no package {name!r} to show in the sandbox")
        visible += [Path(place).resolve() for place in spec.submodule_search_locations]
    return replace(Sandbox(visible=tuple(visible)), **settings)  # type: ignore[arg-type]


@cache
def unavailable() -> str | None:
    """Why there is no sandbox on this machine, and what to do; None if there is one."""
    if not sys.platform.startswith("linux"):
        return "the sandbox is bubblewrap, which needs Linux: grade on a Linux machine or in WSL 2"
    needed = ["bwrap", "prlimit", *(["setpriv"] if os.geteuid() == 0 else [])]
    for program in needed:
        if shutil.which(program) is None:
            package = "bubblewrap" if program == "bwrap" else "util-linux"
            return f"the sandbox needs {program}, which is not installed: apt-get install {package}"
    empty = ["bwrap", *_namespaces(), *_read_only([Path("/")]), "--dev", "/dev", "--", "true"]
    if (said := _probe(empty)) is not None:
        return (
            f"bubblewrap does not run here: {said}. An ordinary "
            f"user needs user namespaces (sysctl kernel.unprivileged_userns_clone=1 on Debian, "
            f"kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu), root in a container "
            f"needs the capability SYS_ADMIN"
        )
    python = [sys.executable, "-I", "-c", "pass"]
    if (said := _probe(["bwrap", *Sandbox()._bwrap({}), "--", *_become_a_user(), *python])) is None:
        return None
    return (
        f"Python does not start in the sandbox: {said}. It is at {sys.executable}, which an "
        f"ordinary user must be able to read: put the environment into a folder that others may "
        f"enter"
    )


def _probe(command: Sequence[str]) -> str | None:
    """What a command says when it fails; None if it ends well."""
    try:
        probe = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_SECONDS, env=BARE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (probe.stderr.strip() or "no message") if probe.returncode else None


def _limited_bwrap(bounds: Limits) -> list[str]:
    """The command that starts bubblewrap itself under limits; see prlimit(1)."""
    cpu = bounds.cpu_seconds
    wanted = {
        "as": bounds.memory_bytes, "fsize": bounds.file_bytes, "nofile": bounds.open_files,
        "cpu": None if cpu is None else f"{cpu}:{cpu + CPU_GRACE_SECONDS}", "core": 0,
    }  # fmt: skip
    return [
        "prlimit",
        *(f"--{name}={value}" for name, value in wanted.items() if value is not None),
    ]


def _namespaces() -> list[str]:
    """Root keeps what it takes to become an ordinary user; everyone else gets a namespace."""
    if os.geteuid() != 0:
        return ["--unshare-all", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    kept = ["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"]
    capabilities = ["--cap-drop", "ALL", *itertools.chain(*(["--cap-add", c] for c in kept))]
    unshared = ["ipc", "pid", "net", "uts"]
    return [*(f"--unshare-{n}" for n in unshared), "--unshare-cgroup-try", *capabilities]


def _become_a_user() -> list[str]:
    """For root: each sandbox gets a user of its own, so that limits on processes are its own."""
    if os.geteuid() != 0:
        return []
    user = USERS[(os.getpid() * 16 + next(_started)) % len(USERS)]
    return [
        "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups",
        "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs",
    ]  # fmt: skip


def _read_only(paths: Sequence[Path]) -> list[str]:
    """Mounts of what exists; a link of the system (/bin) stays a link."""
    arguments: list[str] = []
    for path in dict.fromkeys(paths):
        if path.is_symlink() and str(path) in SYSTEM:
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.exists():
            arguments += [*_parents(path), "--ro-bind", str(path), str(path)]
    return arguments


def _parents(path: Path) -> list[str]:
    """Folders above a mount, made so that the user can pass; bwrap itself makes them for root."""
    above = [p for p in reversed(path.parents) if str(p) not in ("/", "/dev")]
    return list(itertools.chain(*(["--perms", "0755", "--dir", str(p)] for p in above)))


def _unconfined() -> dict[str, str]:
    """Our environment for a process without a sandbox, whose home is not here."""
    own = {k: v for k, v in ENVIRONMENT.items() if k not in ("HOME", "USER", "LOGNAME", "PATH")}
    return {"PATH": os.environ.get("PATH", ENVIRONMENT["PATH"]), "HOME": "/nonexistent", **own}
