"""A filter of system calls for a sandbox: a classic BPF program, assembled here.

What it refuses is what the other limits do not reach: memory that belongs to no process (System V
segments, memfd), new user namespaces (each a fresh set of privileges inside the kernel), and the
interfaces that ordinary programs never need and kernel bugs are mostly found in.

Source: seccomp(2), "struct seccomp_data"; linux/bpf_common.h; the tables of system calls of Linux.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import NamedTuple


class Machine(NamedTuple):
    """The audit architecture and the numbers of the calls that differ."""

    audit: int
    clone: int
    socket: int
    affinity: int
    forks: tuple[int, ...]
    refused: tuple[int, ...]


# affinity: sched_setaffinity. forks: fork, vfork (ARM has only clone). Refused:
# bpf, perf_event_open, userfaultfd, ptrace, process_vm_readv and _writev, add_key, request_key,
# keyctl, shmget, shmat, msgget, semget, memfd_create, unshare, setns, mount
MACHINES = {
    "x86_64": Machine(
        0xC000003E, 56, 41, 203, (57, 58),
        (321, 298, 323, 101, 310, 311, 248, 249, 250, 29, 30, 68, 64, 319, 272, 308, 165),
    ),
    "aarch64": Machine(
        0xC00000B7, 220, 198, 122, (),
        (280, 241, 282, 117, 270, 271, 217, 218, 219, 194, 196, 186, 190, 279, 97, 268, 40),
    ),
}  # fmt: skip
# io_uring_setup, _enter, _register, memfd_secret, pidfd_getfd: the same everywhere
REFUSED_EVERYWHERE = (425, 426, 427, 447, 438)
# AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: others (AF_VSOCK, say) may ignore the network namespace
SOCKET_FAMILIES = (1, 2, 10, 16)
CLONE3 = 435  # its flags lie in memory, where a filter cannot look; the C library then takes clone
NEW_USER_NAMESPACE, A_THREAD = 0x10000000, 0x00010000  # flags of clone
X32 = 0x40000000  # numbers above are a second table of x86-64, which would go round this one

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16


def program(machine: str | None = None, *, may_fork: bool = True) -> bytes | None:
    """The filter for a machine, this one by default; None if its system calls are not known here.

    Args:
        may_fork: False refuses new processes, and leaves threads, on the cores that they have.

    >>> len(program("x86_64")) % 8
    0
    """
    known = MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    refuse = REFUSE | errno.EPERM
    steps = [
        _step(LOAD, ARCHITECTURE),
        _step(EQUAL, known.audit, yes=1),
        _step(RETURN, KILL),
        _step(LOAD, NUMBER),
        _step(AT_LEAST, X32, no=1),
        _step(RETURN, refuse),
        _step(EQUAL, CLONE3, no=1),
        _step(RETURN, REFUSE | errno.ENOSYS),
    ]
    forks = () if may_fork else (known.affinity, *known.forks)
    for number in (*known.refused, *REFUSED_EVERYWHERE, *forks):
        steps += [_step(EQUAL, number, no=1), _step(RETURN, refuse)]
    left = range(len(SOCKET_FAMILIES), 0, -1)  # steps to the one that allows the call
    families = [_step(EQUAL, f, yes=n) for f, n in zip(SOCKET_FAMILIES, left, strict=True)]
    steps += [
        _step(EQUAL, known.socket, no=len(families) + 3),
        _step(LOAD, FIRST_ARGUMENT),
        *families,
        _step(RETURN, REFUSE | errno.EAFNOSUPPORT),
        _step(RETURN, ALLOW),
        _step(EQUAL, known.clone, no=3 if may_fork else 5),
        _step(LOAD, FIRST_ARGUMENT),
        _step(ANY_BIT, NEW_USER_NAMESPACE, no=1),
        _step(RETURN, refuse),
        *([] if may_fork else [_step(ANY_BIT, A_THREAD, yes=1), _step(RETURN, refuse)]),
        _step(RETURN, ALLOW),
    ]
    return b"".join(steps)


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; a jump skips `yes` instructions if it holds and `no` if not."""
    return struct.pack("=HBBI", code, yes, no, value)
