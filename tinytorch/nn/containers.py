"""Modules that hold modules: in a row, in a list, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from typing import Any, overload

from tinytorch.nn.module import Module


def _checked(holder: Module, module: object) -> Module:
    if not isinstance(module, Module):
        raise TypeError(
            f"{type(holder).__name__} holds modules, not {type(module).__name__} ({module!r:.40}); "
            f"give it an instance of a Module"
        )
    return module


class ModuleList(Module, MutableSequence[Module]):
    """Modules in a list: all that a Python list can do, and their parameters are found.

    A plain list as an attribute hides its modules; this one does not. It has no `forward`.

    >>> from tinytorch.nn import Linear
    >>> layers = ModuleList(Linear(2, 2) for _ in range(3))
    >>> len(layers), [name for name, _ in layers.named_parameters()][:2]
    (3, ['0.weight', '0.bias'])
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self._items: list[Module] = []
        self.extend(modules)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Attributes, then the items by their position."""
        yield from super().named_children()
        yield from ((str(i), module) for i, module in enumerate(self._items))

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> ModuleList: ...
    def __getitem__(self, index: int | slice) -> Module | ModuleList:
        if isinstance(index, slice):
            return ModuleList(self._items[index])
        return self._items[index]

    def __setitem__(self, index: Any, module: Any) -> None:
        if isinstance(index, slice):
            raise TypeError("assign modules one by one, not to a slice")
        self._items[index] = _checked(self, module)

    def __delitem__(self, index: Any) -> None:
        del self._items[index]

    def insert(self, index: int, value: Module) -> None:
        """Put a module in front of the one at `index`."""
        self._items.insert(index, _checked(self, value))

    def __len__(self) -> int:
        return len(self._items)


class Sequential(ModuleList):
    """Each layer's result is the next one's input.

    Args:
        layers: modules, or one mapping from names to modules; named layers are attributes.

    Raises:
        TypeError: something is not a Module, such as a class or a function.
        ValueError: a name is empty, has a dot in it, or is a number that is not its position.

    >>> from tinytorch.nn import Linear, ReLU
    >>> Sequential(Linear(4, 3), ReLU(), Linear(3, 2))
    Sequential(  # 23 parameters
      (0): Linear(in_features=4, out_features=3, bias=True)  # 15 parameters
      (1): ReLU()
      (2): Linear(in_features=3, out_features=2, bias=True)  # 8 parameters
    )
    """

    def __init__(self, *layers: Module | Mapping[str, Module]) -> None:
        self._names: list[str] = []  # "" for a layer that is named by its position
        first = layers[0] if layers else None
        if isinstance(first, Mapping) and not isinstance(first, Module):
            super().__init__(first.values())
            self._names = [_layer_name(name, i) for i, name in enumerate(first)]
        else:
            super().__init__(layers)  # type: ignore[arg-type]  # checked item by item

    def forward(self, x: Any) -> Any:
        """x through all layers in turn, which are called, so that their hooks run; x if none."""
        for layer in self._items:
            x = layer(x)
        return x

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Attributes, then the layers by name or position."""
        yield from Module.named_children(self)
        for i, layer in enumerate(self._items):
            yield self._names[i] or str(i), layer

    def __getattr__(self, name: str) -> Any:
        # reached only for what is no attribute, and by copying before there are names
        names = vars(self).get("_names", [])
        if name in names:
            return self._items[names.index(name)]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        names = vars(self).get("_names", [])
        if name in names:
            self[names.index(name)] = value
        else:
            super().__setattr__(name, value)

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self._items[index]
        part = Sequential(*self._items[index])
        part._names = self._names[index]
        return part

    def __delitem__(self, index: Any) -> None:
        super().__delitem__(index)
        del self._names[index]

    def insert(self, index: int, value: Module) -> None:
        """Put a layer in front of the one at `index`."""
        super().insert(index, value)
        self._names.insert(index, "")


def _layer_name(name: str, position: int) -> str:
    if not name or "." in name or (name.isdigit() and name != str(position)):
        raise ValueError(
            f"layer {position} cannot be named {name!r}: a name is not empty, has no dot in it, "
            f"and is a number only if that is its position"
        )
    return "" if name.isdigit() else name


class ModuleDict(Module, MutableMapping[str, Module]):
    """Modules by name: all that a Python dict can do, and their parameters are found.

    >>> from tinytorch.nn import ReLU, Tanh
    >>> choice = ModuleDict({"relu": ReLU(), "tanh": Tanh()})
    >>> list(choice)
    ['relu', 'tanh']
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()) -> None:
        self._items: dict[str, Module] = {}
        self.update(modules)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Attributes, then the items by name."""
        yield from super().named_children()
        yield from self._items.items()

    def __getitem__(self, name: str) -> Module:
        return self._items[name]

    def __setitem__(self, name: str, module: Module) -> None:
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(f"a name must be text, not be empty, and have no dot in it: {name!r}")
        self._items[name] = _checked(self, module)

    def __delitem__(self, name: str) -> None:
        del self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    # a module equals only itself, whatever it holds
    __eq__ = object.__eq__
    __hash__ = object.__hash__
