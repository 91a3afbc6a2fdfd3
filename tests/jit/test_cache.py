"""The kernel cache, each time in fresh processes: that is where a cache goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tinytorch.jit import cache, library
from tinytorch.jit.cache_folder import library_key
from tinytorch.jit.fingerprint import fingerprint

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


@pytest.mark.slow
def test_a_changed_helper_in_another_file_is_noticed(project):
    project.run()
    project.write("helper.py", HELPER.replace("2 * x", "5 * x"))
    assert project.run()[0][0] == 75


@pytest.mark.slow
def test_a_changed_constant_is_noticed(project):
    project.run()
    project.write("helper.py", HELPER.replace("CONSTANT = 0", "CONSTANT = 7"))
    assert project.run()[0][0] == 19


@pytest.mark.slow
def test_two_processes_may_compile_at_once(project):
    first, second = project.start(), project.start()
    assert finish(first)[0][0] == finish(second)[0][0] == 12
    (result, compiled, _), _ = project.run()
    assert (result, compiled) == (12, 0)
    assert not list(project.cache.rglob("*.part"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage", ["flipped", *(pytest.param(d, marks=pytest.mark.slow) for d in ("empty", "cut"))]
)
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


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_said_and_replaced(project, tmp_path):
    project.cache.write_text("a file where a folder should be")
    private = tmp_path / "temporary"
    private.mkdir()
    (result, compiled, _), err = project.run(TMPDIR=str(private))
    assert result == 12 and compiled >= 2
    assert "cannot be written" in err and "TINYTORCH_CACHE_DIR" in err
    assert list(private.rglob("*.bin"))
    assert project.run(TMPDIR=str(private))[0][0] == 12


@pytest.mark.slow
def test_without_any_folder_to_write_kernels_still_run(project, tmp_path):
    project.cache.write_text("a file where a folder should be")
    private = tmp_path / "temporary"
    private.mkdir()
    # what is in our place there belongs to others as far as we can tell
    (private / f"tinytorch-{os.getuid()}").write_text("not a folder")
    (result, compiled, _), err = project.run(TMPDIR=str(private))
    assert result == 12 and compiled >= 2
    assert "compiled anew in every process" in err


@pytest.mark.slow
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


def test_a_process_without_kernels_describes_the_same_cache(project):
    project.write(
        "program.py", "from tinytorch.jit.cache import cache_info\nprint(cache_info().path)"
    )
    out, _ = project.start().communicate(timeout=600)
    assert out.strip() == str(project.cache / "kernels" / library_key())


def test_info_and_clear(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYTORCH_CACHE_DIR", str(tmp_path))
    folder = tmp_path / "kernels" / library_key()
    (tmp_path / "kernels" / "older").mkdir(parents=True)
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"12345")
    info = cache.cache_info()
    assert (info.path, info.entries, info.nbytes, info.other_libraries) == (folder, 1, 5, 1)
    assert cache.clear_cache() == 5
    assert not folder.exists() and cache.cache_info().entries == 0


def test_liberties_with_floating_point_are_part_of_a_kernels_name():
    text = "def summed(a, b, c):\n    return a * b + c\n"
    strict, loose = (
        library.compile_source("summed", text, {}, fastmath=frozenset(liberties), force_inline=True)
        for liberties in ((), ("contract",))
    )
    assert fingerprint(strict) != fingerprint(loose)  # as what other kernels use
    codegen = type("Codegen", (), {"magic_tuple": lambda self: ()})()
    names = {each._cache._file_name("signature", codegen) for each in (strict, loose)}
    assert len(names) == 2


@pytest.mark.slow
def test_a_kernel_under_another_kernels_name_is_not_loaded(project):
    project.run()
    first, second, *_ = project.files()
    first.write_bytes(second.read_bytes())  # a whole file, but not this one's
    (result, compiled, _), _ = project.run()
    assert result == 12 and compiled >= 1


def test_a_layer_is_made_without_compiling_and_loaded_without_scipy(tmp_path):
    program = """
        import sys, tinytorch
        tinytorch.set_backend("optimized")
        layer = tinytorch.nn.Linear(4, 3)
        from tinytorch.jit.compile_progress import progress
        print(progress.compiled + progress.loaded, "scipy.linalg" in sys.modules)
    """
    environment = {**os.environ, "TINYTORCH_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False"]


# What numba imports to compile, and only to compile.
FOR_THE_COMPILER = ("cffi", "importlib.metadata", "numba.np.linalg", "scipy.linalg")


@pytest.mark.slow
@pytest.mark.skipif(not library.JIT, reason="NUMBA_DISABLE_JIT is set")
def test_a_kernel_from_the_cache_runs_without_what_only_compiling_needs():
    program = f"""
        import sys, tinytorch
        tinytorch.set_backend("optimized")
        tinytorch.nn.Linear(4, 3)(tinytorch.ones(2, 4).exp())
        from tinytorch.jit.compile_progress import progress
        print(progress.compiled, [m for m in {FOR_THE_COMPILER} if m in sys.modules])
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    for _ in range(2):  # the first one fills the cache, if need be
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "[]"]
