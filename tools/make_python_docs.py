"""Makes tinytorch/text/python_docs/*.txt.gz from the documentation of the Python that runs it.

    python tools/make_python_docs.py [folder]

A document is a topic of the language reference (`pydoc_data.topics`), or the docstrings of one
top-level module of the standard library. In the order of their names every tenth goes to the
validation split.
"""

from __future__ import annotations

import ast
import gzip
import inspect
import platform
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

FOLDER = Path(__file__).parents[1] / "tinytorch" / "text" / "python_docs"
EVERY = 10
SEPARATOR = "\n\n\n"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a file, each under the name of what it documents."""

    def visit(node: ast.AST, name: str) -> Iterator[str]:
        if isinstance(node, DOCUMENTED):
            if text := ast.get_docstring(node, clean=False):
                yield f"{name}\n\n{inspect.cleandoc(text)}"
            for child in node.body:
                yield from visit(child, f"{name}.{getattr(child, 'name', '')}")

    yield from visit(ast.parse(path.read_bytes()), path.stem)


def documents() -> list[str]:
    """All documents: the topics, then the modules."""
    found = [f"{name}\n\n{topics[name].strip()}" for name in sorted(topics)]
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.glob("[a-z]*.py")):
        if texts := list(docstrings(path)):
            found.append("\n\n".join(texts))
    return [text.encode("ascii", "ignore").decode() for text in found]


def main(folder: Path) -> None:
    everything = documents()
    splits = {
        "train": [text for i, text in enumerate(everything) if i % EVERY],
        "validation": everything[::EVERY],
    }
    for name, texts in splits.items():
        data = (SEPARATOR.join(texts) + "\n").encode()
        packed = gzip.compress(data, mtime=0)
        (folder / f"{name}.txt.gz").write_bytes(packed)
        print(f"{name}: {len(texts)} documents, {len(data):,} bytes, packed {len(packed):,}")
    print(f"Python {platform.python_version()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
