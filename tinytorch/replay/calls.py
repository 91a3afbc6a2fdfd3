"""What a call is known by: the tensors among its arguments, and everything else about it.

A key is looked up at every call, so a function that makes it is written for each combination of
types: for `narrow(x, 1, 0, 4)`

    def split(function, recording, a0, a1, a2, a3):
        return (a0,), (function, recording, kinds, a0.meta, a0._requires_grad, a1, a2, a3)

Since the types are part of the key, 1 is not 1.0 and not True.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinytorch import tensor_class
from tinytorch.dispatch import is_tensor
from tinytorch.dtypes import DType

Tensor = Any
Kinds = tuple[Any, ...]  # the types of all arguments, then the names of those that have one
Split = Callable[..., tuple[tuple[Any, ...], tuple[Any, ...]]]

MOST = 4096  # combinations of types to remember

splits: dict[Kinds, Split] = {}
"""Those that `split_of` has written."""
INTS = object()  # such sequences are part of a key as they are
_OF_INTS: dict[tuple[type, ...], object] = {(int,) * n: INTS for n in range(9)}
#: By the types of the elements of a sequence: `INTS`, or what stands for the types in a key.
sequences = dict(_OF_INTS)


def split_of(kinds: Kinds) -> Split:
    """The function that makes keys for arguments of these types.

    Raises:
        TypeError: there can be none: an argument is none of tensors, numbers, strings, dtypes, None
            and sequences of whole numbers or of tensors.
    """
    split = splits.get(kinds)
    if split is None:
        if len(splits) >= MOST:
            splits.clear()
        split = splits[kinds] = _written(kinds)
    return split


def _written(kinds: Kinds) -> Split:
    types = [kind for kind in kinds if type(kind) is not str]
    names = [f"a{i}" for i in range(len(types))]
    lines, tensors, key = [], [], ["function", "recording", "kinds"]
    for name, kind in zip(names, types, strict=True):
        if issubclass(kind, tensor_class.tensor_class):
            tensors.append(name)
            key += [f"{name}.meta", f"{name}._requires_grad"]
        elif kind in (int, bool, str, DType):
            key.append(name)
        elif kind is float:
            key.append(f"{name} or str({name})")  # 0.0 and -0.0 are equal
        elif kind in (tuple, list):
            lines += [
                f"if len({name}) == 2:",  # the most frequent, without loops
                f"    s, t = {name}",
                f"    kind = sequences.get((type(s), type(t))) or kind_of({name})",
                f"    if kind is ints: k{name}, {name} = (s, t), ()",
                f"    else: k{name} = (kind, s.meta, t.meta, s._requires_grad, t._requires_grad)",
                "else:",
                f"    kind = sequences.get(tuple(map(type, {name}))) or kind_of({name})",
                f"    if kind is ints: k{name}, {name} = tuple({name}), ()",
                f"    else: k{name} = (kind, *[t.meta for t in {name}], "
                f"*[t._requires_grad for t in {name}])",
            ]
            tensors.append(f"*{name}")
            key.append(f"k{name}")
        elif kind is not type(None):
            raise TypeError(f"calls with an argument of type {kind.__name__} are not replayed")
    lines.append(f"return ({''.join(f'{t}, ' for t in tensors)}), ({', '.join(key)})")
    source = f"def split({', '.join(['function', 'recording', *names])}):\n"
    source += "".join(f"    {line}\n" for line in lines)
    # an object in the place of the types: its hash is quick
    scope: dict[str, Any] = {"kinds": object(), "sequences": sequences}
    scope |= {"ints": INTS, "kind_of": _kind_of}
    exec(compile(source, "<tinytorch key>", "exec"), scope)
    split: Split = scope.pop("split")
    return split


def _kind_of(values: Sequence[Any]) -> object:
    """What a key has for the types of a sequence of tensors."""
    types = tuple(map(type, values))
    if not all(issubclass(t, tensor_class.tensor_class) for t in types):
        raise TypeError("a sequence of something else than whole numbers or tensors")
    if len(sequences) >= MOST:
        sequences.clear()
        sequences.update(_OF_INTS)
    return sequences.setdefault(types, object())


class Call:
    """A call of a function, with other tensors in the places of its tensors."""

    def __init__(self, function: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        self.function = function
        self._positional, self._names = len(args), tuple(options)
        self._given = [_without_tensors(a) for a in (*args, *options.values())]

    def __call__(self, tensors: Sequence[Tensor]) -> Any:
        left = iter(tensors)
        given = [_with_tensors(a, left) for a in self._given]
        options = dict(zip(self._names, given[self._positional :], strict=True))
        return self.function(*given[: self._positional], **options)


class _Place:
    """Where a tensor was among the arguments."""


_PLACE = _Place()


def _without_tensors(a: Any) -> Any:
    if type(a) in (tuple, list):
        return type(a)(map(_without_tensors, a))
    return _PLACE if is_tensor(a) else a


def _with_tensors(a: Any, tensors: Any) -> Any:
    if type(a) in (tuple, list):
        return type(a)([_with_tensors(x, tensors) for x in a])
    return next(tensors) if a is _PLACE else a


def tensors_of(args: Sequence[Any]) -> list[Tensor]:
    """The tensors among arguments, and in the sequences among them."""
    found: list[Tensor] = []
    for a in args:
        found += [t for t in (a if type(a) in (tuple, list) else (a,)) if is_tensor(t)]
    return found
