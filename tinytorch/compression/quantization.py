"""`quantize_`: layers replaced by quantized ones, in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from tinytorch.compression.calibration import Calibration
from tinytorch.compression.layers import (
    QuantizedConv2d,
    QuantizedEmbedding,
    QuantizedLinear,
    check_layer,
)
from tinytorch.compression.observer import named, observe
from tinytorch.compression.replacement import has_weight, no_place, replace_layers
from tinytorch.compression.schemes import Scheme, find_scheme
from tinytorch.compression.storage import Block, bytes_of_codes
from tinytorch.compression.training import FakeQuantizedLinear
from tinytorch.nn.conv import Conv2d
from tinytorch.nn.embedding import Embedding
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module

M = TypeVar("M", bound=Module)
Filter = Callable[[Module, str], bool]
QUANTIZED = (QuantizedLinear, QuantizedEmbedding, QuantizedConv2d)


def quantize_(
    model: M,
    scheme: str | Scheme = "int8_dynamic",
    *,
    group_size: int | None = None,
    embeddings: bool = True,
    convolutions: bool = True,
    filter_fn: Filter | None = None,
    data: Iterable[Any] | None = None,
    calibration: Calibration | None = None,
) -> M:
    """Replace `Linear`, `Embedding` and `Conv2d` layers by quantized ones, in place.

    The float weights are let go one layer after the other; what else refers to them, an optimizer
    or a `state_dict`, keeps them alive. Layers of a subclass stay as they are: it may compute
    something else; and so do those whose weight is computed, by `weight_norm` or in another way. A
    layer that is there twice is one layer afterwards, too; hooks stay.

    Args:
        model: holds the layers; it is not one itself.
        scheme: "int8", "int8_dynamic", "int8_static", "int4" or "bfloat16"; see `SCHEMES`.
        group_size: neighbouring weights that share a scale, if not the scheme's.
        embeddings, convolutions: whether these are replaced too.
        filter_fn: called with each such layer and its name; false leaves it as it is.
        data: batches for "int8_static", from which the ranges of activations are learned.
        calibration: how those ranges are chosen; by default from the smallest to the largest.

    Returns:
        The model.

    Raises:
        ValueError: no such scheme or size of groups; the model is quantized already, prepared for
            training, or has nothing to quantize; a layer has no quantized form (`check_layer`);
            data is missing; calibration is given, and no range to be learned. Nothing has been
            replaced then.

    Source: B. Jacob et al., 2018; the name and `filter_fn` are torchao's.

    >>> import tinytorch
    >>> from tinytorch.nn import Sequential
    >>> quantize_(Sequential(Linear(64, 8)), "int4")
    Sequential(  # 8 parameters
      (0): QuantizedLinear(64 -> 8, int4: 4 bits by groups of 32)  # 8 parameters
    )
    """
    chosen = find_scheme(scheme, group_size)
    kinds = {Linear, *([Embedding] if embeddings else []), *([Conv2d] if convolutions else [])}
    _check_is_float(model, kinds)
    layers: dict[str, Any] = {
        name: part
        for name, part in model.named_modules()
        if type(part) in kinds and has_weight(part) and (filter_fn is None or filter_fn(part, name))
    }
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no layer to quantize: none of "
            f"{', '.join(sorted(kind.__name__ for kind in kinds))} that filter_fn takes"
        )
    for name, part in layers.items():
        named(name, check_layer, part, chosen)
    if calibration is not None and chosen.activation != "static":
        raise ValueError(
            f"calibration is how the ranges of activations are chosen, and {chosen.name} learns "
            f"none; how the weights' are, a Scheme says: Scheme(..., calibration=...)"
        )
    ranges = {}
    if chosen.activation == "static":
        if data is None:
            raise ValueError(f"{chosen.name} needs data: batches to learn the activations' range")
        linear = {name: part for name, part in layers.items() if isinstance(part, Linear)}
        ranges = observe(model, linear, data, calibration or Calibration())
    wanted = {id(part): name for name, part in layers.items()}
    block = Block(sum(bytes_of_codes(part.weight.shape, chosen) for part in layers.values()))
    layers.clear()  # from here on only the model holds them

    def make(layer: Module) -> Module | None:
        name = wanted.get(id(layer))
        if name is None:
            return None
        made = _quantized(layer, chosen, ranges.get(name))
        block.hold(made)
        return made

    replace_layers(model, make)
    return model


def _quantized(layer: Module, scheme: Scheme, range: tuple[float, float] | None) -> Module:
    if isinstance(layer, Linear):
        return QuantizedLinear.from_float(layer, scheme, range)
    if isinstance(layer, Embedding):
        return QuantizedEmbedding.from_float(layer, scheme)
    assert isinstance(layer, Conv2d)
    return QuantizedConv2d(layer, scheme)


def _check_is_float(model: Module, kinds: set[type]) -> None:
    if type(model) in kinds or isinstance(model, QUANTIZED):
        raise no_place(model)
    for name, part in model.named_modules():
        if isinstance(part, FakeQuantizedLinear):
            raise ValueError(f"{name} is prepared for training: use convert_qat_ first")
        if isinstance(part, QUANTIZED):
            kind = type(part).__name__
            raise ValueError(f"the model is quantized already: {name} is a {kind}")
