"""Instructions of one family of processors are in files that say so."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import tinytorch

PACKAGE = Path(tinytorch.__file__).parent
FOREIGN = re.compile(r"\bx86\.|\baarch64\.|readcyclecounter|\brdtsc|\bcpuid\b")


def foreign(source: str) -> list[str]:
    """The names of such intrinsics, and pieces of assembly, in a module that does not say "x86"."""
    if not (FOREIGN.search(source) or "asm(" in source):
        return []
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = {ast.get_docstring(n, clean=False) for n in ast.walk(tree) if isinstance(n, documented)}
    found = []
    for node in ast.walk(tree):
        text = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and FOREIGN.search(text) and text not in texts:
            found.append(text)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "asm":
            code = node.args[1]
            if not (isinstance(code, ast.Constant) and code.value == ""):
                found.append(f"assembly in line {node.lineno}")
    return [] if re.search(r"\bx86\b", ast.get_docstring(tree) or "") else sorted(found)


def test_x86_is_only_in_files_that_say_so() -> None:
    found = {
        str(path.relative_to(PACKAGE)): names
        for path in sorted(PACKAGE.rglob("*.py"))
        if (names := foreign(path.read_text(encoding="utf-8")))
    }
    assert not found, (
        f"say in the docstring of the file that these are x86's, and ask first: {found}"
    )


def test_what_is_found() -> None:
    source = '"""Kernels."""\ne.call(f"x86.avx512.vpdpbusd.{n}")\nb.asm(kind, "pause", "")\n'
    assert foreign(source) == ["assembly in line 3", "x86.avx512.vpdpbusd."]
    assert foreign(source.replace("Kernels", "Kernels with intrinsics of x86")) == []
    assert foreign('declare("llvm.readcyclecounter")') == ["llvm.readcyclecounter"]
    assert foreign('"""x86.avx2 would be faster."""\nb.asm(kind, "", "=r,0", [x])\n') == []
    assert foreign('def f():\n    """Not x86.avx2."""\n') == []
