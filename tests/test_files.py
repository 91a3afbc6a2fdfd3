"""Files that are never half written, and where the cache is."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from tinytorch.files import atomic_write, cache_root


def test_cache_root_is_chosen_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINYTORCH_CACHE_DIR", str(tmp_path / "chosen"))
    assert cache_root() == tmp_path / "chosen"


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the rule of freedesktop.org")
def test_cache_root_follows_the_desktop_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TINYTORCH_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "tinytorch"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "tinytorch"


def test_atomic_write_keeps_the_old_file_on_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="half way"), atomic_write(path) as stream:
        stream.write(b"new, but")
        raise RuntimeError("half way")
    assert path.read_bytes() == b"old"
    with atomic_write(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of POSIX")
def test_atomic_write_leaves_links_permissions_and_pipes_as_they_are(tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real", tmp_path / "link", tmp_path / "pipe"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    with atomic_write(link) as stream:
        stream.write(b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"
    assert real.stat().st_mode & 0o777 == 0o640
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with atomic_write(pipe) as stream:
        stream.write(b"through")
    assert os.read(reader, 100) == b"through" and pipe.is_fifo()
    os.close(reader)
    with atomic_write(tmp_path / ("n" * 250)) as stream:
        stream.write(b"long")
    assert (tmp_path / ("n" * 250)).read_bytes() == b"long"


def test_an_error_names_the_file_and_not_its_part(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as error, atomic_write(tmp_path) as stream:
        stream.write(b"new")
    assert error.value.filename == str(tmp_path) and error.value.filename2 is None
    assert str(error.value).endswith(repr(str(tmp_path)))
    path = tmp_path / "file"
    with pytest.raises(OSError, match=r"No space left on device: '.*/file'"), atomic_write(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
