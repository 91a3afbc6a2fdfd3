"""The student's package: the reference, with the cells that they completed in place of ours.

It is made anew from the two whenever it is needed, and only files that differ are written: so a
process killed at any point, and a newer reference, are both mended by the next command.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tinytorch.files import atomic_write
from tito import scripts
from tito.lessons.needed import SpliceError
from tito.lessons.source import Package, SourceError, Target
from tito.lessons.splice import splice
from tito.workspace.completed import Piece
from tito.workspace.folder import MARK, Workspace
from tito.workspace.lines import code_lines
from tito.workspace.notebook import digest
from tito.workspace.state import is_writable, write

NAME = "tinytorch"
Problem = tuple[Piece, str]


@dataclass
class Report:
    """What making the package came to.

    Attributes:
        written: files that changed, by their path from the root.
        kept: backups of files that somebody had edited by hand.
        problems: cells that the reference of today has no place for, and why.
    """

    written: list[str] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def reference() -> Package:
    """The package beside tito."""
    return Package(scripts.ROOT)


def make(workspace: Workspace, pieces: Sequence[Piece]) -> Report:
    """Bring the package of a workspace to what the reference and the pieces say."""
    texts, problems = spliced(pieces, workspace)
    report = Report(problems=problems)
    manifest = workspace.root / MARK / "package.json"
    known = _known(manifest)
    made: dict[str, str] = {}
    for path in _files():
        text = texts.get(path)
        data = (scripts.ROOT / path).read_bytes() if text is None else text.encode()
        made[path] = digest(data)
        target = workspace.root / path
        old = target.read_bytes() if target.is_file() else None
        if old == data:
            continue
        if old is not None and known.get(path) != digest(old):
            report.kept.append(workspace.keep(target))
        _replace(target, data)
        report.written.append(path)
    for path in known.keys() - made.keys():
        with suppress(FileNotFoundError):
            report.kept.append(workspace.keep(workspace.root / path, move=True))
    if made != known:
        write(manifest, json.dumps(made, indent=1, sort_keys=True) + "\n")
    return report


def make_elsewhere(folder: Path, workspace: Workspace, pieces: Sequence[Piece]) -> list[Problem]:
    """Make the package that a workspace would have, below another folder, to try it out.

    Returns:
        The cells that the reference has no place for.
    """
    texts, problems = spliced(pieces, workspace)
    shutil.copytree(scripts.ROOT / NAME, folder / NAME)  # with the byte code of what stays
    for path, text in texts.items():
        _remove_bytecode(folder / path)
        (folder / path).write_text(text, encoding="utf-8", newline="")
    return problems


def spliced(pieces: Sequence[Piece], workspace: Workspace) -> tuple[dict[str, str], list[Problem]]:
    """The reference's files with cells spliced in, in order, and the cells that do not fit.

    Splicing takes some milliseconds a definition, so the workspace keeps the last result.
    """
    places = sorted({text.partition("::")[0] for p in pieces for text in p.definitions})
    files = [scripts.ROOT / place for place in places]
    files += sorted(Path(inspect.getfile(splice)).parent.glob("*.py"))  # a newer tito may differ
    sources = [path.read_text(encoding="utf-8") if path.is_file() else "" for path in files]
    key = digest(json.dumps([sources, [asdict(piece) for piece in pieces]]).encode())
    cache = workspace.root / MARK / "spliced.json"
    with suppress(FileNotFoundError, ValueError, TypeError, KeyError, IndexError):
        kept = json.loads(cache.read_text(encoding="utf-8"))
        if kept["key"] == key:
            return kept["texts"], [(pieces[i], text) for i, text in kept["problems"]]
    texts, wrong = _splice_all(pieces)
    if is_writable(workspace):
        write(cache, json.dumps({"key": key, "texts": texts, "problems": wrong}))
    return texts, [(pieces[i], text) for i, text in wrong]


def _splice_all(pieces: Sequence[Piece]) -> tuple[dict[str, str], list[tuple[int, str]]]:
    ours = reference()
    texts: dict[str, str] = {}
    wrong = []
    for i, piece in enumerate(pieces):
        try:
            targets = piece.targets
            files = {t.path: texts.get(t.path) or ours.text(t.path) for t in targets}
            texts |= splice(files, targets, piece.cell, piece.context)
        except (SpliceError, SourceError, SyntaxError) as error:
            wrong.append((i, f"{piece.exercise}: {error}"))
    return texts, wrong


def _files() -> list[str]:
    """The files of the reference, by their path from the root."""
    found = []
    for folder, folders, names in os.walk(scripts.ROOT / NAME):
        folders[:] = [name for name in folders if name != "__pycache__"]
        inside = Path(folder).relative_to(scripts.ROOT).as_posix()
        found += [f"{inside}/{name}" for name in names if not name.startswith(".")]
    return sorted(found)


def _known(manifest: Path) -> dict[str, str]:
    """The digest of each file as tito wrote it; {} if that is not known, so that all are kept."""
    try:
        value = json.loads(manifest.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _replace(path: Path, data: bytes) -> None:
    with atomic_write(path, sync=False) as stream:  # the next command mends what power cuts lose
        stream.write(data)
    _remove_bytecode(path)


def _remove_bytecode(path: Path) -> None:
    """Python takes byte code for fresh if time (in seconds) and size of the source agree."""
    folder = path.parent / "__pycache__"
    if folder.is_dir():
        for stale in folder.glob(f"{path.stem}.*.pyc"):
            stale.unlink(missing_ok=True)


def spans(root: Path, definitions: Iterable[str]) -> dict[str, range]:
    """The lines of definitions in the package below `root`; those that it lacks are left out."""
    package = Package(root)
    found = {}
    for text in definitions:
        with suppress(SourceError, SyntaxError):
            definition = package.find(Target.parse(text))
            found[text] = range(definition.first, definition.last + 1)
    return found


def lines_of_code(root: Path, definitions: Iterable[str]) -> dict[str, int]:
    """How many lines of code each definition has in the package below `root`."""
    by_file: dict[str, frozenset[int]] = {}
    counts = {}
    for text, span in spans(root, definitions).items():
        path = Target.parse(text).path
        if path not in by_file:
            by_file[path] = code_lines((root / path).read_text(encoding="utf-8"))
        counts[text] = sum(line in span for line in by_file[path])
    return counts
