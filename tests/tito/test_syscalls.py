"""The filter of system calls, read by a small machine of our own."""

from __future__ import annotations

import errno
import struct

import pytest

from tito import syscalls

ALLOW, KILL = 0x7FFF0000, 0x80000000
X86, ARM = 0xC000003E, 0xC00000B7


def verdict(program: bytes, number: int, architecture: int, flags: int = 0) -> int:
    """What the filter says to a system call: classic BPF, as seccomp(2) runs it."""
    data = struct.pack("=IIQ", number, architecture, 0) + struct.pack("=6Q", flags, 0, 0, 0, 0, 0)
    steps = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        code, yes, no, value = steps[at]
        if code == syscalls.RETURN:
            return int(value)
        if code == syscalls.LOAD:
            accumulator = struct.unpack_from("=I", data, value)[0]
            at += 1
            continue
        holds = {
            syscalls.EQUAL: accumulator == value,
            syscalls.AT_LEAST: accumulator >= value,
            syscalls.ANY_BIT: bool(accumulator & value),
        }[code]
        at += 1 + (yes if holds else no)


def refused(number: int) -> int:
    return syscalls.REFUSE | number


@pytest.mark.parametrize(
    ("machine", "architecture", "read", "clone", "shmget"),
    [("x86_64", X86, 0, 56, 29), ("aarch64", ARM, 63, 220, 194)],
)
def test_ordinary_calls_pass_and_dangerous_ones_do_not(
    machine: str, architecture: int, read: int, clone: int, shmget: int
) -> None:
    program = syscalls.program(machine)
    assert program is not None
    assert verdict(program, read, architecture) == ALLOW
    assert verdict(program, clone, architecture, flags=0x11) == ALLOW
    assert verdict(program, shmget, architecture) == refused(errno.EPERM)
    assert verdict(program, 425, architecture) == refused(errno.EPERM)
    new_user = verdict(program, clone, architecture, flags=syscalls.NEW_USER_NAMESPACE | 0x11)
    assert new_user == refused(errno.EPERM)
    assert verdict(program, syscalls.CLONE3, architecture) == refused(errno.ENOSYS)


def test_another_table_of_calls_is_no_way_round() -> None:
    program = syscalls.program("x86_64")
    assert program is not None
    assert verdict(program, 0, ARM) == KILL
    assert verdict(program, syscalls.X32 + 29, X86) == refused(errno.EPERM)


def test_an_unknown_machine_has_no_filter() -> None:
    assert syscalls.program("vax") is None


@pytest.mark.parametrize(
    ("machine", "architecture", "socket"), [("x86_64", X86, 41), ("aarch64", ARM, 198)]
)
def test_sockets_are_of_a_few_families(machine: str, architecture: int, socket: int) -> None:
    program = syscalls.program(machine)
    assert program is not None
    unix, inet, inet6, netlink, packet, bluetooth, vsock = 1, 2, 10, 16, 17, 31, 40
    for family in (unix, inet, inet6, netlink):
        assert verdict(program, socket, architecture, flags=family) == ALLOW
    for family in (0, packet, bluetooth, vsock):
        assert verdict(program, socket, architecture, flags=family) == refused(errno.EAFNOSUPPORT)


@pytest.mark.parametrize(
    ("machine", "architecture", "clone", "others"),
    [("x86_64", X86, 56, (57, 58, 203)), ("aarch64", ARM, 220, (122,))],
)
def test_threads_without_processes(
    machine: str, architecture: int, clone: int, others: tuple[int, ...]
) -> None:
    program, strict = syscalls.program(machine), syscalls.program(machine, may_fork=False)
    assert program is not None and strict is not None
    thread, process = syscalls.A_THREAD | 0x3D0F00, 0x11
    for each, may_fork in ((program, ALLOW), (strict, refused(errno.EPERM))):
        assert verdict(each, clone, architecture, flags=thread) == ALLOW
        assert verdict(each, clone, architecture, flags=process) == may_fork
        for other in others:  # fork and vfork, and sched_setaffinity
            assert verdict(each, other, architecture) == may_fork
    new_user = verdict(strict, clone, architecture, flags=syscalls.NEW_USER_NAMESPACE | thread)
    assert new_user == refused(errno.EPERM)
