"""The kernel cache, each time in fresh processes: that is where a cache goes wrong."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tinytorch.jit import cache, library

PROGRAM = """
    from helper import CONSTANT, twice
    from tinytorch.jit.library import cache_info, kernel

    @kernel
    def double_twice(x):
        return twice(twice(x)) + CONSTANT

    print(double_twice(3), cache_info().compiled, cache_info().loaded)
"""
HELPER = """
    from tinytorch.jit.library import kernel

    CONSTANT = 0

    @kernel
    def twice(x):
        return 2 * x
"""


class Project:
    """A folder with a program and a helper module, and a cache of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.cache = folder / "cache"
        self.write("program.py", PROGRAM)
        self.write("helper.py", HELPER)

    def write(self, name, text):
        (self.folder / name).write_text(textwrap.dedent(text))

    def start(self, **env):
        env = {"TINYTORCH_CACHE_DIR": str(self.cache), "PYTHONDONTWRITEBYTECODE": "1", **env}
        return subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=self.folder,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, **env):
        """(result, versions compiled, versions loaded), and stderr."""
        return finish(self.start(**env))

    def files(self):
        return sorted(self.cache.rglob("*.bin"))


def finish(process):
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return tuple(int(x) for x in out.split()), err


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def test_second_process_loads_what_the_first_compiled(project):
    (result, compiled, loaded), _ = project.run()
    assert (result, loaded) == (12, 0) and compiled >= 2
    (result, compiled, loaded), _ = project.run()
    assert (result, compiled) == (12, 0) and loaded >= 1


def test_a_changed_helper_in_another_file_is_noticed(project):
    project.run()
    project.write("helper.py", HELPER.replace("2 * x", "5 * x"))
    assert project.run()[0][0] == 75


def test_a_changed_constant_is_noticed(project):
    project.run()
    project.write("helper.py", HELPER.replace("CONSTANT = 0", "CONSTANT = 7"))
    assert project.run()[0][0] == 19


def test_two_processes_may_compile_at_once(project):
    first, second = project.start(), project.start()
    assert finish(first)[0][0] == finish(second)[0][0] == 12
    (result, compiled, _), _ = project.run()
    assert (result, compiled) == (12, 0)
    assert not list(project.cache.rglob("*.part"))


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped"])
def test_a_damaged_cache_is_compiled_anew(project, damage):
    project.run()
    for path in project.files():
        content = bytearray(path.read_bytes())
        if damage == "empty":
            content.clear()
        elif damage == "cut":
            del content[len(content) // 2 :]
        else:
            content[-100] ^= 0xFF
        path.write_bytes(content)
    (result, compiled, loaded), _ = project.run()
    assert result == 12 and compiled >= 2 and loaded == 0
    assert project.run()[0][1] == 0


def test_a_cache_that_cannot_be_written_is_said_and_replaced(project, tmp_path):
    project.cache.write_text("a file where a folder should be")
    private = tmp_path / "temporary"
    private.mkdir()
    (result, compiled, _), err = project.run(TMPDIR=str(private))
    assert result == 12 and compiled >= 2
    assert "cannot be written" in err and "TINYTORCH_CACHE_DIR" in err
    assert list(private.rglob("*.bin"))
    assert project.run(TMPDIR=str(private))[0][0] == 12


def test_without_any_folder_to_write_kernels_still_run(project, tmp_path):
    project.cache.write_text("a file where a folder should be")
    private = tmp_path / "temporary"
    private.mkdir()
    # what is in our place there belongs to others as far as we can tell
    (private / f"tinytorch-{os.getuid()}").write_text("not a folder")
    (result, compiled, _), err = project.run(TMPDIR=str(private))
    assert result == 12 and compiled >= 2
    assert "compiled anew in every process" in err


def test_the_temporary_folder_must_be_ours_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path))
    own = cache._own_temporary_root()
    assert own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o777)
    with pytest.raises(PermissionError, match="only this user"):
        cache._own_temporary_root()


def test_a_read_only_cache_is_still_read(project):
    project.run()
    program = (
        "import tempfile\n"
        "def refuse(**options):\n"
        "    raise PermissionError(13, 'Permission denied')\n"
        "tempfile.TemporaryFile = refuse\n"
    )
    project.write("program.py", program + textwrap.dedent(PROGRAM))
    # the program's own file has changed; the helper's kernel is found as before
    (result, compiled, _), err = project.run()
    assert result == 12 and compiled == 1
    assert "Permission denied" in err


def test_jit_can_be_disabled(project):
    (result, compiled, loaded), _ = project.run(NUMBA_DISABLE_JIT="1")
    assert (result, compiled, loaded) == (12, 0, 0)
    assert not project.files()


def test_info_and_clear(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYTORCH_CACHE_DIR", str(tmp_path))
    folder = tmp_path / "kernels" / cache.library_key()
    (tmp_path / "kernels" / "older").mkdir(parents=True)
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"12345")
    info = cache.cache_info()
    assert (info.path, info.entries, info.nbytes, info.other_libraries) == (folder, 1, 5, 1)
    assert cache.clear_cache() == 5
    assert not folder.exists() and cache.cache_info().entries == 0


def test_only_the_latest_libraries_are_kept(tmp_path):
    for i in range(8):
        folder = tmp_path / str(i)
        cache._prepare(folder)
        os.utime(folder, (i, i))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["4", "5", "6", "7"]


def test_liberties_with_floating_point_are_part_of_a_kernels_name():
    text = "def summed(a, b, c):\n    return a * b + c\n"
    strict, loose = (
        library.compile_source("summed", text, {}, fastmath=frozenset(liberties), force_inline=True)
        for liberties in ((), ("contract",))
    )
    assert cache.fingerprint(strict) != cache.fingerprint(loose)  # as what other kernels use
    codegen = type("Codegen", (), {"magic_tuple": lambda self: ()})()
    names = {each._cache._file_name("signature", codegen) for each in (strict, loose)}
    assert len(names) == 2


def test_fingerprint_tells_functions_apart_by_what_they_use():
    def make(constant, table=(1, 2)):
        def f(x):
            return x + constant + table[0]

        return f

    assert cache.fingerprint(make(1)) == cache.fingerprint(make(1))
    different = {
        cache.fingerprint(make(1)),
        cache.fingerprint(make(2)),
        cache.fingerprint(make(np.float32(1))),
        cache.fingerprint(make(1, (1, 3))),
        cache.fingerprint(make(np.arange(3))),
        cache.fingerprint(make(np.arange(4))),
        cache.fingerprint(make(make(1))),
    }
    assert len(different) == 7
    assert "0x" not in cache.fingerprint(make(make(3)))  # no addresses: they change


def test_every_file_that_kernels_are_made_of_makes_them_stale():
    files = {path.relative_to(cache._PACKAGE).as_posix() for path in cache.kernel_sources()}
    assert {
        "jit/llvm.py",
        "jit/cpu.py",
        "backends/blocked/matmul.py",
        "backends/optimized/gemm/loops.py",
    } <= files


def test_a_kernel_under_another_kernels_name_is_not_loaded(project):
    project.run()
    first, second, *_ = project.files()
    first.write_bytes(second.read_bytes())  # a whole file, but not this one's
    (result, compiled, _), _ = project.run()
    assert result == 12 and compiled >= 1


def test_a_full_disk_is_said_once(tmp_path, monkeypatch):
    def full(path, payload):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_write_whole", full)
    directory = cache.CacheDirectory()
    with pytest.warns(RuntimeWarning, match="No space left on device") as said:
        for i in range(62):
            directory.keep(tmp_path, f"kernel-{i}.bin", b"")
    assert len(said) == 1


def test_nothing_is_left_of_a_write_that_failed(tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache._write_whole(tmp_path / "kernel.bin", b"code")
    assert list(tmp_path.iterdir()) == []


def test_what_killed_processes_began_is_swept(tmp_path):
    old, new = tmp_path / "old.part", tmp_path / "new.part"
    for path in (old, new):
        path.write_bytes(b"begun")
    os.utime(old, (0, 0))
    assert cache.evict(tmp_path) == 5
    assert [p.name for p in tmp_path.iterdir()] == ["new.part"]


def test_kernels_that_were_not_used_for_longest_go_first(tmp_path):
    for i in range(5):
        path = tmp_path / f"kernel-{i}.bin"
        cache._write_whole(path, bytes(100))
        os.utime(path, (1000.0 + i, 1000.0 + i))
    assert cache._read_checked(tmp_path / "kernel-0.bin") == bytes(100)  # a use
    cache.evict(tmp_path, kept_bytes=300)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kernel-0.bin", "kernel-4.bin"]


class Screen(io.StringIO):
    """A stream that may be a terminal."""

    def __init__(self, is_terminal):
        super().__init__()
        self.isatty = lambda: is_terminal


@pytest.mark.parametrize("is_terminal", [False, True])
def test_compiling_that_takes_long_says_so_on_any_stream(monkeypatch, is_terminal):
    screen = Screen(is_terminal)
    monkeypatch.setattr(cache.sys, "stderr", screen)
    progress = cache.CompileProgress()
    for seconds in (0.0, 0.5, 2.0, 3.0):
        progress.seconds = seconds
        progress.begin("kernel")
        assert ("compiling kernels, once" in screen.getvalue()) is (seconds > 1.0)
        progress.end("kernel")
    if not is_terminal:
        assert screen.getvalue().count("\n") == screen.getvalue().count("tinytorch:") == 1


def test_a_layer_is_made_without_compiling_and_loaded_without_scipy(tmp_path):
    program = """
        import sys, tinytorch
        tinytorch.set_backend("optimized")
        layer = tinytorch.nn.Linear(4, 3)
        from tinytorch.jit.cache import progress
        print(progress.compiled + progress.loaded, "scipy.linalg" in sys.modules)
    """
    environment = {**os.environ, "TINYTORCH_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False"]


# What numba imports to compile, and only to compile.
FOR_THE_COMPILER = ("cffi", "importlib.metadata", "numba.np.linalg", "scipy.linalg")


@pytest.mark.skipif(not library.JIT, reason="NUMBA_DISABLE_JIT is set")
def test_a_kernel_from_the_cache_runs_without_what_only_compiling_needs():
    program = f"""
        import sys, tinytorch
        tinytorch.set_backend("optimized")
        tinytorch.nn.Linear(4, 3)(tinytorch.ones(2, 4).exp())
        from tinytorch.jit.cache import progress
        print(progress.compiled, [m for m in {FOR_THE_COMPILER} if m in sys.modules])
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    for _ in range(2):  # the first one fills the cache, if need be
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "[]"]
