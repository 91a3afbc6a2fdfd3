"""What the inputs of layers look like, on data that is like what they will see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tinytorch.compression.calibration import Calibration, check_finite
from tinytorch.compression.codes import choose_qparams
from tinytorch.dtypes import Array
from tinytorch.nn.evaluation import evaluating
from tinytorch.nn.module import Module

MOST_VALUES = 4096
"""So many values of each batch are remembered, evenly spread, besides the smallest and largest."""


class Observer:
    """Remembers values that pass, enough to choose a range for them."""

    def __init__(self) -> None:
        self._parts: list[Array] = []

    def add(self, values: Array) -> None:
        """Remember a batch.

        Raises:
            ValueError: it has no values, or some are NaN or infinite.
        """
        check_finite(values)
        flat = values.reshape(-1)
        step = -(-flat.size // MOST_VALUES)
        self._parts += [flat[::step].copy(), np.array([flat.min(), flat.max()])]

    def range(self, calibration: Calibration) -> tuple[float, float]:
        """Scale and zero point of affine codes of 8 bits.

        Raises:
            ValueError: nothing has been added.
        """
        if not self._parts:
            raise ValueError("no value has passed: the layer was not reached by the data")
        values = np.concatenate(self._parts)[None]
        qparams = choose_qparams(values, symmetric=False, calibration=calibration)
        return float(qparams.scale[0, 0]), float(qparams.zero_point[0, 0])


def observe(
    model: Module, layers: Mapping[str, Module], data: Iterable[Any], calibration: Calibration
) -> dict[str, tuple[float, float]]:
    """Run the model on batches; the scale and zero point of the inputs of each layer.

    Args:
        model: called with each batch, or, where that is a tuple or list, with its first element; in
            eval mode and without gradients.
        layers: by name.
        data: batches.
        calibration: how the range is chosen.

    Raises:
        ValueError: a layer saw nothing, or NaN or infinite values; the message names it.
    """
    observers = {name: Observer() for name in layers}
    handles = [
        layer.register_forward_pre_hook(
            lambda _, inputs, name=name: named(
                name, observers[name].add, inputs[0].detach().numpy()
            )
        )
        for name, layer in layers.items()
    ]
    try:
        with evaluating(model):
            for batch in data:
                model(batch[0] if isinstance(batch, (tuple, list)) else batch)
    finally:
        for handle in handles:
            handle.remove()
    return {name: named(name, seen.range, calibration) for name, seen in observers.items()}


def named(name: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call, whose ValueError names the layer."""
    try:
        return call(*arguments)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
