"""Every public name of the installed PyTorch is there, or is answered with what to write."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import subprocess
import sys
import warnings
from types import ModuleType

import pytest
import torch

import tinytorch
from tinytorch import nn
from tinytorch.absent import ForeignName, foreign_names
from tinytorch.compat.answers import explain, keyword_sentence, sentence_for, table

OWNERS = [
    "torch",
    "torch.nn",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.nn.utils",
    "torch.optim",
    "torch.optim.lr_scheduler",
    "torch.utils.data",
    "torch.autograd",
    "torch.func",
    "torch.distributions",
    "torch.linalg",
    "torch.fft",
    "torch.special",
]
CLASSES = {
    "torch.Tensor": (torch.Tensor, lambda: tinytorch.zeros(1, 1)),
    "torch.nn.Module": (nn.Module and torch.nn.Module, nn.Module),
}


@functools.cache
def _names() -> dict[str, list[str]]:
    """The names of PyTorch's modules and classes in a process where no package has added any."""
    code = """
import importlib, json, sys
import torch
owners = [*map(importlib.import_module, sys.argv[1:]), torch.Tensor, torch.nn.Module]
print(json.dumps([dir(owner) for owner in owners]))
"""
    command = [sys.executable, "-W", "ignore", "-c", code, *OWNERS]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(zip([*OWNERS, *CLASSES], json.loads(found), strict=True))


def _public(module: ModuleType) -> list[str]:
    """Names of PyTorch's own, without what it imports from Python's library."""
    names = []
    for name in _names()[module.__name__]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = getattr(module, name)
        home = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", "torch")
        if name[0] != "_" and str(home or "torch").split(".")[0] in ("torch", "builtins"):
            names.append(name)
    return names


def _unanswered(owner: str, ours: object, names: list[str]) -> list[str]:
    return [name for name in names if not hasattr(ours, name) and not sentence_for(owner, name)]


@pytest.mark.slow
@pytest.mark.parametrize("owner", OWNERS)
def test_each_name_of_a_module_is_there_or_answered(owner):
    theirs = importlib.import_module(owner)
    path = owner.replace("torch", "tinytorch", 1)
    try:
        ours: object = importlib.import_module(path)
    except ImportError:
        ours = object()
    missing = _unanswered(owner, ours, _public(theirs))
    assert not missing, f"{owner} has names that answers.txt does not know: {' '.join(missing)}"


@pytest.mark.parametrize("owner", CLASSES)
def test_each_method_is_there_or_answered(owner):
    _, make = CLASSES[owner]
    missing = _unanswered(owner, make(), [n for n in _names()[owner] if n[0] != "_"])
    assert not missing, f"{owner} has names that answers.txt does not know: {' '.join(missing)}"


@pytest.mark.parametrize("owner", CLASSES)
def test_a_class_knows_which_names_are_foreign(owner):
    instance = CLASSES[owner][1]()
    missing = [n for n in _names()[owner] if n[0] != "_" and n not in object.__dir__(instance)]
    assert not missing, f"absent.txt lacks {' '.join(missing)}"
    superfluous = [n for n in foreign_names()[owner] if not isinstance(
        inspect.getattr_static(instance, n), ForeignName)]  # fmt: skip
    assert not superfluous, f"{owner}: absent.txt has {superfluous}, which is defined"


def test_foreign_names_are_not_offered_and_cost_nothing_on_the_way_to_others():
    x = tinytorch.ones(1)
    assert not x.is_cuda and not hasattr(x, "svd") and not hasattr(tinytorch.Tensor, "is_cuda")
    assert "svd" not in dir(x) and "numpy" in dir(x)
    for cls in (tinytorch.Tensor, nn.Module):  # either hook takes the interpreter's fast path away
        assert not hasattr(cls, "__getattr__")
        assert cls.__getattribute__ is object.__getattribute__


def test_the_answer_is_what_the_error_says():
    with pytest.raises(AttributeError, match=r"'Tensor' object has no attribute 'svd': .*numpy"):
        tinytorch.ones(2, 2).svd()
    with pytest.raises(AttributeError, match=r"has no attribute 'Conv3d': three-dim"):
        nn.Conv3d(1, 1, 1)
    with pytest.raises(AttributeError, match=r"x\.squeeze\("):
        tinytorch.ones(1, 2).squeeze_()
    assert sentence_for("torch", "no_such_name_at_all") is None


def test_a_sentence_is_one_line_without_a_full_stop():
    for owner, entries in table().items():
        for name, sentence in entries:
            assert sentence and not sentence.endswith("."), (owner, name)


def test_keywords_are_explained():
    assert "reduction" in keyword_sentence("f() got an unexpected keyword argument 'size_average'")
    assert keyword_sentence("f() got an unexpected keyword argument 'no_such'") is None
    assert keyword_sentence("f() missing 1 required positional argument: 'x'") is None
    error = TypeError("Adam.__init__() got an unexpected keyword argument 'capturable'")
    explain(error)
    explain(error)
    assert error.__notes__ == ["TinyTorch: it chooses among PyTorch's kernels; leave it out"]


def test_a_name_itself_counts_before_a_pattern():
    assert "NumPy function" in (sentence_for("torch", "quantile") or "")
    assert "no quantized dtypes" in (sentence_for("torch", "quantize_per_tensor") or "")
