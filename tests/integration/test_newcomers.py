"""What somebody sees who adds an op, a layer, an optimizer or a schedule and forgets the rest.

A plugin of pytest defines them before the tests are collected; each check that fails must say in a
sentence which line to add to which file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = """
from tinytorch import dtype_rules, nn, optim, shapes
from tinytorch.ops import _row, elementwise

@elementwise(dtype_rules.floating)
def cube(a):
    return a * a * a

_row("rolled", "a", "movement", shapes.same, dtype_rules.any_type)

def export(room, cls):
    setattr(room, cls.__name__, cls)
    room.__all__ = [*room.__all__, cls.__name__]

export(optim, type("Halving", (optim.Optimizer,), {}))
export(optim.lr_scheduler, type("Sawtooth", (optim.lr_scheduler.LRScheduler,), {}))
export(nn, type("Twice", (nn.Module,), {}))
"""
CHECKS = {
    "tests/test_gradients.py": "cube or rolled",
    "tests/backends/test_conformance.py": "cube or rolled",
    "tests/test_scalar.py": "cube",
    "tests/fx/convert/test_to_torch.py": "table_has_every_op or cube",
    "tests/onnx/test_exporter.py": "every_op_that_no_scalar or cube",
    "tests/optim/test_against_torch.py": "Halving",
    "tests/optim/test_schedules.py": "Sawtooth",
    "tests/nn/test_layers.py": "every_layer_is_in_a_table",
    "tests/graph/test_exported.py": "every_exported_class_has_a_line",
}
SENTENCES = [
    r"cube has no gradient: add the line gradient\(\"cube\", a=.*\) to tinytorch/gradients\.py",
    r"cube is compared with nothing: add its line to TORCH in tests/torch_ops\.py",
    r"rolled has no gradient: add the line gradient\(\"rolled\", a=.*\) to tinytorch/gradients\.py",
    r"'rolled' has no sample generator: add one to tinytorch/testing/op_samples\.py, below a line "
    r"@_samples\('rolled'\)",
    r"\['rolled'\] cannot be said in PyTorch: add .*TORCH_OPS, to tinytorch/fx/convert/torch_ops",
    r"\['rolled'\] cannot be said in ONNX: add a function .* to tinytorch/onnx/lowerings\.py",
    r"Halving is compared with nothing: add its options to OPTIONS in .*test_against_torch\.py",
    r"Sawtooth is compared with nothing: add a test in .*test_schedules\.py",
    r"Sawtooth is none of PyTorch's: take it out of __all__ in tinytorch/optim/lr_scheduler",
    r"add a row for \['Twice'\] to LAYERS, LOSSES or OF_SEVERAL of .*test_layers\.py",
    r"optim\.Halving is exported .*: add a line for it to OPTIMIZERS in tests/graph/exported\.py",
    r"Sawtooth is exported .*: add a line for it to SCHEDULES in tests/graph/exported\.py",
    r"nn\.Twice is exported .*: add a line for it to LAYERS in tests/graph/exported\.py",
]


@pytest.mark.slow
def test_every_failure_says_which_line_to_add_where(tmp_path: Path) -> None:
    (tmp_path / "newcomers.py").write_text(PLUGIN)
    search = os.pathsep.join([str(tmp_path), str(ROOT)])
    chosen = " or ".join(sorted({name for each in CHECKS.values() for name in each.split(" or ")}))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "newcomers", "-p", "no:cacheprovider", "-n", "0",
         "--tb=short", "-q", "-k", chosen, *CHECKS],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": search}, capture_output=True, text=True,
    )  # fmt: skip
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
    rolled = Op("rolled", "a", "movement", row._shape_rule, row._dtype_rule, row._flops)
    sentence = r"no kernel for rolled: write a method rolled\(a, ...\), or, for every backend, add "
    with pytest.raises(NotImplementedError, match=sentence + r".*tinytorch/backends/reference\.py"):
        find_backend("numpy").find_kernel(rolled)
