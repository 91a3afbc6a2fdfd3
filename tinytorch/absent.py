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
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

#: Keywords of PyTorch's functions that mean nothing on one device with one memory layout.
IGNORED = frozenset(("device", "layout", "memory_format", "non_blocking", "pin_memory"))
#: Keywords of losses that `reduction=` has replaced.
OLD_REDUCTION = frozenset(("size_average", "reduce"))


def names_of(owner: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module that stands for PyTorch's module `owner`.

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


def attributes_of(owner: str) -> Callable[[Any, str], Any]:
    """The `__getattr__` of a class that stands for PyTorch's class `owner`."""

    def __getattr__(self: Any, name: str) -> Any:
        if name[0] == "_" and name != "__array_namespace__":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return importlib.import_module("tinytorch.compat").attribute(self, owner, name)

    return __getattr__


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
        if keywords and not names.isdisjoint(keywords):
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
