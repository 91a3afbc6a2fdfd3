"""Running PyTorch programs: TinyTorch under the name `torch`."""

from __future__ import annotations

import contextlib
import importlib
import runpy
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType, TracebackType
from typing import Any

import tinytorch
from tinytorch.compat import types
from tinytorch.compat.answers import explain, sentence_for
from tinytorch.compat.modules import OVERRIDES, find_module, spec_of


class Torch(ModuleType):
    """The module `torch` of a program: TinyTorch, with PyTorch's meaning where a name differs."""

    def __getattr__(self, name: str) -> Any:
        if name in OVERRIDES:
            return find_module(name, as_torch=True)
        try:
            return getattr(tinytorch, name)
        except AttributeError:
            module = None if name.startswith("_") else _imported(f"torch.{name}")
            if module is None:
                raise
            return module


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


class TorchFinder:
    """Finds `torch` and all below it in TinyTorch, and never an installed PyTorch."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> Any:
        """The spec of a module of PyTorch's."""
        if fullname == "einops.layers.torch":
            from tinytorch.compat import einops_layers

            return spec_of(fullname, einops_layers)
        if not fullname.startswith("torch."):
            return None
        module = find_module(fullname.partition(".")[2], as_torch=True)
        if module is None:
            sentence = sentence_for(*fullname.rpartition(".")[::2])
            raise ModuleNotFoundError(
                f"no module named {fullname!r}: TinyTorch runs this program in place of PyTorch "
                f"and has nothing for this path "
                + (f"({sentence})" if sentence else "(see docs/pytorch.md)"),
                name=fullname,
            )
        return spec_of(fullname, module)


def _make_torch() -> Torch:
    torch = Torch("torch", tinytorch.__doc__)
    names = {k: v for k, v in vars(tinytorch).items() if k not in OVERRIDES and k[0] != "_"}
    vars(torch).update(names, __version__=types.__version__, __path__=[], __file__=__file__)
    return torch


def install() -> None:
    """Make every later `import torch` in this process import TinyTorch.

    Raises:
        ImportError: PyTorch itself was imported before.
    """
    present = sys.modules.get("torch")
    if isinstance(present, Torch):
        return
    if present is not None:
        raise ImportError(
            "PyTorch was imported before tinytorch.as_torch: import tinytorch.as_torch first, or "
            "run the program by `python -m tinytorch program.py`"
        )
    sys.modules["torch"] = _make_torch()
    sys.meta_path.insert(0, TorchFinder)
    sys.excepthook = _excepthook


def _excepthook(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    explain(error)
    sys.__excepthook__(kind, error, traceback)


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """A block in which `import torch` imports TinyTorch; PyTorch is as it was after it."""
    away = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_torch(name)}
    hook = sys.excepthook
    install()
    try:
        yield
    finally:
        for name in list(filter(_is_torch, sys.modules)):
            del sys.modules[name]
        sys.modules.update(away)
        sys.meta_path.remove(TorchFinder)
        sys.excepthook = hook


def _is_torch(name: str) -> bool:
    return name == "torch" or name.startswith("torch.")


def run_program(path: str, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Run a file as the main program, with `torch` in it meaning TinyTorch; returns its globals."""
    before = sys.argv, list(sys.path)
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(importlib.import_module("pathlib").Path(path).resolve().parent))
    try:
        return runpy.run_path(path, run_name="__main__")
    except TypeError as error:
        explain(error)
        raise
    finally:
        sys.argv, sys.path[:] = before
