"""Layers of a model exchanged for others, in place."""

from __future__ import annotations

from collections.abc import Callable

from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter


def has_weight(layer: Module) -> bool:
    """Whether the weight is a parameter; a hook may compute it (`weight_norm`)."""
    return isinstance(vars(layer).get("weight"), Parameter)


def no_place(model: Module) -> ValueError:
    """The error of a model that is a layer itself: nothing holds it in which to exchange it."""
    return ValueError(
        f"{type(model).__name__} is a layer itself and cannot be replaced in place; put it into a "
        f"Sequential"
    )


def replace_layers(model: Module, make: Callable[[Module], Module | None]) -> int:
    """Put what `make` gives in place of each layer; returns how many layers were replaced.

    A layer that is there twice is one layer afterwards, too. Old layers are let go one after the
    other, so that the memory of all of them is not needed beside that of the new ones.

    Args:
        make: from a layer another one, which gets its mode and hooks; None leaves the layer where
            it is.
    """
    made: dict[int, Module | None] = {}
    left = [(parent, name, old) for parent in model.modules() for name, old in parent.own_modules()]
    while left:
        parent, name, old = left.pop(0)
        if id(old) not in made:
            made[id(old)] = make(old)
        new = made[id(old)]
        if new is not None:
            new._hooks = old._hooks
            setattr(parent, name, new.train(old.training))
    return sum(new is not None for new in made.values())
