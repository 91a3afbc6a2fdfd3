"""The student's own backends: `backends/NAME.py` in the workspace, one class a file.

They are read here as text. What runs them is a child process that is given FILE.py:CLASS.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from tito import console
from tito.workspace.folder import Workspace, WorkspaceError
from tito.workspace.state import write

MINE = "mine"
FOLDER = "backends"
BASES = {
    "naive": "tinytorch.backends.naive.NaiveBackend",
    "numpy": "tinytorch.backends.numpy.NumpyBackend",
    "blocked": "tinytorch.backends.blocked.BlockedBackend",
    "optimized": "tinytorch.backends.optimized.OptimizedBackend",
}
KERNELS = {
    "matmul": ("self, a, b", "a, b", "a (..., m, k) times b (..., k, n), a new array (..., m, n)."),
    "conv2d": (
        "self, x, w, b=None, *, stride, padding, dilation, groups",
        "\n            x, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups\n"
        "        ",
        "x (n, c, h, w) with filters w (o, c / groups, kh, kw) and bias b (o,): (n, o, oh, ow).",
    ),
}
FILE = '''"""My backend: what I run in another way than {base} does.

    tito backend check {name}           is it right?
    tito backend compare {name}         is it fast, on my MLP and my CNN?
    tito milestone run cnn --backend {name}
    tito ladder
"""

from {module} import {cls}


class MyBackend({cls}):
    """An op runs as the method with its name; those that are not here run as in {cls}."""
{methods}'''
METHOD = '''
    def {name}({signature}):
        """{says}"""
        return super().{name}({call})
'''


def path_of(workspace: Workspace, name: str = MINE) -> Path:
    """Where the student's backend of this name is."""
    return workspace.root / FOLDER / f"{name}.py"


def own_names(workspace: Workspace) -> list[str]:
    """The names of the student's backends, `mine` first."""
    names = {path.stem for path in (workspace.root / FOLDER).glob("[!_]*.py")}
    return sorted(names, key=lambda name: (name != MINE, name))


def text_of(name: str, base: str = "naive", kernels: Sequence[str] = ("matmul",)) -> str:
    """A file to begin with: right, and as fast as the backend it is derived from.

    Raises:
        WorkspaceError: there is no such base or kernel; the message has those there are.
    """
    if base not in BASES:
        raise WorkspaceError(console.unknown("backend", base, list(BASES)))
    for kernel in kernels:
        if kernel not in KERNELS:
            raise WorkspaceError(console.unknown("kernel", kernel, list(KERNELS)))
    module, _, cls = BASES[base].rpartition(".")
    methods = [
        METHOD.format(name=k, signature=KERNELS[k][0], call=KERNELS[k][1], says=KERNELS[k][2])
        for k in dict.fromkeys(kernels)
    ]
    return FILE.format(
        name=name, base=f"the {base} backend", module=module, cls=cls, methods="".join(methods)
    )


def begin(workspace: Workspace, name: str, text: str, *, replace: bool = False) -> Path:
    """Write a file of the student's backends.

    Args:
        replace: one that is there becomes a backup.

    Raises:
        WorkspaceError: it is there, or the name is none for a file of Python.
    """
    if not name.isidentifier() or name.startswith("_") or name in BASES:
        raise WorkspaceError(
            f"{name!r} cannot be the name of a backend of yours: take a word of letters, digits "
            f"and _ that is not one of {', '.join(BASES)}"
        )
    path = path_of(workspace, name)
    if path.exists():
        if not replace:
            raise WorkspaceError(
                f"{path} is there: write in it, name another (tito backend new NAME), or begin "
                f"anew with --replace, which keeps it as a backup"
            )
        workspace.keep(path)
    path.parent.mkdir(exist_ok=True)
    write(path, text)
    return path


def resolve(backend: str, workspace: Workspace | None) -> str:
    """What a child process is to be told for `--backend`: FILE.py:CLASS, or a registered name.

    Args:
        backend: `mine` or another file of `backends/`; FILE.py:CLASS; FILE.py with one class; or
            any other name, which is returned as it is.

    Raises:
        WorkspaceError: there is no such file, or it has not one public class.
    """
    file, _, cls = backend.rpartition(":")
    if file.endswith(".py"):
        if not Path(file).is_file():
            raise WorkspaceError(f"there is no file {file}")
        return f"{Path(file).resolve()}:{cls}"
    if backend.endswith(".py"):
        path = Path(backend).resolve()
    elif workspace is not None and path_of(workspace, backend).is_file():
        path = path_of(workspace, backend)
    elif backend == MINE:
        where = "in a workspace" if workspace is None else "with `tito backend new`"
        raise WorkspaceError(f"there is no backends/{MINE}.py here: make one {where}")
    else:
        return backend
    return f"{path}:{class_in(path)}"


def class_in(path: Path) -> str:
    """The one public class that a file defines.

    Raises:
        WorkspaceError: it cannot be read, or has none or several.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8-sig"), str(path))
    except FileNotFoundError:
        raise WorkspaceError(f"there is no file {path}") from None
    except (SyntaxError, ValueError) as error:
        raise WorkspaceError(f"{path} is no Python: {error}") from None
    found = [n.name for n in tree.body if isinstance(n, ast.ClassDef) and n.name[0] != "_"]
    if len(found) != 1:
        raise WorkspaceError(
            f"{path} has {', '.join(found) or 'no class'}: name the class of your backend, as in "
            f"{path.name}:{found[0] if found else 'MyBackend'}"
        )
    return found[0]
