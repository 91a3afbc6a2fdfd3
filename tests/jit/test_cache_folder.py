"""The folder of compiled kernels loses nothing, and grows to no more than its bound."""

from __future__ import annotations

import os

import pytest

from tinytorch.jit import cache_folder


def test_the_temporary_folder_must_be_ours_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_folder.tempfile, "gettempdir", lambda: str(tmp_path))
    own = cache_folder._own_temporary_root()
    assert own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o777)
    with pytest.raises(PermissionError, match="only this user"):
        cache_folder._own_temporary_root()


def test_only_the_latest_libraries_are_kept(tmp_path):
    for i in range(8):
        folder = tmp_path / str(i)
        cache_folder._prepare(folder)
        os.utime(folder, (i, i))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["4", "5", "6", "7"]


def test_a_library_that_is_only_read_is_kept_before_one_that_nobody_uses(tmp_path):
    for i in range(4):
        cache_folder._prepare(tmp_path / str(i))
    cache_folder.write_whole(tmp_path / "0" / "kernel.bin", b"code")
    for i, path in enumerate((tmp_path / "0" / "kernel.bin", *sorted(tmp_path.iterdir()))):
        os.utime(path, (i, i))
    assert cache_folder.read_checked(tmp_path / "0" / "kernel.bin") == b"code"
    cache_folder._prepare(tmp_path / "new")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "2", "3", "new"]


def test_every_file_that_kernels_are_made_of_makes_them_stale():
    sources = cache_folder.kernel_sources()
    files = {path.relative_to(cache_folder._PACKAGE).as_posix() for path in sources}
    assert {
        "jit/llvm.py",
        "jit/cpu.py",
        "backends/blocked/matmul.py",
        "backends/optimized/gemm/loops.py",
    } <= files


def test_a_full_disk_is_said_once(tmp_path, monkeypatch):
    def full(path, payload):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_folder, "write_whole", full)
    directory = cache_folder.CacheDirectory()
    with pytest.warns(RuntimeWarning, match="No space left on device") as said:
        for i in range(62):
            directory.keep(tmp_path, f"kernel-{i}.bin", b"")
    assert len(said) == 1


def test_nothing_is_left_of_a_write_that_failed(tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache_folder.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache_folder.write_whole(tmp_path / "kernel.bin", b"code")
    assert list(tmp_path.iterdir()) == []


def test_what_killed_processes_began_is_swept(tmp_path):
    old, new = tmp_path / "old.part", tmp_path / "new.part"
    for path in (old, new):
        path.write_bytes(b"begun")
    os.utime(old, (0, 0))
    assert cache_folder.evict(tmp_path) == 5
    assert [p.name for p in tmp_path.iterdir()] == ["new.part"]


def test_kernels_that_were_not_used_for_longest_go_first(tmp_path):
    for i in range(5):
        path = tmp_path / f"kernel-{i}.bin"
        cache_folder.write_whole(path, bytes(100))
        os.utime(path, (1000.0 + i, 1000.0 + i))
    assert cache_folder.read_checked(tmp_path / "kernel-0.bin") == bytes(100)  # a use
    cache_folder.evict(tmp_path, kept_bytes=300)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kernel-0.bin", "kernel-4.bin"]
