from __future__ import annotations

import sys

import pytest

from tinytorch.jit import caches
from tinytorch.jit.caches import (
    SMALL,
    Cache,
    all_caches,
    core_caches,
    parse_size,
    read_linux,
    streamed_from,
)


def described(folder, index, **values):
    names = {"ways": "ways_of_associativity", "line": "coherency_line_size"}
    (folder / f"index{index}").mkdir()
    for name, value in values.items():
        (folder / f"index{index}" / names.get(name, name)).write_text(f"{value}\n")


@pytest.fixture
def emerald(tmp_path):
    described(tmp_path, 0, level=1, type="Data", size="48K", ways=12, line=64)
    described(tmp_path, 1, level=1, type="Instruction", size="32K", ways=8, line=64)
    described(tmp_path, 2, level=2, type="Unified", size="2M", ways=16, line=64)
    return tmp_path


def test_what_linux_says(emerald, monkeypatch):
    assert read_linux(emerald) == {1: Cache(49152, 12, 64), 2: Cache(2 * 2**20, 16, 64)}
    assert read_linux(emerald)[1].way_bytes == 4096
    monkeypatch.setattr(caches, "_FOLDER", emerald)
    monkeypatch.setattr(caches.sys, "platform", "linux")
    all_caches.cache_clear()
    try:
        assert core_caches() == (Cache(49152, 12, 64), Cache(2 * 2**20, 16, 64))
        assert streamed_from() == sys.maxsize
        described(emerald, 3, level=3, type="Unified", size="260M", ways=20, line=64)
        all_caches.cache_clear()
        assert core_caches() == (Cache(49152, 12, 64), Cache(2 * 2**20, 16, 64))
        assert streamed_from() == 130 * 2**20
    finally:
        all_caches.cache_clear()


def test_what_macos_says(monkeypatch):
    values = {
        "hw.cachelinesize": 128,
        "hw.perflevel0.cpusperl2": 4,
        "hw.perflevel0.l1dcachesize": 131072,
        "hw.perflevel0.l2cachesize": 16 * 2**20,
    }

    class Done:
        def __init__(self, command):
            self.stdout = f"{values[command[-1]]}\n"

    monkeypatch.setattr(caches.subprocess, "run", lambda command, **_: Done(command))
    assert caches.read_macos() == {1: Cache(131072, 8, 128), 2: Cache(4 * 2**20, 8, 128)}


def test_a_system_that_does_not_tell(emerald, tmp_path, monkeypatch):
    for broken in ("48 bytes", "", "0"):
        (emerald / "index0" / "size").write_text("32K")
        (emerald / "index0" / "ways_of_associativity").write_text(broken)
        monkeypatch.setattr(caches, "_FOLDER", emerald)
        monkeypatch.setattr(caches.sys, "platform", "linux")
        all_caches.cache_clear()
        assert core_caches() == SMALL
    monkeypatch.setattr(caches, "_FOLDER", tmp_path / "nothing")
    all_caches.cache_clear()
    assert core_caches() == SMALL
    all_caches.cache_clear()


@pytest.mark.parametrize("text, size", [("32K", 32768), ("1M", 2**20), ("2G", 2**31), ("640", 640)])
def test_sizes(text, size):
    assert parse_size(text) == size
