"""Arguments have PyTorch's names, in its order: its own schemas say which."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch.functions.publish import FUNCTIONS, METHODS
from tinytorch.tensor import Tensor

#: Arguments that mean nothing here, or that `tinytorch.compat` answers for.
NOT_HERE = {"out", "device", "layout", "pin_memory", "memory_format", "names", "dtype", "generator",
            "non_blocking", "requires_grad", "out_dtype", "implicit", "path"}  # fmt: skip
#: Functions with other forms here: any number of tensors in place of a list.
OTHER_FORMS = {"atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_tensors",
               "cartesian_prod", "einsum"}  # fmt: skip


def schemas(name: str) -> Iterator[Any]:
    """Those of PyTorch's function that takes a tensor first."""
    op = getattr(torch.ops.aten, name, None)
    for overload in op.overloads() if op is not None else ():
        schema = getattr(op, overload)._schema
        arguments = schema.arguments
        kinds = [str(a.type) for a in arguments]
        is_of_tensor = bool(arguments) and arguments[0].name == "self" and kinds[0] == "Tensor"
        if is_of_tensor and not any(a.is_out for a in arguments):
            yield schema


def parameters(function: Callable[..., Any]) -> tuple[list[str], set[str], bool]:
    """The names by position, all names, and whether any others are passed on."""
    given = inspect.signature(function).parameters.values()
    by_position = [p.name for p in given if p.kind is p.POSITIONAL_OR_KEYWORD]
    every = {p.name for p in given} | {*getattr(function, "other_names", ())}
    return by_position, every, any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in given)


def wrong(function: Callable[..., Any], name: str, is_method: bool) -> list[str]:
    """What a call with PyTorch's arguments meets."""
    by_position, every, passes_on = parameters(function)
    others = getattr(function, "other_names", {})
    found = []
    for schema in schemas(name):
        asked = [a for a in schema.arguments[1:] if a.name not in NOT_HERE]
        if not is_method and "input" not in every:
            found.append("input")
        if passes_on:
            continue
        found += [a.name for a in asked if a.name not in every and a.name != "from"]
        places = [a.name for a in asked if not a.kwarg_only]
        for place, own in zip(places, by_position[1:], strict=False):
            if own not in (place, others.get(place), f"{place}_"):
                found.append(f"{place} at the place of {own}")
    return found


#: Where one place is for several arguments, which are told apart by their types.
BY_TYPE = {"max", "min", "scatter", "std", "var", "split", "tensor_split", "copy_"}
NAMES = {
    f"{owner.__name__}.{name}": (owner, name)
    for owner, ours, theirs in (
        (tinytorch, FUNCTIONS, torch),
        (Tensor, METHODS, torch.Tensor),
    )
    for name in ours
    if hasattr(theirs, name) and name not in OTHER_FORMS | BY_TYPE | {"tensordot"}
}


@pytest.mark.parametrize("which", sorted(NAMES))
def test_arguments_are_pytorchs(which: str) -> None:
    owner, name = NAMES[which]
    assert wrong(getattr(owner, name), name, owner is Tensor) == []


@pytest.mark.parametrize("which", sorted(NAMES))
def test_what_is_left_out_is_what_pytorch_takes(which: str) -> None:
    owner, name = NAMES[which]
    given = inspect.signature(getattr(owner, name)).parameters
    for schema in schemas(name):
        for a in schema.arguments[1:]:
            if a.name not in given or a.name in NOT_HERE or not a.has_default_value():
                continue
            own, theirs = given[a.name].default, a.default_value
            if theirs is not None and own is not None and not isinstance(theirs, list):
                assert own == theirs, a.name


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_are_found_by_their_names(name: str) -> None:
    function = FUNCTIONS[name]
    if function.__module__ == "tinytorch" and function.__name__ == name:
        assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.ones(4).split(split_size=3),
        lambda t: t.ones(4).split(split_size=[1, 3], dim=0),
        lambda t: t.split(t.ones(4), split_size_or_sections=3),
        lambda t: t.ones(4).tensor_split(sections=3),
        lambda t: t.tensor_split(t.ones(4), indices=(1, 2)),
        lambda t: t.tensor([1.0, 5.0]).max(other=t.tensor([3.0, 3.0])),
        lambda t: t.min(t.tensor([1.0, 5.0]), other=t.tensor([3.0, 3.0])),
        lambda t: t.ones(2, 3).swapaxes(axis0=0, axis1=1),
        lambda t: t.swapdims(t.ones(2, 3), dim0=0, dim1=1),
        lambda t: t.bernoulli(t.ones(3), p=0.0),
        lambda t: t.tensor([3, 4]).bernoulli(1.0),
        lambda t: t.cdist(x1=t.ones(2, 2), x2=t.zeros(3, 2)),
        lambda t: t.isin(elements=t.arange(3), test_elements=t.tensor([1]), invert=True),
        lambda t: t.isin(t.arange(3), 1, assume_unique=True),
        lambda t: t.histogram(t.arange(3.0)).hist,
        lambda t: t.arange(end=3),
        lambda t: t.arange(start=1, end=3),
        lambda t: t.sum(input=t.ones(2, 3), dim=0),
        lambda t: t.softmax(input=t.ones(2, 3), axis=0),
        lambda t: t.exp(input=t.ones(2)),
        lambda t: t.sort(input=t.tensor([2.0, 1.0]))[0],
        lambda t: t.add(input=t.ones(2), other=t.ones(2), alpha=2),
        lambda t: t.matmul(input=t.ones(2, 2), other=t.ones(2, 2)),
        lambda t: t.where(condition=t.ones(2) > 0, input=t.ones(2), other=t.zeros(2)),
        lambda t: t.zeros_like(input=t.ones(2)),
        lambda t: t.full_like(t.ones(2), fill_value=3.0),
        lambda t: t.searchsorted(t.arange(3.0), input=t.ones(2)),
        lambda t: t.nn.functional.relu(input=t.ones(2)),
        lambda t: t.nn.functional.linear(input=t.ones(1, 2), weight=t.ones(3, 2)),
        lambda t: t.nn.functional.conv2d(input=t.ones(1, 1, 2, 2), weight=t.ones(1, 1, 2, 2)),
        lambda t: t.nn.functional.dropout(input=t.ones(2), training=False),
        lambda t: t.nn.functional.gelu(input=t.ones(2)),
        lambda t: t.nn.functional.relu_(input=-t.ones(2)),
        lambda t: t.nn.functional.threshold_(input=t.ones(2), threshold=2, value=3),
        lambda t: t.randint(high=1, size=(2,)),
        lambda t: t.randint_like(t.ones(2), high=1),
    ],
)
def test_a_call_by_names_is_as_in_pytorch(call: Callable[[Any], Any]) -> None:
    found, expected = call(tinytorch), call(torch)
    pairs = zip(found, expected, strict=True) if type(found) is tuple else [(found, expected)]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)
        assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")


def test_an_argument_is_given_once() -> None:
    x = tinytorch.ones(2)
    with pytest.raises(TypeError, match="input and a are the same argument"):
        tinytorch.exp(input=x, a=x)
    with pytest.raises(TypeError, match="multiple values"):
        tinytorch.exp(x, input=x)
    with pytest.raises(TypeError, match="arange takes where to end"):
        tinytorch.arange()
