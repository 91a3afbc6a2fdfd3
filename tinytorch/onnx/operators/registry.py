"""`@operator`: what an ONNX operator means, written as Tensor code.

    @operator("Reshape", static=["shape"])
    def reshape(x, shape, *, allowzero=0): ...

Inputs are positional, in ONNX's order, and None where an optional one is left out; attributes are
keywords under ONNX's own names (an operator whose input was an attribute in older versions takes
both by that one name). `static` names the inputs that must be known when the model is built, since
shapes depend on them; they come as NumPy arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tinytorch.onnx.errors import UnsupportedOnnxError


class Operator(NamedTuple):
    """An ONNX operator of the default domain.

    Attributes:
        function: of tensors and attributes; returns a tensor, or a tuple of tensors.
        static: positions of the inputs that come as NumPy arrays.
        attributes: names that the function takes by keyword.
        since: the version of the operator from which on it means this.
        of_shapes: the result depends on the inputs' shapes only, and so is always known.
    """

    name: str
    function: Callable[..., Any]
    static: frozenset[int]
    attributes: frozenset[str]
    since: int
    of_shapes: bool


OPERATORS: dict[str, Operator] = {}


def operator(
    *names: str, static: Sequence[str] = (), since: int = 1, of_shapes: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Register a function as the implementation of ONNX operators; the arguments are as in
    `Operator`."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = list(inspect.signature(function).parameters.values())
        inputs = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        for name in names:
            OPERATORS[name] = Operator(
                name,
                function,
                frozenset(inputs.index(s) for s in static),
                frozenset(p.name for p in parameters if p.kind is not p.VAR_POSITIONAL),
                since,
                of_shapes,
            )
        return function

    return enter


def refuse(what: str) -> UnsupportedOnnxError:
    """The error for an option that is not supported."""
    return UnsupportedOnnxError(f"{what} is not supported")


def ints(values: Any) -> tuple[int, ...]:
    """A static input, or an attribute, as Python integers."""
    return tuple(int(v) for v in (values.reshape(-1) if hasattr(values, "reshape") else values))
