"""Parametrizations: a tensor of a module that is computed from others each time it is read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from tinytorch.autograd import no_grad
from tinytorch.nn.containers import ModuleDict, ModuleList
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor

#: In a block of `cached`: the `ParametrizationList` of each tensor that was read -> its value.
_values: ContextVar[dict[Any, Any] | None] = ContextVar("parametrized_values", default=None)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and what it is computed from.

    Attributes:
        original: the parameter that the parametrizations are applied to, one after the other; or
            original0, original1, ..., if the first takes several.
    """

    def __init__(self, modules: Sequence[Module], original: Parameter) -> None:
        super().__init__(modules)
        self.parts = 0
        values = _inverse(list(modules), original.detach())
        if isinstance(values, Tensor):
            self.original = original
            with no_grad():
                original.copy_(values)
        else:
            self.parts = len(values)
            for i, value in enumerate(values):
                part = Parameter(value.detach().clone(), original.requires_grad)
                setattr(self, f"original{i}", part)

    def originals(self) -> list[Any]:
        """The parameters that the first parametrization takes."""
        names = [f"original{i}" for i in range(self.parts)] or ["original"]
        return [getattr(self, name) for name in names]

    def forward(self) -> Any:
        """The tensor."""
        first, *rest = self
        value = first(*self.originals())
        for module in rest:
            value = module(value)
        return value

    def right_inverse(self, value: Tensor) -> None:
        """Write into the originals what gives `value`, or comes as near as it can."""
        values = _inverse(list(self), value)
        values = [values] if isinstance(values, Tensor) else values
        with no_grad():
            for original, new in zip(self.originals(), values, strict=True):
                original.copy_(new)


def _inverse(chain: list[Any], value: Any) -> Any:
    """What the chain makes `value` of, as far as its modules have a `right_inverse`."""
    for module in reversed(chain):
        if "right_inverse" in dir(module):
            value = module.right_inverse(value)
    return value


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute the parameter `tensor_name` by `parametrization` each time it is read.

    The parameter moves to `parametrizations[tensor_name].original`; a parametrization that
    has a `right_inverse` says what it begins with.

    Args:
        module: it gets a class of its own, and stays an instance of its old one.
        tensor_name: of one of its parameters, which may have parametrizations already.
        parametrization: a module that takes the tensor and gives one of the same shape.
        unsafe: leave out the check of the shape.

    Returns:
        The module.

    Raises:
        ValueError: there is no such parameter, or the result has another shape.

    >>> from tinytorch import nn
    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).mT
    >>> layer = register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    >>> (layer.weight == layer.weight.mT).all(), isinstance(layer, nn.Linear)
    (tensor(True), True)
    """
    if is_parametrized(module, tensor_name):
        chain = _chains(module)[tensor_name]
        shape = getattr(module, tensor_name).shape
        if not unsafe and parametrization(getattr(module, tensor_name)).shape != shape:
            raise ValueError(f"register_parametrization: {tensor_name} must stay {shape}")
        chain.append(parametrization)
        return module
    parameter = dict(module.own_parameters()).get(tensor_name)
    if parameter is None:
        raise ValueError(f"{type(module).__name__} has no parameter {tensor_name!r}")
    shape = parameter.shape
    chain = ParametrizationList([parametrization], parameter)
    if not unsafe and chain().shape != shape:
        raise ValueError(
            f"register_parametrization: {type(parametrization).__name__} makes {chain().shape} of "
            f"{tensor_name}, whose shape is {shape}"
        )
    own = type(module).__mro__[1] if is_parametrized(module) else type(module)
    if own is type(module):
        module.add_module("parametrizations", ModuleDict())
    delattr(module, tensor_name)
    _chains(module)[tensor_name] = chain
    module.__class__ = _class_of(own, _chains(module))
    return module


def _class_of(own: type, names: Iterable[str]) -> type:
    """A new class, since copies of a module share theirs, in which these tensors are computed."""
    computed = {name: _computed(name) for name in names}
    return type(f"Parametrized{own.__name__}", (own,), {"__module__": __name__, **computed})


def _chains(module: Module) -> Any:
    """The `ParametrizationList` of each parametrized tensor, by name."""
    return vars(module)["parametrizations"]


def _computed(name: str) -> property:
    def read(module: Any) -> Any:
        chain, values = _chains(module)[name], _values.get()
        if values is None:
            return chain()
        if chain not in values:
            values[chain] = chain()
        return values[chain]

    def write(module: Any, value: Tensor) -> None:
        chain = _chains(module)[name]
        chain.right_inverse(value)
        (_values.get() or {}).pop(chain, None)

    return property(read, write)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module, or one tensor of it, has parametrizations."""
    held = vars(module).get("parametrizations")
    if not isinstance(held, ModuleDict):
        return False
    return len(held) > 0 if tensor_name is None else tensor_name in held


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """A block in which each parametrized tensor is computed once, and not at every use."""
    outer = _values.get()
    token = _values.set({} if outer is None else outer)
    try:
        yield
    finally:
        _values.reset(token)


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make `tensor_name` an ordinary parameter again.

    Args:
        leave_parametrized: with the computed value; else with the original's.

    Raises:
        ValueError: it has no parametrizations, or no single original to go back to.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"{type(module).__name__}.{tensor_name} has no parametrizations")
    chain = _chains(module)[tensor_name]
    if not leave_parametrized and chain.parts:
        raise ValueError(f"{tensor_name} has {chain.parts} originals; pass leave_parametrized=True")
    original = chain.originals()[0]
    if leave_parametrized:
        value = chain().detach().clone()
        parameter = Parameter(value, original.requires_grad)
    else:
        parameter = original
    del _chains(module)[tensor_name]
    own, names = type(module).__mro__[1], list(_chains(module))
    if not names:
        delattr(module, "parametrizations")
    module.__class__ = _class_of(own, names) if names else own
    setattr(module, tensor_name, parameter)
    return module
