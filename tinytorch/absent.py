"""Names and keywords of PyTorch that TinyTorch does not define: `tinytorch.compat` answers.

`tinytorch.compat` loads here, when the first such name is asked for, and nowhere else.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from dis import opmap
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

#: Keywords of PyTorch's functions that mean nothing on one device with one memory layout.
IGNORED = frozenset(("device", "layout", "memory_format", "non_blocking", "pin_memory"))
#: Keywords of losses that `reduction=` has replaced.
OLD_REDUCTION = frozenset(("size_average", "reduce"))


def names_of(owner: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module that answers for PyTorch's module `owner`.

    >>> names_of("torch")("device")("cpu")
    device(type='cpu')
    """
    return functools.partial(name_of, owner)


def name_of(owner: str, name: str) -> Any:
    """What compat has for `name` of PyTorch's module `owner`.

    Raises:
        AttributeError: there is nothing; where PyTorch has it, the message says what to write.
        ImportError: the same, where `from module import name` asks: Python would drop the message
            of an AttributeError.
    """
    if name.startswith("__"):
        raise AttributeError(f"module {owner.replace('torch', 'tinytorch', 1)!r} has no {name!r}")
    try:
        return importlib.import_module("tinytorch.compat").module_name(owner, name)
    except AttributeError as error:
        if _is_import(sys._getframe(1)):
            raise ImportError(str(error), name=name) from None
        raise


def _is_import(frame: Any) -> bool:
    """What asked is the second step of `from module import name`."""
    while frame.f_code.co_name == "__getattr__":
        frame = frame.f_back
    return bool(frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"])


class Finder:
    """Finds modules by PyTorch's paths, such as `tinytorch.utils.data`, where there is no file."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> Any:
        """The spec of a module that is known under PyTorch's path, or None."""
        if not fullname.startswith("tinytorch.") or fullname.startswith("tinytorch.compat"):
            return None
        return importlib.import_module("tinytorch.compat.modules").spec_below_tinytorch(fullname)


class EinopsHook:
    """Makes tensors known to einops as soon as it is imported, before this package or after it."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
        """The spec of einops' list of backends, with ours added when it is run."""
        if fullname != "einops._backends":
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                sys.modules[fullname] = module
                importlib.import_module("tinytorch.compat.einops_backend")

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install_hooks() -> None:
    """Put both finders into `sys.meta_path`, once."""
    if Finder not in sys.meta_path:
        sys.meta_path.append(Finder)
        sys.meta_path.insert(0, EinopsHook)
        if "einops" in sys.modules:
            importlib.import_module("tinytorch.compat.einops_backend")


@functools.cache
def foreign_names() -> dict[str, list[str]]:
    """The names of PyTorch's classes that ours do not define: `absent.txt`."""
    found: dict[str, list[str]] = {}
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    for line in lines:
        if line.startswith("["):
            names = found[line.strip("[]")] = []
        elif not line.startswith("#"):
            names += line.split()
    return found


class ForeignName:
    """An attribute of PyTorch's class `owner`, found or refused by compat when it is asked for.

    A descriptor for each name, and not a `__getattr__` of the class: with that, CPython 3.11 does
    not specialize the reading of any attribute, and every op would take an eighth longer.
    """

    def __init__(self, owner: str, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, value: Any, cls: type) -> Any:
        if value is None:
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {self.name!r}")
        return importlib.import_module("tinytorch.compat").attribute(value, self.owner, self.name)


def add_foreign_names(cls: type, owner: str) -> None:
    """Let instances of `cls` answer for the names of PyTorch's class `owner`.

    >>> from tinytorch import tensor
    >>> tensor([1.0]).is_cuda
    False
    """
    names = set(foreign_names()[owner]).difference(dir(cls))
    for name in names:
        setattr(cls, name, ForeignName(owner, name))

    def __dir__(self: Any) -> list[str]:
        return [name for name in object.__dir__(self) if name not in names]

    cls.__dir__ = __dir__  # type: ignore[assignment,method-assign]


def accepts_device(function: F) -> F:
    """Let a function take `device=` and the other keywords of `IGNORED`, which are checked.

    >>> accepts_device(abs)(-3, device="cpu")
    3
    """
    return _translating(function, IGNORED)


def accepts_size_average(function: F) -> F:
    """Let a loss take `size_average=` and `reduce=`, from before there was `reduction=`."""
    return _translating(function, OLD_REDUCTION)


def _translating(function: F, names: frozenset[str]) -> F:
    @functools.wraps(function)
    def translated(*args: Any, **keywords: Any) -> Any:
        if not keywords:
            return function(*args)
        if not names.isdisjoint(keywords):
            keywords = importlib.import_module("tinytorch.compat").translate(keywords)
        return function(*args, **keywords)

    return translated  # type: ignore[return-value]


def conversion_target(args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, bool]:
    """What PyTorch's `.to(...)` asks for, in any of its forms: (dtype or None, make a copy).

    Raises:
        RuntimeError: a device is asked for that is not the CPU.
    """
    target: tuple[Any, bool] = importlib.import_module("tinytorch.compat").conversion_target(
        args, keywords
    )
    return target


def array_ufunc(value: Any, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """The `__array_ufunc__` of tensors: what NumPy's `ufunc` gives where an input is a tensor."""
    ufuncs = importlib.import_module("tinytorch.compat.ufuncs")
    return ufuncs.array_ufunc(ufunc, method, inputs, options)
