"""What somebody sees who adds an op, a layer, an optimizer or a schedule.

A plugin of pytest defines them before the tests are collected. An op whose lines are in the files
that an op has passes every test that walks the table. Where something is missing, each check that
fails says in a sentence which line to add to which file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WHOLE = """
from tests.user_ops import reversed_view, rolled, tripled
from tinytorch import dtype_rules
from tinytorch.gradients import gradient
from tinytorch.ops import elementwise

@elementwise(dtype_rules.floating)            # ops.py
def squeezed(a):
    return a / (1 + abs(a))

gradient("squeezed", a=lambda g, a: g / ((a.abs() + 1) * (a.abs() + 1)))      # gradients.py

# and backends/reference.py or decompositions.py, testing/op_samples.py
others = [rolled(), reversed_view(), tripled()]
for each in others:
    each.__enter__()
"""
ADDED = "rolled or squeezed or reversed_view or tripled"
OPS_TESTS = {
    "tests/test_gradients.py": ADDED,
    "tests/test_scalar.py": "squeezed",
    "tests/test_unrolled.py": ADDED,
    "tests/backends/test_conformance.py": ADDED,
    "tests/graph/compiler/native/test_build.py": "ops_conform or lacks",
    "tests/fx/convert/test_to_torch.py": "table or squeezed",
    "tests/onnx/test_exporter.py": "table or squeezed",
}
PLUGIN = """
from tinytorch import dtype_rules, nn, optim, shapes
from tinytorch.gradients import gradient
from tinytorch.ops import _row, elementwise
from tinytorch.testing.source import Sample, samples

@elementwise(dtype_rules.floating)
def cube(a):
    return a * a * a

_row("rolled", "a", "movement", shapes.same, dtype_rules.any_type)
for name, kind in (("turned", "movement"), ("tripled", "fused")):  # with samples and a gradient
    _row(name, "a", kind, shapes.same, dtype_rules.only_floating)
    gradient(name, a=lambda g, a: g)
    samples(name)(lambda s: Sample((s.array(s.shape()),), {}))

def export(room, cls):
    setattr(room, cls.__name__, cls)
    room.__all__ = [*room.__all__, cls.__name__]

export(optim, type("Halving", (optim.Optimizer,), {}))
export(optim.lr_scheduler, type("Sawtooth", (optim.lr_scheduler.LRScheduler,), {}))
export(nn, type("Twice", (nn.Module,), {}))
"""
CHECKS = {
    "tests/test_gradients.py": "cube or rolled",
    "tests/backends/test_conformance.py": "cube or rolled or turned or tripled",
    "tests/test_scalar.py": "cube",
    "tests/optim/test_against_torch.py": "Halving",
    "tests/optim/test_schedules.py": "Sawtooth",
    "tests/nn/test_layers.py": "every_layer_is_in_a_table",
    "tests/graph/test_exported.py": "every_exported_class_has_a_line",
}
SENTENCES = [
    r"cube has no gradient: add the line gradient\(\"cube\", a=.*\) to tinytorch/gradients\.py",
    r"rolled has no gradient: add the line gradient\(\"rolled\", a=.*\) to tinytorch/gradients\.py",
    r"'rolled' has no sample generator: add one to tinytorch/testing/op_samples\.py, below a line "
    r"@samples\('rolled'\)",
    r"no kernel for turned: .* add its NumPy kernel to _FUNCTIONS in .*/backends/reference\.py",
    r"no kernel for tripled: .* say what it is made of in tinytorch/decompositions\.py, below a",
    r"Halving is compared with nothing: add its options to OPTIONS in .*test_against_torch\.py",
    r"Sawtooth is compared with nothing: add a test in .*test_schedules\.py",
    r"Sawtooth is none of PyTorch's: take it out of __all__ in tinytorch/optim/lr_scheduler",
    r"add a row for \['Twice'\] to LAYERS, LOSSES or OF_SEVERAL of .*test_layers\.py",
    r"optim\.Halving is exported .*: add a line for it to OPTIMIZERS in tests/graph/exported\.py",
    r"Sawtooth is exported .*: add a line for it to SCHEDULES in tests/graph/exported\.py",
    r"nn\.Twice is exported .*: add a line for it to LAYERS in tests/graph/exported\.py",
]


def run_tests(folder: Path, plugin: str, chosen: dict[str, str]) -> Any:
    """The chosen tests of each file, in a process of their own, with what the plugin adds."""
    (folder / "newcomers.py").write_text(plugin)
    search = os.pathsep.join([str(folder), str(ROOT)])
    names = " or ".join(sorted({name for each in chosen.values() for name in each.split(" or ")}))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "newcomers", "-p", "no:cacheprovider", "-n", "0",
         "--tb=short", "-q", "-k", names, *chosen],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": search}, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_an_op_needs_lines_in_four_files_and_no_more(tmp_path: Path) -> None:
    run = run_tests(tmp_path, WHOLE, OPS_TESTS)
    assert run.returncode == 0, run.stdout[-9000:] + run.stderr[-2000:]
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed and int(passed[1]) > 30, run.stdout[-2000:]


@pytest.mark.slow
def test_every_failure_says_which_line_to_add_where(tmp_path: Path) -> None:
    run = run_tests(tmp_path, PLUGIN, CHECKS)
    said = [line.removeprefix("E").strip() for line in run.stdout.splitlines() if line[:1] == "E"]
    said += [line for line in run.stdout.splitlines() if line.startswith("FAILED")]
    heads = [line for line in said if re.match(r"(\w*Error|Failed): ", line)]
    for sentence in SENTENCES:
        assert any(re.search(sentence, line) for line in heads), (
            f"{sentence}\n" + run.stdout[-9000:]
        )
    for line in heads:  # and nothing fails without such a sentence
        assert any(re.search(sentence, line) for sentence in SENTENCES), line


def test_an_op_without_a_kernel_says_where_one_goes() -> None:
    from tinytorch.backends import find_backend
    from tinytorch.op import OPS, Op

    row = OPS["detach"]
    ways = {"movement": r"add .*tinytorch/backends/reference\.py",
            "fused": r"say what it is made of in tinytorch/decompositions\.py"}  # fmt: skip
    for kind, way in ways.items():
        rolled = Op("rolled", "a", kind, row._shape_rule, row._dtype_rule, row._flops)
        sentence = r"no kernel for rolled: write a method rolled\(a, ...\), or, for every backend, "
        with pytest.raises(NotImplementedError, match=sentence + way):
            find_backend("numpy").find_kernel(rolled)
