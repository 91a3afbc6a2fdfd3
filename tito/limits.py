"""Limits on a child process: time, memory, file sizes, open files, processes, kept output.

The limits are set by this file, run as a script between the parent and the command: it sets them on
itself with `setrlimit` and becomes the command, which, with all that it starts, inherits them. So
nothing of Python runs between fork and exec, where a parent with threads could deadlock, and the
command may be anything, a sandbox as well. `run` adds wall time: it ends the whole process group.

Source: POSIX getrlimit; the manual page setrlimit(2) for what each limit covers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

# a child writes its output to a file, and so does not block when nobody reads
OUTPUT_BYTES = 1 << 20
RESOURCES = {
    "cpu_seconds": "RLIMIT_CPU",
    "memory_bytes": "RLIMIT_AS",
    "file_bytes": "RLIMIT_FSIZE",
    "open_files": "RLIMIT_NOFILE",
    "processes": "RLIMIT_NPROC",
}
# beyond its processor time a process gets SIGXCPU, which says why it ended; that much later SIGKILL
CPU_GRACE_SECONDS = 1
PARENT_DEATH_SIGNAL = 1  # of linux/prctl.h


@dataclass(frozen=True)
class Limits:
    """What a child process may use; None leaves a limit as it is.

    Attributes:
        seconds: of wall time, for the command and all that it starts.
        cpu_seconds: of one process; one that it starts counts anew. SIGXCPU ends it (`is_cpu_time`
            knows its exit code), and SIGKILL a second later where it does not heed that.
        memory_bytes: address space of one process.
        file_bytes: of the largest file that it may write, its output included.
        open_files: at once in one process.
        processes: of the user it runs as, threads included: everything that this user runs
            counts, so it is useful only where that user is the command's own. Root has no limit.
    """

    seconds: float
    cpu_seconds: int | None = None
    memory_bytes: int | None = None
    file_bytes: int | None = None
    open_files: int | None = None
    processes: int | None = None


@dataclass(frozen=True)
class Finished:
    """How a command ended.

    Attributes:
        code: its exit code; -n if signal n ended it.
        stdout, stderr: what it printed; of a long output the beginning and the end.
        seconds: of wall time.
        timed_out: it was ended because its wall time was over.
    """

    code: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool


def limited(command: Sequence[str], limits: Limits, *, ends_with_us: bool = False) -> list[str]:
    """The command that runs `command` under all of the limits but wall time.

    >>> limited(["ls"], Limits(seconds=1, open_files=20))[-3:]
    ['open_files=20', '--', 'ls']

    Args:
        ends_with_us: on Linux the command is killed when the thread that starts it ends.

    Raises:
        OSError: this system has no such limits (Windows outside of WSL).
    """
    if os.name != "posix":
        raise OSError("limits on time and memory need Linux, macOS or WSL: run tito there")
    wanted = {name: getattr(limits, name) for name in RESOURCES}
    settings = [f"{name}={value}" for name, value in wanted.items() if value is not None]
    if ends_with_us and sys.platform.startswith("linux"):
        settings.append(f"parent={os.getpid()}")
    return [sys.executable, "-I", "-S", __file__, *settings, "--", *command]


def is_cpu_time(code: int) -> bool:
    """Whether this is the exit code, of a process or of a sandbox around it, for its time.

    The system knows it best: it counts whole ticks, `usage` what was really run, and on a busy core
    the two differ by seconds.
    """
    return code in (-signal.SIGXCPU, 128 + signal.SIGXCPU)


def run(
    command: Sequence[str],
    limits: Limits,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    output_bytes: int = OUTPUT_BYTES,
) -> Finished:
    """Run a command under limits, to its end or to theirs; nothing of its process group survives.

    A process that the command has moved into a session of its own is out of reach: where the code
    is hostile, run it in a sandbox with a process namespace.

    Args:
        output_bytes: how much of stdout and of stderr is returned, each.
    """
    start = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            limited(command, limits),
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        timed_out = False
        try:
            child.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:  # after an interrupt as well
            end(child)
        seconds = time.monotonic() - start
        return Finished(
            child.returncode, _text(out, output_bytes), _text(err, output_bytes), seconds, timed_out
        )


def end(child: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads its session, and all that it started; close what leads to it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _text(file: IO[bytes], limit: int) -> str:
    """What is in a file; of one over the limit its first and its last part."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= limit:
        return file.read().decode(errors="replace")
    head = file.read(limit // 2)
    file.seek(size - limit // 2)
    cut = f"\n[... {size - 2 * (limit // 2):,} bytes left out ...]\n"
    return head.decode(errors="replace") + cut + file.read().decode(errors="replace")


def _end_with(parent: int) -> None:
    """Be killed when the parent ends, stopped or not, also as another program: see prctl(2)."""
    import ctypes

    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, int(signal.SIGKILL))
    if os.getppid() != parent:  # it has ended before that
        os._exit(1)


def _become(arguments: list[str]) -> None:
    """Set the limits `name=value` on this process, then become the command after `--`."""
    import resource

    end = arguments.index("--")
    for setting in arguments[:end]:
        name, _, value = setting.partition("=")
        if name == "parent":
            _end_with(int(value))
            continue
        which: Any = getattr(resource, RESOURCES[name])
        wanted, hard = int(value), resource.getrlimit(which)[1]
        most = wanted + (CPU_GRACE_SECONDS if which == resource.RLIMIT_CPU else 0)
        if hard != resource.RLIM_INFINITY:
            wanted, most = min(wanted, hard), min(most, hard)
        resource.setrlimit(which, (wanted, most))
    command = arguments[end + 1 :]
    os.execvp(command[0], command)


if __name__ == "__main__":
    _become(sys.argv[1:])
