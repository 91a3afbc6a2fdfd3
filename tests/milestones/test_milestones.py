"""Each milestone passes as it is, and fails at the right gate when its mechanism is broken."""

from __future__ import annotations

import json
import re

import pytest

from tests.milestones.conftest import ROOT, Replay

FOLDERS = sorted(path.parent.name for path in (ROOT / "milestones").glob("*/main.py"))
CNN = "04_1998_cnn"
ATTENTION, GPT = "05_2017_attention", "06_2019_gpt"
SMALL = "07_2020_small_and_fast"
REAL = "08_2023_real_models"  # their passes and backward are tested in tests/fx

IDLE_SGD = "import tinytorch.optim as o; o.SGD.step = lambda self: None"
IDLE_ADAM = "import tinytorch.optim as o; o.Adam.step = lambda self: None"
IDLE_ADD = "import tinytorch as t; t.Tensor.add_ = lambda self, other: self"
NO_TANH = "import tinytorch.nn as nn; nn.Tanh = nn.Identity"
WRONG_TANH_GRADIENT = """
from tinytorch import ops
right = ops.tanh.vjps[0]
ops.tanh.vjps = (lambda *arguments: right(*arguments) * 1.01,)
"""
ONE_EPOCH = "import network; network.EPOCHS = 1\n"
NO_FILTER_GRADIENT = """
from tinytorch.backends.numpy import NumpyBackend as B
right = B.conv2d_weight
B.conv2d_weight = lambda *a, **k: right(*a, **k) * 0
"""
SMALL_FILTER_GRADIENT = NO_FILTER_GRADIENT.replace("* 0", "* 0.99")
TURNED_CONVOLUTION = """
from tinytorch.backends.numpy import NumpyBackend as B
right = B.conv2d
B.conv2d = lambda self, x, w, *a, **k: right(self, x, w[:, :, ::-1], *a, **k)
"""

WRONG_SCALE = """
from tinytorch.nn import functional as F
right = F.scaled_dot_product_attention
F.scaled_dot_product_attention = lambda *a, **k: right(*a, **{**k, "scale": 1.0})
"""
SEES_ALL = """
from tinytorch.nn import functional as F
right = F.scaled_dot_product_attention
F.scaled_dot_product_attention = lambda *a, **k: right(*a, **{**k, "is_causal": False})
"""
# A causal network sees nothing ahead with any weights: what it learned does not matter here.
UNTRAINED = """
import sys
sys.path.append("milestones")
import gates
from tinytorch.text import corpus
gates.Milestone.epochs = lambda self, count: range(0)
whole = corpus.python_docs
corpus.python_docs = lambda part: whole(part)[:9_000]
"""
NOTHING_REMOVED = """
import tinytorch.compression as c
from tinytorch.data import TensorDataset, datasets
c.prune_channels_ = lambda *a, **k: {}
digits = datasets.digits
datasets.digits = lambda split: TensorDataset(*(t[:64] for t in digits(split).tensors))
"""

FAULTS = [
    ("01_1958_perceptron", IDLE_ADD, "weight moved"),
    ("02_1969_xor", IDLE_ADAM, "0.weight moved"),
    ("02_1969_xor", NO_TANH, "a hidden layer solves it"),
    ("03_1986_mlp", IDLE_SGD, "2.bias moved"),
    ("03_1986_mlp", WRONG_TANH_GRADIENT, "gradient of 0.weight"),
    (CNN, ONE_EPOCH + IDLE_ADAM, "conv1.weight moved"),
    pytest.param(
        CNN,
        ONE_EPOCH + NO_FILTER_GRADIENT,
        "each filter of conv1.weight has a gradient",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        CNN, ONE_EPOCH + SMALL_FILTER_GRADIENT, "gradient of conv2.weight", marks=pytest.mark.slow
    ),
    (CNN, ONE_EPOCH + TURNED_CONVOLUTION, "loss equals NumPy's"),
    pytest.param(ATTENTION, IDLE_ADAM, "query.weight moved", marks=pytest.mark.slow),
    pytest.param(ATTENTION, WRONG_SCALE, "loss equals NumPy's", marks=pytest.mark.slow),
    (GPT, UNTRAINED + SEES_ALL, "no character sees a later one"),
    pytest.param(SMALL, NOTHING_REMOVED, "removed channels are gone", marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder", [pytest.param(f, marks=pytest.mark.exhaustive) if f == REAL else f for f in FOLDERS]
)
def test_all_gates_hold(folder: str, replay: Replay) -> None:
    result = replay(folder, "", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["passed"] and all(gate["passed"] for gate in report["gates"])
    assert "usually about" in result.stderr.splitlines()[1]


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "fault", "gate"), FAULTS)
def test_a_broken_mechanism_fails_its_gate(
    folder: str, fault: str, gate: str, replay: Replay
) -> None:
    result = replay(folder, fault, "--backend", "numpy")
    assert result.returncode == 1
    assert re.search(rf"^gate FAILED  {re.escape(gate)}:", result.stdout, re.MULTILINE), (
        result.stdout + result.stderr
    )


@pytest.mark.slow
def test_untrained_an_unbroken_network_sees_nothing_ahead(replay: Replay) -> None:
    said = replay(GPT, UNTRAINED, "--backend", "numpy").stdout
    assert re.search("^gate holds   no character sees a later one:", said, re.MULTILINE), said


@pytest.mark.slow
def test_the_demo_notices_backends_that_disagree(replay: Replay) -> None:
    fault = ONE_EPOCH + TURNED_CONVOLUTION
    result = replay(CNN, fault, "--backend", "numpy", name="demo.py")
    assert result.returncode == 1
    assert "gate FAILED  losses agree on naive and numpy" in result.stdout


@pytest.mark.parametrize("name", ["main.py", "custom_pass.py", "export_models.py"])
def test_asked_for_help_it_says_what_it_takes_and_does_nothing(name: str, replay: Replay) -> None:
    result = replay(REAL, "", "--help", name=name)
    assert result.returncode == 0 and result.stdout.startswith(f"usage: {name} [-h]")
    assert name != "main.py" or "--full" in result.stdout
    assert replay(REAL, "", "--unknown", name=name).returncode == 2


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_readme_tells_the_history_with_its_source(folder: str) -> None:
    text = (ROOT / "milestones" / folder / "README.md").read_text(encoding="utf-8")
    assert "Source:" in text
    assert f"tito milestone run {folder[:2]}" in text
