"""Python in the README and in docs/ runs as it is printed, block after block in one namespace.

What a page leaves to its reader (a kernel, a training step, a text) is in `GIVEN`.
"""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tinytorch
from tests.docs.pages import BLOCK
from tinytorch import backends
from tito.scripts import ROOT

PAGES = {path.stem: path for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]}
HERE = ("README", "author", "compression", "instructor", "student", "text")
ALONE = ("distributed", "pytorch")  # what they change stays changed until the process ends
GIVEN: dict[str, dict[int, str]] = {  # what is run before a block of a page, by its number
    "README": {
        1: "my_kernel = lambda a, b: a @ b",
        2: "loss = nn.functional.cross_entropy(model(x), tinytorch.randint(0, 10, (32,)))",
        4: """
def train_step(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss
y = tinytorch.randint(0, 10, (32,))
""",
        5: "import torch; my_model = model",
    },
    "author": {1: "from tito.lessons.mistake import Equivalent"},
    "compression": {
        0: """
import tinytorch
from tinytorch import nn
def made():
    return nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.Linear(32, 4))
model = made()
""",
        1: "train, model = id, made()",
        2: "x = tinytorch.ones(2, 32)",
        3: """
model, student, example = made(), made(), x
loader = [(x, tinytorch.tensor([0, 1]))]
""",
    },
    "distributed": {
        0: """
import os, socket
with socket.create_server(("127.0.0.1", 0)) as free:
    port = str(free.getsockname()[1])
os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
import tinytorch
from tinytorch import nn, optim
model, loss = nn.Linear(3, 2), nn.MSELoss()
optimizer = optim.SGD(model.parameters(), lr=0.1)
dataset = [(tinytorch.ones(3), tinytorch.ones(2))] * 40
"""
    },
    "instructor": {0: "from traitlets.config import Config; c = Config()"},
    "text": {0: "from pathlib import Path; text = Path(__file__).read_text('utf-8')"},
}
INSTEAD = {  # what this machine lacks, and what would take long
    "README": {'device="cuda"': 'device="cpu"', '"hf:bert-base")': '"hf:bert-base", small=True)'},
    "compression": {"epochs=10": "epochs=1"},
    "text": {"40, Sampling": "4, Sampling"},
}


def blocks(page: str) -> list[str]:
    """The blocks of Python of a page, each behind what it is given."""
    found = [
        text for kind, text in BLOCK.findall(PAGES[page].read_text("utf-8")) if kind == "python"
    ]
    for number, code in GIVEN.get(page, {}).items():
        if ">>>" not in found[number]:
            found[number] = f"{code}\n{found[number]}"
    for old, new in INSTEAD.get(page, {}).items():
        assert any(old in text for text in found), f"{page} has no {old}"
        found = [text.replace(old, new) for text in found]
    return found


@pytest.fixture
def _restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Files, the backend and registered backends are gone afterwards."""
    monkeypatch.chdir(tmp_path)
    before = tinytorch.get_backend()
    monkeypatch.setattr(backends, "_factories", dict(backends._factories))
    monkeypatch.setattr(backends, "_instances", dict(backends._instances))
    yield
    tinytorch.set_backend(before)


def test_every_page_with_python_is_run() -> None:
    assert sorted((*HERE, *ALONE)) == sorted(p for p in PAGES if blocks(p))


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("page", HERE)
@pytest.mark.usefixtures("_restored")
def test_blocks_of_a_page_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "page", "__file__": __file__}
    for number, text in enumerate(blocks(page)):
        if ">>>" in text:
            example = doctest.DocTestParser().get_doctest(text, namespace, page, None, number)
            runner = doctest.DocTestRunner()
            runner.run(example, clear_globs=False)
            assert not runner.failures, capsys.readouterr().out
        else:
            exec(compile(text, f"{PAGES[page].name}, block {number}", "exec"), namespace)


@pytest.mark.parametrize("page", ALONE)
def test_blocks_of_a_page_run_in_a_process_of_their_own(page: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks(page))],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
