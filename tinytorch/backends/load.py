"""A backend from a file of the user's, for command lines: `--backend mine.py:MyBackend`."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from tinytorch.backends import find_backend
from tinytorch.backends.base import ComputeBackend
from tinytorch.backends.signatures import adapted
from tinytorch.errors import BackendError


def load_backend(name: str) -> ComputeBackend:
    """The backend of this name, or that of a class in a file, FILE.py:CLASS.

    The file is run; files beside it can be imported from it.

    Raises:
        BackendError: there is no such backend, file or class, or the class is no backend.
        MissingExtraError: the backend needs a package that is not installed.

    >>> load_backend("numpy")
    <NumpyBackend>
    """
    file, _, cls = name.rpartition(":")
    if not file.endswith(".py"):
        return find_backend(name)
    made = _attribute(Path(file), cls)
    if not (isinstance(made, type) and issubclass(made, ComputeBackend)):
        raise BackendError(
            f"{cls} of {file} is no class derived from ComputeBackend; derive it from one, for "
            f"example NumpyBackend"
        )
    found: ComputeBackend = adapted(made)()
    return found


def _attribute(path: Path, name: str) -> object:
    if not path.is_file():
        raise BackendError(f"there is no file {path}")
    sys.path.insert(0, str(path.resolve().parent))
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # its name ends in .py
    module = sys.modules[path.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        known = [n for n, v in vars(module).items() if isinstance(v, type) and n[0] != "_"]
        raise BackendError(f"{path} has no class {name!r}; it has {', '.join(known) or 'none'}")
    return getattr(module, name)
