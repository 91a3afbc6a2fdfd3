from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from click.testing import Result
from typer.testing import CliRunner

import tinytorch
from tests.system_tools import require_tool
from tito import fx, scripts
from tito.cli import app
from tito.scripts import ROOT

runner = CliRunner()
Tito = Callable[..., Result]

FACTORY = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x, y):
        scores = self.out(torch.relu(self.hidden(x)))
        return {"loss": nn.functional.cross_entropy(scores, y), "scores": scores}

def make(batch):
    torch.manual_seed(0)
    return Net(), {"x": torch.randn(batch, 6), "y": torch.zeros(batch, dtype=torch.int64)}
"""


@pytest.fixture
def factory(tmp_path: Path) -> str:
    file = tmp_path / "net.py"
    file.write_text(FACTORY)
    return f"{file}:make"


@pytest.fixture
def tito(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tito]:
    """A command of `tito fx` whose child works in this process: importing torch takes seconds."""
    from tito import fx_child
    from tito.child import serve

    def run_here(path: Path, arguments: list[str], **options: Any) -> tuple[int, str]:
        assert path == fx.CHILD and options == {"package": ROOT}
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as the child does
            return serve(fx_child.COMMANDS), ""

    monkeypatch.setattr(scripts, "run_script", run_here)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the user's folders come first
    before = {*sys.modules}
    threads = torch.get_num_threads(), tinytorch.get_num_threads()
    yield lambda *arguments: runner.invoke(app, ["fx", *arguments])
    torch.set_num_threads(threads[0])
    tinytorch.set_num_threads(threads[1])
    torch.compiler.reset()
    for name in ("net", "plain", "own"):
        if name not in before:
            sys.modules.pop(name, None)


@pytest.mark.slow
def test_show_prints_the_whole_training_step(factory: str) -> None:
    """With all processes that a user starts."""
    command = [sys.executable, "-m", "tito", "fx", "show", factory, "--kind", "step"]
    shown = subprocess.run([*command, "--optimizer", "sgd"], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert " : float32[2, 6] = placeholder " in shown.stdout
    assert "# backward" in shown.stdout and "# optimizer" in shown.stdout


@pytest.mark.slow(seconds=90)
def test_every_command_works_on_a_users_own_model(tito: Tito, factory: str, tmp_path: Path) -> None:
    require_tool("dot")
    nodes = json.loads(tito("trace", factory, "--json").stdout)
    assert {"placeholder", "call_function", "output"} <= {node["op"] for node in nodes}
    drawn = tito("draw", factory, str(tmp_path / "net.svg"), "--kind", "joint")
    assert drawn.exit_code == 0, drawn.stderr
    assert "<svg" in (tmp_path / "net.svg").read_text()
    found = json.loads(tito("diagnose", factory, "--json").stdout)["diagnosis"]
    assert {"export", "make_fx"} <= {verdict["tracer"] for verdict in found["verdicts"]}
    table = tito("show", factory, "--table").stdout.splitlines()
    assert table[0].split() == ["op", "name", "target", "args", "kwargs"]
    assert len(table) == len(nodes) + 1
    report = json.loads(tito("optimize", factory, "--json").stdout)
    assert report["report"]["passes"]
    page = tmp_path / "profile.html"
    profiled = tito("profile", factory, "--optimizer", "sgd", "--report", str(page),
                    "--memory-limit", "3MiB")  # fmt: skip
    assert profiled.exit_code == 0, profiled.stderr
    assert "<svg" in page.read_text()
    assert '"limit":3145728' in page.read_text()
    saved = tito("checkpoint", factory, "--budget", "1.0")
    assert saved.exit_code == 0, saved.stderr
    swapped = tito("checkpoint", factory, "--budget", "1.0", "--swap", "16", "--json",
                   "--picture", str(tmp_path / "m.svg"), "--memory-limit", "1MiB")  # fmt: skip
    assert swapped.exit_code == 0, swapped.stderr
    assert json.loads(swapped.stdout)["bandwidth"] == 16e9
    assert "limit, 1 MiB" in (tmp_path / "m.svg").read_text()
    speed = json.loads(tito("compile", factory, "--json").stdout)
    assert speed["ratio"] > 0 and "compiled parts" in speed["report"]


def test_the_zoo_hands_on_what_it_is_asked(
    tito: Tito, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tinytorch.fx.zoo import runner

    def one(name: str, wanted: list[str], limits: Any) -> list[tuple[str, object]]:
        assert (limits.stage_seconds, limits.memory_bytes) == (5.0, 2**30)
        return [("model", {"class": "A"}), ("forward", {"verdict": "WRONG", "seconds": 1.0})]

    monkeypatch.setattr(runner, "in_child", one)
    out, page = tmp_path / "zoo.jsonl", tmp_path / "zoo.md"
    options = ["zoo", "--only", "bert", "--out", str(out), "--stages", "forward"]
    assert tito(*options, "--list").stdout.split() == ["transformers/bert"]
    assert not out.exists()
    ran = tito(*options, "--stage-seconds", "5", "--memory", "1", "--jobs", "2")
    assert ran.exit_code == 1 and "transformers/bert forward WRONG" in ran.stdout
    looked = tito(*options, "--no-run", "--page", str(page), "--note", "By hand.", "--json")
    assert json.loads(looked.stdout)["stages"] == {"forward": {"WRONG": 1}}
    assert "Limits: 60 s" in page.read_text() and "By hand." in page.read_text()
    assert "there is no stage 'fly'" in tito("zoo", "--stages", "fly").stderr


def test_wrong_requests_are_refused_at_once(tmp_path: Path) -> None:
    for arguments, message in (
        (["trace", "hf:gpt3"], "there is no model 'hf:gpt3'. Did you mean 'hf:gpt2'?"),
        (["trace", "nowhere.py:make"], "there is no file nowhere.py"),
        (["trace", "hf:gpt2", "--kind", "steps"], "Did you mean 'step'?"),
        (["draw", "hf:gpt2", "net.gif"], "There are: .svg, .png, .mmd, .dot"),
        (["profile", "hf:gpt2", "--optimizer", "adan"], "Did you mean"),
        (["profile", "hf:gpt2", "--report", "x.pdf"], "There are: .html, .csv"),
        (["report", "hf:gpt2", "x.pdf"], "There are: .html"),
        (["report", "hf:gpt2", "nowhere/x.html"], "there is no folder nowhere"),
        (["draw", "hf:gpt2", "nowhere/x.svg"], "there is no folder nowhere"),
        (["profile", "hf:gpt2", "--memory-limit", "1MiB"], "--memory-limit is a line in a drawing"),
        (["profile", "hf:gpt2", "--loss", "mean"], "There are: model, mean-square"),
        (["checkpoint", "hf:gpt2", "--budget", "1", "--picture", "a.png"], "give --swap"),
        (["checkpoint", "hf:gpt2", "--budget", "1", "--swap", "0"], "GB/s is above 0"),
        (
            ["checkpoint", "hf:gpt2", "--budget", "1", "--swap", "9", "--picture", "a.gif"],
            ".png, .svg",
        ),
    ):
        result = runner.invoke(app, ["fx", *arguments])
        assert result.exit_code == 2
        assert message in " ".join(result.output.split())


@pytest.mark.slow
def test_a_wrong_budget_is_said_in_a_sentence(tito: Tito, factory: str) -> None:
    for budget, said in (("a lot", "'a lot' is no budget"), ("7.0", "fraction")):
        result = tito("checkpoint", factory, "--budget", budget)
        assert result.exit_code == 1
        assert said in result.stderr and "Traceback" not in result.stderr
    result = tito("checkpoint", factory, "--budget", "1.0", "--swap", "1", "--memory-limit", "0.5")
    assert "--memory-limit 0.5: a limit is in bytes" in result.stderr


@pytest.mark.slow
def test_an_unknown_backend_is_said_in_a_sentence(tito: Tito, factory: str) -> None:
    result = tito("compile", factory, "--backend", "foo")
    assert result.exit_code == 1 and "Traceback" not in result.stderr
    assert "there is no backend of torch.compile 'foo'" in result.stderr
    assert "tinytorch" in result.stderr


WITHOUT_LOSS = """
from torch import nn, ones

def make(batch):
    return nn.Linear(3, 2), (ones(batch, 3),)
"""


@pytest.mark.slow
def test_a_model_without_a_loss_can_be_profiled_with_one(tito: Tito, tmp_path: Path) -> None:
    file = tmp_path / "plain.py"
    file.write_text(WITHOUT_LOSS)
    refused = tito("profile", f"{file}:make", "--optimizer", "sgd")
    assert refused.exit_code == 1 and "--loss mean-square" in refused.stderr
    profiled = tito("profile", f"{file}:make", "--optimizer", "sgd", "--loss", "mean-square",
                    "--json")  # fmt: skip
    assert profiled.exit_code == 0, profiled.stderr
    assert json.loads(profiled.stdout)
    elsewhere = tito("profile", f"{file}:make", "--device", "cuda:99")
    assert elsewhere.exit_code == 1 and "'cuda:99' is not on this machine" in elsewhere.stderr


OWN_PASS = """
from tinytorch.graph.passes import OptimizationPass

class Nothing(OptimizationPass):
    name = "nothing"

    def analyze(self, graph):
        return None

    def transform(self, graph, plan):
        return False

    def verify(self, before, after):
        return None

NoPass = 3
"""


@pytest.mark.slow
def test_a_pass_of_the_users_own_file_runs(tito: Tito, factory: str, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN_PASS)
    found = tito("optimize", factory, "--passes", f"cse,{file}:Nothing", "--json", "--verbose")
    assert found.exit_code == 0, found.stderr
    assert "nothing" in {p["name"] for p in json.loads(found.stdout)["report"]["passes"]}
    wrong = tito("optimize", factory, "--passes", f"{file}:NoPass")
    assert wrong.exit_code == 1 and "NoPass of" in wrong.stderr and "is no pass" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_graph_and_fx_have_one_set_of_verbs_and_options() -> None:
    groups = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    graph, fx = groups["graph"].commands, groups["fx"].commands
    common = {"show", "draw", "optimize", "profile"}
    assert graph.keys() & fx.keys() == common and fx["trace"].hidden
    meanings: dict[str, set[Any]] = {}
    for command in (*graph.values(), *fx.values()):
        assert command.hidden or "Example" in command.epilog
        for option in command.params:
            for name in option.opts:
                if name.startswith("--") and name not in ("--backend", "--report"):
                    meanings.setdefault(name, set()).add(option.help)
    # of torch.compile there are other backends, and of PyTorch's profiles more kinds of reports
    assert [name for name, said in meanings.items() if len(said) > 1] == []
    shared = {
        "show": {"--json", "--verbose", "--table"},
        "draw": {"--json", "--verbose"},
        "optimize": {"--json", "--verbose", "--passes", "--rounds", "--diff"},
        "profile": {"--json", "--verbose", "--limit", "--report"},
    }
    for verb in common:
        for command in (graph[verb], fx[verb]):
            assert shared[verb] <= {name for option in command.params for name in option.opts}


def test_verbose_prints_what_the_tracer_wrote(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tinytorch.fx import CaptureError
    from tito.child import serve

    def refuse(request: Any) -> Any:
        error = CaptureError("cannot be captured")
        error.output = "torch: the tracer's own words"
        raise error

    for verbose in (True, False):
        request = {"command": "show", "json": False, "verbose": verbose}
        monkeypatch.setattr(sys, "argv", ["child", json.dumps(request)])
        assert serve({"show": refuse}) == 1
        written = capsys.readouterr().err
        assert "error: cannot be captured" in written
        assert ("the tracer's own words" in written) == verbose
