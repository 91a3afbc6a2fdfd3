"""Layers and functions have the arguments of PyTorch's, in its order."""

from __future__ import annotations

import inspect
import re

import torch
import torch.nn.functional as TF

import tinytorch.nn.functional as F
from tinytorch import nn

# Functions that have options of PyTorch's later positions by keyword only
KEYWORDS_ONLY = {"cross_entropy", "nll_loss"}


# Arguments of PyTorch's that are deprecated, of its own use, or of code that it compiles
LEGACY = {"size_average", "reduce", "_stacklevel", "args", "kwargs", "_weight", "_freeze", "out",
          "min_value", "max_value"}  # fmt: skip


def test_signatures_are_pytorchs():
    """The same names in the same order; what PyTorch calls deprecated may be left out."""
    legacy, different = LEGACY, []
    for name in nn.__all__:
        ours, theirs = getattr(nn, name), getattr(torch.nn, name, None)
        if isinstance(ours, type) and issubclass(ours, nn.Module) and theirs is not None:
            mine, wanted = (list(inspect.signature(c).parameters) for c in (ours, theirs))
            wanted = [n for n in wanted if n not in legacy]
            if mine[: len(wanted)] != wanted and name not in ("Sequential", "Module"):
                different.append((name, mine, wanted))
    assert different == []


def test_functions_have_pytorchs_arguments():
    legacy, different = LEGACY, []
    for name in F.__all__:
        theirs = getattr(TF, name)
        try:
            wanted = [n for n in inspect.signature(theirs).parameters if n not in legacy]
        except ValueError:  # a builtin
            continue
        if wanted in (["args", "kwargs"], []):
            continue
        mine = list(inspect.signature(getattr(F, name)).parameters)
        if mine[1 : len(wanted)] != wanted[1:] and name not in KEYWORDS_ONLY:
            different.append((name, mine, wanted))
    assert different == []


#: Whose `forward` is written with the name that the lesson's formulas have.
OF_LESSONS = {"Linear", "LazyLinear", "Flatten", "Sequential"}


def test_layers_are_called_with_pytorchs_arguments():
    """So layer(input=x) works; what has no `forward` of its own takes anything."""
    different = []
    for name in set(nn.__all__) - OF_LESSONS:
        ours, theirs = getattr(nn, name), getattr(torch.nn, name, None)
        if isinstance(ours, type) and issubclass(ours, nn.Module) and theirs is not None:
            mine, wanted = (list(inspect.signature(c.forward).parameters) for c in (ours, theirs))
            if mine != wanted and mine != ["self", "args", "kwargs"]:
                different.append((name, mine, wanted))
    assert different == []


def test_sections_of_the_help_are_in_line():
    """A text that is made of a base's has that one's indentation: none from Python 3.13 on."""
    section = re.compile("^ +(Args|Attributes|Raises|Returns|Shapes|Source):", re.MULTILINE)
    classes = {n: getattr(nn, n) for n in dir(nn) if inspect.isclass(getattr(nn, n))}
    assert "BatchNorm2d" in classes and "LSTM" in classes
    assert [n for n, each in classes.items() if section.search(inspect.getdoc(each) or "")] == []
