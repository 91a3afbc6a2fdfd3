"""Backends from a user's file."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import tinytorch
from tinytorch import BackendError
from tinytorch.backends.load import load_backend

FILE = """
import helper_of_mine
from tinytorch.backends.numpy import NumpyBackend

class Mine(NumpyBackend):
    def matmul(self, a, b):
        return helper_of_mine.product(a, b)

    def conv2d(self, x, w, *, stride=1, padding=0):
        assert (stride, padding) == (1, 2)
        raise RuntimeError("served")

thing = 3
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    (tmp_path / "helper_of_mine.py").write_text("def product(a, b):\n    return a @ b * 2\n")
    path = tmp_path / "own.py"
    path.write_text(FILE)
    return path


def test_a_class_of_a_file_runs_ops_and_sees_the_files_beside_it(file: Path) -> None:
    with tinytorch.using_backend(load_backend(f"{file}:Mine")):
        product = tinytorch.ones(2, 3) @ tinytorch.ones(3, 2)
        with pytest.raises(RuntimeError, match="served"):  # its own signature, adapted
            tinytorch.nn.functional.conv2d(
                tinytorch.ones(1, 1, 3, 3), tinytorch.ones(1, 1, 3, 3), padding=2
            )
    np.testing.assert_array_equal(product.numpy(), np.full((2, 2), 6))


def test_any_other_name_is_that_of_a_registered_backend() -> None:
    assert type(load_backend("naive")).__name__ == "NaiveBackend"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nunpy", "there is no backend 'nunpy'"),
        ("nosuch.py:Mine", "there is no file nosuch.py"),
        ("{}:Other", "own.py has no class 'Other'; it has NumpyBackend, Mine"),
        ("{}:thing", "is no class derived from ComputeBackend"),
    ],
)
def test_what_is_no_backend_is_named(file: Path, name: str, says: str) -> None:
    with pytest.raises(BackendError, match=says):
        load_backend(name.format(file))
