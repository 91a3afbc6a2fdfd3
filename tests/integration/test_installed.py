"""Backends and passes of a user's own, checked by the package as it is installed from its wheel.

No source tree is there: what the wheel lacks, and what the commands look for beside it, is missed.
"""

from __future__ import annotations

import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BACKENDS = """
from tinytorch.backends.numpy import NumpyBackend

class Mine(NumpyBackend):
    def matmul(self, a, b):
        return a @ b

class Wrong(NumpyBackend):
    def matmul(self, a, b):
        return super().matmul(a, b) + 1
"""
PASSES = """
from tinytorch.graph.passes import OptimizationPass

class DoubleNegation(OptimizationPass):
    name = "double-negation"

    def analyze(self, graph):
        return [n for n in graph.nodes if "neg" == getattr(n.target, "name", None)
                == getattr(n.args[0].target, "name", None)]

    def transform(self, graph, found):
        for node in found:
            node.replace_all_uses_with(node.args[0].args[0])
        return bool(found)

class Forgets(DoubleNegation):
    name = "forgets"

    def transform(self, graph, found):
        for node in found:
            node.replace_all_uses_with(node.args[0])
        return bool(found)

def f(x):
    return (-(-x)).exp()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it, the packages of this one, and not its source tree."""
    pytest.importorskip("setuptools", "77", "building a wheel needs setuptools 77 or later")
    folder = tmp_path_factory.mktemp("installed")
    source, wheels, environment = folder / "source", folder / "wheels", folder / "environment"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("tinytorch", "tito"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, source],
                   check=True)  # fmt: skip
    shutil.rmtree(source)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (wheel,) = wheels.iterdir()
    python = environment / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", "--no-compile",
                    wheel], check=True)  # fmt: skip
    (packages,) = environment.glob("lib/python*/site-packages")
    # a folder that a .pth file names is searched, but its own .pth files, which lead to the source,
    # are not read
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()))
    where = subprocess.run([python, "-c", "import tinytorch; print(tinytorch.__file__)"],
                           cwd=folder, check=True, capture_output=True, text=True)  # fmt: skip
    assert Path(where.stdout).is_relative_to(environment)
    (folder / "mine.py").write_text(BACKENDS)
    (folder / "passes.py").write_text(PASSES)
    return folder


def tito(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(folder / "environment" / "bin" / "tito"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_installed_package_checks_backends(installed: Path) -> None:
    good = tito(installed, "backend", "check", "mine.py:Mine", "--examples", "2")
    assert good.returncode == 0, good.stderr
    assert " ops give what NumPy gives" in good.stdout
    wrong = tito(installed, "backend", "check", "mine.py:Wrong", "--op", "matmul", "--op", "add")
    assert wrong.returncode == 1, wrong.stderr
    assert "1 of 2 ops give what NumPy gives\nnot these: matmul" in wrong.stdout


@pytest.mark.slow
def test_the_installed_package_runs_passes(installed: Path) -> None:
    passes = "passes.py:DoubleNegation,dce,passes.py:Forgets"
    run = tito(installed, "graph", "optimize", "passes.py:f", "-i", "float32[3]", "--passes",
               f"passes.py:Forgets,{passes}")  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "rolled back" in run.stdout
    assert "%exp : float32[3] = exp(%x)" in run.stdout
