"""`_parameters`, `_buffers` and `_modules`: a module's attributes of one kind, as a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinytorch.nn.module import Module


class Store(MutableMapping[str, Any]):
    """The attributes of a module that `belongs` says are of one kind, by name, in their order.

    It is a view: the module's attributes are the only place where anything is stored, so what is
    written here is an attribute, and the other way round.

    >>> from tinytorch import nn
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> net._modules["1"] = nn.Tanh()
    >>> net[1], list(net._modules)
    (Tanh(), ['0', '1'])
    """

    def __init__(
        self,
        owner: Module,
        belongs: Callable[[str, Any], bool],
        register: Callable[[str, Any], None],
    ) -> None:
        self._owner = owner
        self._belongs = belongs
        self._register = register

    def _items(self) -> list[tuple[str, Any]]:
        return [(k, v) for k, v in vars(self._owner).items() if self._belongs(k, v)]

    def __getitem__(self, name: str) -> Any:
        value = vars(self._owner)[name]
        if value is not None and not self._belongs(name, value):
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        if name in vars(self._owner):
            setattr(self._owner, name, value)
        else:
            self._register(name, value)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        delattr(self._owner, name)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, _ in self._items()])

    def __reversed__(self) -> Iterator[str]:
        return reversed([name for name, _ in self._items()])

    def __len__(self) -> int:
        return len(self._items())

    def copy(self) -> dict[str, Any]:
        """A dictionary of its own."""
        return dict(self._items())

    def __repr__(self) -> str:
        return repr(dict(self._items()))
