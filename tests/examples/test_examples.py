"""The programs of examples/, run with PyTorch and with TinyTorch: what they print is the same.

Each library has one process for many programs: importing PyTorch costs more than most of them.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).with_name("run_programs.py")
PROGRAMS = sorted(p.name for p in (ROOT / "examples").glob("*.py") if p.name != "draws.py")
SAMPLE = [
    "char_rnn_by_hand.py",
    "gan_1d.py",
    "gpt_small.py",
    "linear_regression.py",
    "lora.py",
    "matrix_factorization.py",
    "mlp_script.py",
]
OPTIONS = [
    ["mlp_script.py", "--help"],
    ["mlp_script.py", "--lr", "0.1", "--epochs", "1"],
    ["char_rnn_lstm.py", "--help"],
    ["char_rnn_lstm.py", "--tied"],
    ["vae.py", "--help"],
    ["dcgan.py", "--ngf", "2"],
    ["mnist_style.py", "--dry-run"],
    ["resnet_cifar.py", "--unknown"],
    ["reinforce.py", "--help"],
]
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


SIZE = re.compile(r"torch\.Size\(\[(.*?)\]\)")


def _tuple(found: re.Match[str]) -> str:
    return f"({found[1]}{',' if found[1] and ',' not in found[1] else ''})"


@functools.cache
def outcomes(library: str, backend: str, programs: str) -> dict[str, dict]:
    """What the programs (JSON: a list of command lines) print, by command line."""
    done = subprocess.run(
        [sys.executable, str(RUNNER), library, backend, programs],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    return {" ".join(p): r for p, r in zip(json.loads(programs), results, strict=True)}


def assert_same_lines(ours: list[str], theirs: list[str]) -> None:
    """The same text, and numbers that agree to 1e-5, or to the last digit that is printed.

    Shapes are tuples here, and print so: (2, 3) for torch.Size([2, 3]). Dtypes have our name.
    """
    ours = [line.replace("tinytorch.", "torch.") for line in ours]
    theirs = [SIZE.sub(_tuple, line) for line in theirs]
    assert [NUMBER.sub("#", line) for line in ours] == [NUMBER.sub("#", line) for line in theirs]
    for line, expected in zip(ours, theirs, strict=True):
        for a, b in zip(NUMBER.findall(line), NUMBER.findall(expected), strict=True):
            last_digit = 10.0 ** -len(b.partition(".")[2].partition("e")[0])
            if "." not in b:
                last_digit = 0.0
            scale = abs(float(b)) / max(abs(float(b.partition("e")[0])), 1e-30) if "e" in b else 1.0
            tolerance = max(1e-5 * max(1.0, abs(float(b))), 1.01 * last_digit * scale)
            assert abs(float(a) - float(b)) <= tolerance, f"\n{line}\n{expected}"


def check(command: list[str], programs: list[list[str]], backend: str = "numpy") -> None:
    key, name = json.dumps(programs), " ".join(command)
    theirs = outcomes("torch", "-", key)[name]
    assert theirs["error"] is None, theirs["error"]
    ours = outcomes("tinytorch", backend, key)[name]
    assert ours["error"] is None, ours["error"]
    assert theirs["lines"] or command[-1].startswith("--")
    assert_same_lines(ours["lines"], theirs["lines"])


@pytest.mark.slow
@pytest.mark.parametrize("program", SAMPLE)
def test_prints_what_it_prints_with_pytorch(program):
    check([program], [[p] for p in SAMPLE])


@pytest.mark.slow
@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in SAMPLE])
def test_prints_what_it_prints_with_pytorch_all(program):
    check([program], [[p] for p in PROGRAMS if p not in SAMPLE])


@pytest.mark.slow
@pytest.mark.parametrize("command", OPTIONS, ids=" ".join)
def test_options_do_what_they_do_with_pytorch(command):
    check(command, OPTIONS)


@pytest.mark.slow
@pytest.mark.exhaustive_beyond(2)
@pytest.mark.parametrize("program", ["resnet18.py", "gpt_small.py"])
@pytest.mark.parametrize("backend", ["optimized", "blocked", "naive"])
def test_a_resnet_and_a_gpt_train_on_every_backend(program, backend):
    check([program], [["resnet18.py"], ["gpt_small.py"]], backend)


def test_there_are_at_least_forty_programs():
    assert len(PROGRAMS) >= 40
    for name in PROGRAMS:
        text = (ROOT / "examples" / name).read_text()
        assert "import torch" in text and "tinytorch" not in text, name
