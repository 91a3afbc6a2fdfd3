"""PyTorch's paths of modules: `utils.data`, `backends.cudnn`, `nn.modules.linear`, ..."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

#: PyTorch's path -> (our module, attribute in it or "" for the module itself). A path that ends in
#: ".*" stands for every path below it.
PATHS: dict[str, tuple[str, str]] = {
    "_dynamo": ("compat.scripting", ""),
    "accelerator": ("compat.accelerators", "accelerator"),
    "amp": ("compat.amp", ""),
    "amp.*": ("compat.amp", ""),
    "autograd.functional": ("autograd.functional", ""),
    "autograd.variable": ("compat.tensors", ""),
    "backends.cuda": ("compat.accelerators", "cuda_backend"),
    "backends.cuda.matmul": ("compat.accelerators", "cuda_backend.matmul"),
    "backends.cudnn": ("compat.accelerators", "cudnn"),
    "backends.mkl": ("compat.accelerators", "mkl"),
    "backends.mkldnn": ("compat.accelerators", "mkldnn"),
    "backends.mps": ("compat.accelerators", "mps_backend"),
    "backends.openmp": ("compat.accelerators", "openmp"),
    "backends.opt_einsum": ("compat.accelerators", "opt_einsum"),
    "compiler": ("compat.scripting", ""),
    "cpu": ("compat.accelerators", "cpu"),
    "cpu.amp": ("compat.amp", ""),
    "cuda": ("compat.accelerators", "cuda"),
    "cuda.amp": ("compat.accelerators", "cuda.amp"),
    "cuda.amp.*": ("compat.accelerators", "cuda.amp"),
    "functional": ("", ""),
    "linalg": ("compat.linalg", ""),
    "mps": ("compat.accelerators", "mps"),
    "multiprocessing": ("compat.processes", ""),
    "nn.modules": ("compat.bases", ""),
    "nn.modules.utils": ("compat.layers", ""),
    "nn.modules.*": ("compat.bases", ""),
    "nn.parallel": ("compat.layers", ""),
    "nn.parallel.*": ("compat.layers", ""),
    "nn.utils.clip_grad": ("nn.utils", ""),
    "nn.utils.convert_parameters": ("nn.utils", ""),
    "special": ("compat.special", ""),
    "testing": ("compat.testing", ""),
    "types": ("compat.types", ""),
    "utils": ("compat.utilities", ""),
    "utils.checkpoint": ("compat.checkpoint", ""),
    "utils.data": ("data", ""),
    "utils.data.*": ("data", ""),
    "version": ("compat.types", ""),
    "xpu": ("compat.accelerators", "xpu"),
}
#: Paths at which TinyTorch has something else: PyTorch programs get these in its place.
OVERRIDES: dict[str, tuple[str, str]] = {
    "backends": ("compat.backends", ""),
    "distributed": ("compat.processes", ""),
    "jit": ("compat.scripting", ""),
}


def find_module(path: str, as_torch: bool = False, below: bool = True) -> Any:
    """The module for PyTorch's dotted path below `torch`, or None.

    Args:
        as_torch: for a program that imports torch: what has PyTorch's meaning comes first.
        below: entries that end in ".*" count; not for attributes, which may be other things.

    >>> find_module("utils.data").__name__
    'tinytorch.data'
    """
    if as_torch and path.partition(".")[0] == "fx":
        return None  # ours is for models of PyTorch's own, which is not there
    if as_torch and path in OVERRIDES:
        return _load(*OVERRIDES[path])
    if as_torch and has_own(path):
        return importlib.import_module(f"tinytorch.{path}")
    entry = PATHS.get(path)
    prefix = path
    while below and entry is None and "." in prefix:
        prefix = prefix.rpartition(".")[0]
        entry = PATHS.get(f"{prefix}.*")
    return _load(*entry) if entry is not None else None


def has_own(path: str) -> bool:
    """TinyTorch has a module at this very path."""
    parent, _, name = path.rpartition(".")
    package = importlib.import_module(f"tinytorch.{parent}" if parent else "tinytorch")
    directories = getattr(package, "__path__", None)
    if directories is None:
        return False
    if package.__name__ != f"tinytorch.{parent}".rstrip("."):  # itself only an alias
        return False
    finder = importlib.machinery.PathFinder
    return finder.find_spec(f"{package.__name__}.{name}", directories) is not None


def _load(module: str, attribute: str) -> Any:
    value: Any = importlib.import_module(f"tinytorch.{module}" if module else "tinytorch")
    for name in attribute.split(".") if attribute else ():
        value = getattr(value, name)
    if getattr(value, "__path__", None):  # its files must not be found under a second path
        return _alias(value)
    value.__path__ = []  # Python asks for it in `import utils.data`
    return value


class _Alias(ModuleType):
    """A package under another path: its names, without the files in it."""

    def __init__(self, package: ModuleType) -> None:
        super().__init__(package.__name__, package.__doc__)
        self.__path__: list[str] = []
        self._package = package

    def __getattr__(self, name: str) -> Any:
        return getattr(self._package, name)

    def __dir__(self) -> list[str]:
        return dir(self._package)


_alias = functools.cache(_Alias)


def spec_below_tinytorch(fullname: str) -> Any:
    """The spec for `import tinytorch.utils.data` and the like, or None."""
    module = find_module(fullname.partition(".")[2])
    return None if module is None else spec_of(fullname, module)


class _Loader:
    """Puts a module that exists under another name in place of a new one."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def create_module(self, spec: Any) -> None:
        """None: Python makes an empty module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = self.module


def spec_of(fullname: str, module: ModuleType) -> Any:
    """A spec by which `import fullname` gives this very module."""
    return importlib.machinery.ModuleSpec(fullname, _Loader(module), is_package=True)  # type: ignore[arg-type]
