from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tinytorch.fx

FOLDER = Path(tinytorch.fx.__file__).parent


@pytest.mark.parametrize("name", sorted(tinytorch.fx.HOME))
def test_public_names(name: str):
    assert getattr(tinytorch.fx, name).__name__ == name
    assert name in dir(tinytorch.fx)
    # the module would be in the way of the function: both are attributes of the package
    assert not (FOLDER / f"{name}.py").exists()


def test_all_names_are_imported_by_a_star():
    names: dict[str, object] = {}
    exec("from tinytorch.fx import *", names)
    assert names.keys() >= tinytorch.fx.HOME.keys()


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match=r"has no 'nothing'; it has .*capture_step"):
        tinytorch.fx.nothing  # noqa: B018


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], check=False, text=True, capture_output=True)


def test_without_torch_it_says_how_to_install_it():
    found = run("import sys; sys.modules['torch'] = None; import tinytorch; import tinytorch.fx")
    assert found.returncode == 1
    assert "tinytorch.fx needs torch, which is not installed: pip install 'tinytorch[fx]'" in (
        found.stderr
    )


@pytest.mark.slow
def test_without_transformers_a_model_says_how_to_install_it():
    code = "import sys; sys.modules['transformers'] = None; from tinytorch.fx import load_model; "
    found = run(f"{code} load_model('hf:gpt2')")
    assert "a model of hf: needs transformers, which is not installed" in found.stderr


def test_torch_is_loaded_on_first_use():
    assert run("import sys, tinytorch.fx; sys.exit('torch' in sys.modules)").returncode == 0
