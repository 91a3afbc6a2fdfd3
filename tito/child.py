"""What the processes have in common in which `tito graph` and `tito fx` run the user's file."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from tinytorch.errors import TinyTorchError
from tinytorch.graph.passes import OptimizationPass
from tinytorch.graph.semantics import Semantics

USER_ERROR = 1


class RequestError(Exception):
    """Something in the user's request or file that has to be changed; said without a traceback."""


def load_file(file: str) -> ModuleType:
    """The module in a Python file of the user's; files beside it can be imported from it.

    Raises:
        RequestError: there is no such file.
    """
    path = Path(file).resolve()
    if not path.is_file():
        raise RequestError(f"there is no file {file}")
    sys.path.insert(0, str(path.parent))
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def attribute(file: str, name: str) -> tuple[Any, ModuleType]:
    """What has this name in a file of the user's, and the module.

    Raises:
        RequestError: there is nothing; the message says what there is.
    """
    module = load_file(file)
    if not hasattr(module, name):
        known = ", ".join(n for n, v in vars(module).items() if callable(v) and n[0] != "_")
        raise RequestError(f"{file} has no {name!r}; it has {known}")
    return getattr(module, name), module


def passes_of(names: list[str] | None, semantics: Semantics) -> list[str | OptimizationPass] | None:
    """Passes by name, and those of the user's own files: FILE.py:CLASS.

    Raises:
        RequestError: there is no such file or class, or it is no pass.
    """
    if names is None:
        return None
    found: list[str | OptimizationPass] = []
    for name in names:
        file, _, cls = name.strip().rpartition(":")
        if not file.endswith(".py"):
            found.append(name.strip())
            continue
        made, _ = attribute(file, cls)
        if not (isinstance(made, type) and issubclass(made, OptimizationPass)):
            raise RequestError(
                f"{cls} of {file} is no pass: it must be a class derived from "
                "tinytorch.graph.passes.OptimizationPass"
            )
        found.append(made(semantics))
    return found


def answer(command: Callable[[], Any], *expected: type[Exception]) -> int:
    """Run a command and print what it returns as JSON, if anything; returns the exit code.

    Args:
        expected: errors that, like ours, are said in their own sentence.
    """
    try:
        result = command()
    except (RequestError, TinyTorchError, KeyError, *expected) as error:
        print(f"error: {error.args[0]}", file=sys.stderr)
        return USER_ERROR
    except Exception:  # of the user's own code: they want to see where
        traceback.print_exc()
        return USER_ERROR
    if result is not None:
        print(json.dumps(result, indent=2))
    return 0
