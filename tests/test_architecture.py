"""What the design promises of the code itself: direction of imports, cheap import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.syntax import PACKAGE, nodes, tree

# A file may import what is in its own layer or above it in this list.
LAYERS = [
    ["errors", "files", "collector", "absent"],
    [
        "dtypes",
        "op",
        "program",
        "dtype_rules",
        "scalar",
        "shapes",
        "shapes_attention",
        "shapes_conv",
        "shapes_ctc",
        "shapes_quantized",
        "ops",
    ],
    ["tensor_class"],
    ["jit"],
    ["backends"],
    ["state", "history", "unrolled", "dispatch", "updates", "replay"],
    [
        "functions",
        "random",
        "decompositions",
        "decompositions_attention",
        "decompositions_ctc",
        "decompositions_quantized",
        "formulas",
        "gradients",
    ],
    ["autograd"],
    ["tensor", "values", "func", "formatting", "creation"],
    ["nn", "optim", "data", "bench", "testing", "serialization", "distributions"],
    ["training", "text"],
    ["distributed"],
    ["graph"],
    ["compression"],
    ["onnx", "fx"],
    ["compat"],
    ["as_torch", "__main__"],
]
# Imports under TYPE_CHECKING of a module that imports this one at run time.
TYPED_BACK = 46


def _layer(name: str) -> int:
    for i, layer in enumerate(LAYERS):
        if name in layer:
            return i
    pytest.fail(f"tinytorch/{name} is in no layer: add it to LAYERS where the design has it")


@cache
def _for_types(path: Path) -> frozenset[ast.AST]:
    """What is there for type checking only."""
    return frozenset(
        child
        for node in nodes(path)
        if isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING"
        for child in ast.walk(node)
    )


@cache
def _modules(path: Path) -> set[str]:
    """Full names of what a file imports at its top; `from a import b` counts as a.b."""
    return {
        f"{node.module}.{alias.name}"
        for node in tree(path).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _imports(path: Path) -> set[str]:
    """Names directly below `tinytorch` that a file imports, but for type checking."""
    names = set()
    for node in nodes(path) - _for_types(path):
        if isinstance(node, ast.ImportFrom) and node.module == "tinytorch":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tinytorch."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {a.name.split(".")[1] for a in node.names if a.name.startswith("tinytorch.")}
    return names


def test_imports_run_one_way() -> None:
    """In one test: a file takes a hundredth of a second, and a test as much again."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if relative == Path("__init__.py"):
            continue
        own = _layer(relative.parts[0].removesuffix(".py"))
        for name in _imports(path):
            is_module = (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()
            if is_module and _layer(name) > own:
                found.append(f"{relative} imports tinytorch.{name}, which is above it")
    assert found == []


def _edges(path: Path, names: set[str], typed: bool = False) -> set[str]:
    """The modules among `names` that a file imports at run time, at its top or in a function.

    Args:
        typed: those that it imports for type checking only instead.
    """
    for_types = _for_types(path)
    found = set()
    for node in for_types if typed else nodes(path) - for_types:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in names else node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & names


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph[name]
    return seen


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The strongly connected components of more than one module."""
    reach = {name: _reachable(graph, name) for name in graph}
    found = set()
    for name, others in reach.items():
        if name in others:
            found.add(frozenset(o for o in others if name in reach[o]))
    return found


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a", "d"}}
    assert circles(graph) == {frozenset({"b", "c"})}


def _import_graph(typed: bool = False) -> dict[str, set[str]]:
    files = {
        ".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): p
        for p in PACKAGE.rglob("*.py")
    }
    return {n: _edges(path, files.keys() - {n}, typed) for n, path in files.items()}


def test_no_imports_at_run_time_make_a_circle() -> None:
    found = [sorted(circle) for circle in circles(_import_graph())]
    assert not found, f"modules that import each other at run time, maybe in functions: {found}"


def test_imports_for_types_alone_are_counted() -> None:
    """Each is a thing that knows of what is built on it, if only to say what it takes."""
    graph = _import_graph()
    back = {
        (name, other)
        for name, others in _import_graph(typed=True).items()
        for other in others
        if name in _reachable(graph, other)
    }
    assert len(back) <= TYPED_BACK, (
        f"{len(back)} imports under TYPE_CHECKING, of {TYPED_BACK} allowed, close a circle: "
        f"{sorted(back)}"
    )


# What is found out about a graph, ours or torch.fx's, by one definition over `Semantics`.
ANALYSES = {
    "Storages": "graph/storages.py",  # which memory each value is in
    "lifetimes": "graph/memory.py",  # from where to where memory is alive
    "accumulate": "graph/memory.py",  # the bytes alive at each node
    "last_uses": "graph/interpret.py",  # when a run lets go of each value
    "Aliasing": "graph/passes/aliasing.py",  # which memory is written, and which leaves the graph
    "Problem": "graph/recompute/problem.py",  # what may be computed again, and what that does
    "find_frontier": "graph/recompute/frontier.py",  # which of it to take
    "Walk": "graph/recompute/walk.py",  # what a choice does to memory and time, event by event
}


def _definitions(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in nodes(path) if isinstance(node, kinds)}


def _calls(path: Path, name: str) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
        for node in nodes(path)
    )


WORLDS = [*(PACKAGE / "graph").rglob("*.py"), *(PACKAGE / "fx").rglob("*.py")]


@pytest.mark.parametrize("name", ANALYSES)
def test_an_analysis_is_defined_once_for_our_graphs_and_those_of_pytorch(name: str) -> None:
    same = re.compile(rf"_*{name}", re.IGNORECASE)
    homes = [str(p.relative_to(PACKAGE)) for p in WORLDS if any(map(same.fullmatch, _top(p)))]
    assert homes == [ANALYSES[name]]
    users = {
        path.relative_to(PACKAGE).parts[0]
        for path in WORLDS
        if path == PACKAGE / ANALYSES[name]
        or any(imported.endswith(f".{name}") for imported in _modules(path))
    }
    assert users == {"graph", "fx"}, f"{name} is used by {users} alone"


@cache
def _top(path: Path) -> set[str]:
    """What a file defines at its top; methods of `Semantics` may have the name of an analysis."""
    body = tree(path).body
    return {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def test_each_world_says_only_which_memory_its_values_are_in() -> None:
    made = {name: [p for p in WORLDS if _calls(p, name)] for name in ("Storages", "Lifetime")}
    names = {name: {str(p.relative_to(PACKAGE)) for p in paths} for name, paths in made.items()}
    assert names == {
        "Storages": {"graph/semantics.py", "fx/semantics/storages.py"},
        "Lifetime": {"graph/memory.py", "fx/profile/profiler.py"},  # there: of inputs, for ever
    }
    own = re.compile(r"\w*(lifetime|liveness|last_(use|read)|alive)\w*", re.IGNORECASE)
    found = {n for p in (PACKAGE / "fx").rglob("*.py") for n in _definitions(p) if own.fullmatch(n)}
    assert not found, f"{found} of fx: what follows from storages is in tinytorch/graph/memory.py"


OPTIMIZED = PACKAGE / "backends" / "optimized"
COMPILER = PACKAGE / "graph" / "compiler"
MAPS = [
    PACKAGE / "jit",
    PACKAGE / "text",
    PACKAGE / "compression",
    PACKAGE / "text" / "kernels",
    PACKAGE / "distributed",
    OPTIMIZED,
    *(f for f in sorted(OPTIMIZED.iterdir()) if (f / "__init__.py").exists()),
    COMPILER,
    COMPILER / "native",
    PACKAGE / "graph" / "recompute",
]


def _listed(package: Path) -> list[str]:
    """The modules that a package's docstring lists, one a line, in that order."""
    text = ast.get_docstring(tree(package / "__init__.py")) or ""
    parts = {p.stem for p in package.iterdir() if p.stem[0] != "_"}
    return [word for line in text.splitlines() if (word := line.partition(" ")[0]) in parts]


@pytest.mark.parametrize("package", MAPS, ids=lambda p: p.name)
def test_the_map_of_a_package_lists_its_files_in_the_order_of_imports(package: Path) -> None:
    listed = _listed(package)
    parts = [p for p in package.iterdir() if p.stem[0] != "_" and (p.suffix == ".py" or p in MAPS)]
    assert sorted(listed) == sorted(p.stem for p in parts)
    prefix = ".".join(package.relative_to(PACKAGE.parent).parts)
    for part in parts:
        for path in part.rglob("*.py") if part.is_dir() else [part]:
            for name in _modules(path):
                inner = name.removeprefix(f"{prefix}.").split(".")[0]
                if name.startswith(f"{prefix}.") and inner in listed:
                    assert listed.index(inner) <= listed.index(part.stem), (
                        f"{path.relative_to(PACKAGE)} imports {name}, which is below it"
                    )


@pytest.mark.parametrize("module", ["numba", "torch", "matplotlib", "rich", "typer", "safetensors"])
def test_import_brings_nothing_but_numpy(module: str) -> None:
    code = f"import sys, tinytorch; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
