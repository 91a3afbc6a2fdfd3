"""`tito module complete`: the student's code becomes part of their package, or stays out."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.tito.workspace.conftest import (
    COUNT,
    FIRST_ANSWERS,
    SECOND_ANSWERS,
    SIZE,
    Student,
)


def python(student: Student, code: str) -> str:
    """What code prints in a fresh interpreter that was started in the workspace."""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=student.root, capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


def test_complete_changes_nothing_while_a_test_fails(student: Student) -> None:
    before = student.package_file("functions/dims.py")
    student.write("01_first.ipynb", {"size": SIZE})
    result = student.tito("module", "complete", "first")
    assert result.exit_code == 1
    assert "nothing was changed" in result.output
    assert student.package_file("functions/dims.py") == before


def test_complete_puts_the_code_into_the_package(student: Student) -> None:
    student.write("01_first.ipynb", FIRST_ANSWERS)
    result = student.tito("module", "complete", "first")
    assert result.exit_code == 0
    assert "all 6 points; your code is now in tinytorch/" in result.output
    assert "tinytorch/functions/dims.py::infer_size  9 lines, called" in result.output
    assert "holds: reshape works out a size" in result.output
    assert "it now powers: dimensions that count from the end" in result.output
    assert "yours: 2 of the course's 4 definitions (50%)" in result.output
    assert COUNT.strip() in student.package_file("functions/dims.py")
    assert python(student, "import tinytorch; print(tinytorch.zeros(4, 6).reshape(8, -1).shape)")


def test_what_only_ipython_understands_is_no_error(student: Student) -> None:
    """In a notebook it runs, and for a course's grade as well."""
    answers = {"count": f"%%time{COUNT}%timeit normalize_dim(-1, 3)\n", "size": f"{SIZE}!ls\n"}
    student.complete("first", answers)
    assert COUNT.strip() in student.package_file("functions/dims.py")


@pytest.mark.slow
def test_methods_and_gradient_lines(student: Student) -> None:
    student.complete("second", SECOND_ANSWERS)
    assert 'gradient("mul", a=lambda g, b: b * g' in student.package_file("gradients.py")
    linear = student.package_file("nn/linear.py")
    assert "return x @ self.weight.T if self.bias is None" in linear
    assert "class Linear(Module):" in linear


@pytest.mark.slow
def test_the_package_shadows_the_installed_one(student: Student) -> None:
    where = python(student, "import tinytorch; print(tinytorch.__file__)")
    assert where == str(student.root / "tinytorch/__init__.py")


@pytest.mark.slow
def test_stale_byte_code_is_never_run(student: Student) -> None:
    """Of the same size within the same second, where Python would not look at the source."""
    code = "import tinytorch.functions.dims as d; print(d.normalize_dim.__defaults__)"
    first = COUNT.replace('"dim"', '"one"')
    student.complete("first", {"count": first, "size": SIZE})
    path = student.root / "tinytorch/functions/dims.py"
    os.utime(path, (1_000_000_000, 1_000_000_000))
    assert python(student, code) == "('one',)"
    student.complete("first", {"count": COUNT.replace('"dim"', '"two"'), "size": SIZE})
    os.utime(path, (1_000_000_000, 1_000_000_000))
    assert python(student, code) == "('two',)"


@pytest.mark.slow
def test_code_that_passes_its_tests_and_breaks_the_framework_stays_out(student: Student) -> None:
    broken = COUNT.replace(
        "return dim % max(ndim, 1)", "return dim % max(ndim, 1) if ndim == 3 else 0"
    )
    before = student.package_file("functions/dims.py")
    student.write("01_first.ipynb", {"count": broken, "size": SIZE})
    result = student.tito("module", "complete", "first")
    assert result.exit_code == 1
    assert "the framework does not work with it" in result.output
    assert "does not hold: a sum over the last dimension, of the module first" in result.output
    assert "    AssertionError" in result.output
    assert student.package_file("functions/dims.py") == before
    assert json.loads(student.tito("status", "--json").stdout)["definitions"] == 0


@pytest.mark.slow
def test_code_that_cannot_be_imported_stays_out(student: Student) -> None:
    code = "import tinytorch\nSIZES = tinytorch.zeros(2).shape\n" + COUNT.replace(
        "return dim", "assert SIZES\n    return dim"
    )
    student.write("01_first.ipynb", {"count": code, "size": SIZE})
    result = student.tito("module", "complete", "first")
    assert result.exit_code == 1
    assert "with your code `import tinytorch` fails" in result.output


@pytest.mark.slow
def test_a_name_of_another_cell_is_named(student: Student) -> None:
    path = student.file("01_first.ipynb")
    notebook = json.loads(path.read_text())
    own = {"cell_type": "code", "id": "own", "metadata": {}, "outputs": [], "execution_count": None}
    notebook["cells"].insert(2, {**own, "source": "def modulo(a, b):\n    return a % b\n"})
    path.write_text(json.dumps(notebook))
    answers = {
        "count": COUNT.replace("dim % max(ndim, 1)", "modulo(dim, max(ndim, 1))"),
        "size": SIZE,
    }
    student.write("01_first.ipynb", answers)
    assert student.tito("module", "test", "first").exit_code == 0
    result = student.tito("module", "complete", "first")
    assert result.exit_code == 1
    assert "normalize_dim uses modulo" in result.output


@pytest.mark.slow
def test_a_completed_module_can_be_completed_anew(student: Student) -> None:
    student.complete("first", FIRST_ANSWERS)
    student.complete("first", {"count": COUNT.replace("out of range", "not there"), "size": SIZE})
    assert "not there" in student.package_file("functions/dims.py")
    kept = list((student.root / ".tito/backups").rglob("first.json"))
    assert len(kept) == 1


@pytest.mark.slow
def test_two_modules_stand_beside_each_other(student: Student) -> None:
    student.complete("second", SECOND_ANSWERS)
    student.complete("first", FIRST_ANSWERS)
    assert COUNT.strip() in student.package_file("functions/dims.py")
    assert "b * g" in student.package_file("gradients.py")
    status = json.loads(student.tito("status", "--json").stdout)
    assert [m["status"] for m in status["modules"]] == ["completed", "completed"]
    assert (status["definitions"], status["of_definitions"]) == (4, 4)
    assert 0 < status["lines"] < status["of_lines"]


@pytest.mark.slow
def test_diff_only_after_completion(student: Student) -> None:
    student.write("01_first.ipynb", FIRST_ANSWERS)
    result = student.tito("module", "diff", "first")
    assert result.exit_code == 1
    assert "tito module complete 01" in result.output
    assert "extent" not in result.output
    student.complete("first", FIRST_ANSWERS)
    output = student.tito("module", "diff", "first", "count").output
    assert "tinytorch/functions/dims.py::normalize_dim" in output
    yours, ours = "return dim % max(ndim, 1)", "return dim % extent"
    assert yours in output and ours in output
    assert '"""' not in output  # the docstring is not what one compares
    assert all(line.index(ours) > 50 for line in output.splitlines() if ours in line)


@pytest.mark.slow
def test_a_kernel_started_in_the_workspace_imports_the_students_package(student: Student) -> None:
    """As JupyterLab and VS Code start it: in the folder of the notebook."""
    from jupyter_client.manager import run_kernel

    with run_kernel(kernel_name="python3", cwd=str(student.root)) as client:
        printed: list[str] = []
        client.execute_interactive(
            "import tinytorch; print(tinytorch.__file__)",
            timeout=600,
            output_hook=lambda message: printed.append(message["content"].get("text", "")),
        )
    assert "".join(printed).strip() == str(student.root / "tinytorch/__init__.py")
