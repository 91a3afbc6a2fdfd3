"""Modules that hold modules: in a row, in a list, by name.

What they hold are their attributes, as with every module: a layer of a `Sequential` is the
attribute "0", and whatever changes the attributes changes the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from typing import Any, Self

from tinytorch.history import structure
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor


class _Row(Module, MutableSequence[Any]):
    """What lists of modules and of parameters share: items are attributes, named by position.

    A name that is no number, which an attribute or a mapping brings in, stays what it is.
    """

    def own_items(self) -> list[tuple[str, Any]]:
        """The items by name, in their order."""
        return self.own_modules()

    def _checked(self, value: object) -> Any:
        if not isinstance(value, Module):
            raise TypeError(
                f"{type(self).__name__} holds modules, not {type(value).__name__} "
                f"({value!r:.40}); give it an instance of a Module"
            )
        return value

    def _name(self, index: Any) -> str:
        name: str = [name for name, _ in self.own_items()][index]
        return name

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)([item for _, item in self.own_items()][index])  # type: ignore[call-arg]
        return getattr(self, self._name(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            raise TypeError("assign modules one by one, not to a slice")
        setattr(self, self._name(index), self._checked(value))

    def __delitem__(self, index: Any) -> None:
        items = self.own_items()
        del items[index]
        self._store([(n, v) for n, v in items])

    def insert(self, index: int, value: Any) -> None:
        """Put an item in front of the one at `index`."""
        items = self.own_items()
        items.insert(index, ("0", self._checked(value)))
        self._store(items)

    def append(self, value: Any) -> Self:  # type: ignore[override]
        """Put an item at the end; returns this container."""
        self.insert(len(self), value)
        return self

    def extend(self, values: Iterable[Any]) -> Self:  # type: ignore[override]
        """Put items at the end; returns this container."""
        for value in list(values):
            self.append(value)
        return self

    def _store(self, items: list[tuple[str, Any]]) -> None:
        """Make these the items, in their order; what is named by a number gets its position."""
        for name, _ in self.own_items():
            vars(self).pop(name)
        for i, (name, value) in enumerate(items):
            setattr(self, str(i) if name.isdigit() else name, value)
        structure.count()

    def __len__(self) -> int:
        return len(self.own_items())

    def __iter__(self) -> Iterator[Any]:
        return iter([item for _, item in self.own_items()])

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    # a module equals only itself, whatever it holds
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class ModuleList(_Row):
    """Modules in a list: all that a Python list can do, and their parameters are found.

    A plain list as an attribute hides its modules; this one does not. It has no `forward`.

    >>> from tinytorch.nn import Linear
    >>> layers = ModuleList(Linear(2, 2) for _ in range(3))
    >>> len(layers), [name for name, _ in layers.named_parameters()][:2]
    (3, ['0.weight', '0.bias'])
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])


class Sequential(_Row):
    """Layers in a row: each one's result is the next one's input.

    Args:
        layers: modules, or one mapping from names to modules; named layers are attributes.

    Raises:
        TypeError: something is not a Module, such as a class or a function.
        ValueError: a name is empty or has a dot in it.

    >>> from tinytorch.nn import Linear, ReLU
    >>> Sequential(Linear(4, 3), ReLU(), Linear(3, 2))
    Sequential(  # 23 parameters
      (0): Linear(in_features=4, out_features=3, bias=True)  # 15 parameters
      (1): ReLU()
      (2): Linear(in_features=3, out_features=2, bias=True)  # 8 parameters
    )
    """

    def __init__(self, *layers: Module | Mapping[str, Module]) -> None:
        super().__init__()
        first = layers[0] if layers else None
        if isinstance(first, Mapping) and not isinstance(first, Module):
            named = list(first.items())
        else:
            named = [(str(i), layer) for i, layer in enumerate(layers)]  # type: ignore[misc]
        for name, layer in named:
            self.add_module(name, self._checked(layer))

    def forward(self, x: Any) -> Any:
        """x through all layers in turn, which are called, so that their hooks run; x if none."""
        for layer in self:
            x = layer(x)
        return x

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Sequential(dict(self.own_items()[index]))
        return super().__getitem__(index)

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *other)


class ModuleDict(Module, MutableMapping[str, Module]):
    """Modules by name: all that a Python dict can do, and their parameters are found.

    They are attributes too.

    >>> from tinytorch.nn import ReLU, Tanh
    >>> choice = ModuleDict({"relu": ReLU(), "tanh": Tanh()})
    >>> list(choice), choice.tanh
    (['relu', 'tanh'], Tanh())
    """

    def __init__(
        self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None
    ) -> None:
        super().__init__()
        self.update(modules or ())

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]  # type: ignore[no-any-return]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    # a module equals only itself, whatever it holds
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class ParameterList(_Row):
    """Parameters in a list; a tensor in it becomes one. It has no `forward`.

    >>> import tinytorch
    >>> weights = ParameterList([tinytorch.ones(2), tinytorch.ones(3)])
    >>> [name for name, _ in weights.named_parameters()], weights[1].shape
    (['0', '1'], (3,))
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(values or ())

    def own_items(self) -> list[tuple[str, Any]]:
        """The parameters by name, in their order."""
        return self.own_parameters()

    def _checked(self, value: object) -> Any:
        return _as_parameter(self, value)


class ParameterDict(Module, MutableMapping[str, Any]):
    """Parameters by name; a tensor in it becomes one.

    >>> import tinytorch
    >>> weights = ParameterDict({"left": tinytorch.ones(2)})
    >>> weights.left.requires_grad
    True
    """

    def __init__(
        self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None
    ) -> None:
        super().__init__()
        self.update(parameters or ())

    def __getitem__(self, key: str) -> Any:
        return self._parameters[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._parameters[key] = _as_parameter(self, value)

    def __delitem__(self, key: str) -> None:
        del self._parameters[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)

    __eq__ = object.__eq__
    __hash__ = object.__hash__


def _as_parameter(holder: Module, value: object) -> Parameter:
    if isinstance(value, Parameter):
        return value
    if not isinstance(value, Tensor):
        raise TypeError(f"{type(holder).__name__} holds parameters, not {type(value).__name__}")
    return Parameter(value)
