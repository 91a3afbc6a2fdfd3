"""An entry: one Python file with one class. It is read here as text, and never imported."""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from tito.compete.rules import broken_rules

MAX_BYTES, LONGEST_NAME = 256 * 1024, 200
MAX_BRACES = 5000  # Python 3.11 reads an f-string in time that is quadratic in its expressions
HEADER = re.compile(r"^#\s*tito:\s*event\s*=\s*([\w.-]+)\s*$", re.MULTILINE)


class EntryError(Exception):
    """The file cannot be entered; the text says why, and what to change."""


@dataclass(frozen=True)
class Entry:
    """A file that has been read and found to be in order.

    Attributes:
        path: where it was read.
        text: its content.
        event: the name of the event in its header, if there is one.
        class_name: of the one public class in it.
        tree: the syntax of it.
    """

    path: Path
    text: str
    event: str | None
    class_name: str
    tree: ast.Module = field(repr=False, compare=False)

    @property
    def sha256(self) -> str:
        """Of the text: equal code is recognised by it."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def check_rules(self, division: str) -> None:
        """Hold the file to its division's rules.

        Raises:
            EntryError: a rule is broken; the message has the lines.
        """
        if division == "open":
            return
        broken = list(broken_rules(self.tree))
        if broken:
            lines = "".join(f"\n  {line}" for line in broken[:10])
            more = f"\n  and {len(broken) - 10} more" if len(broken) > 10 else ""
            raise EntryError(f"{self.path.name} breaks the kernel division's rules:{lines}{more}")


def read_entry(path: Path) -> Entry:
    """Read an entry's file.

    Raises:
        EntryError: it is missing, too large, no text, no Python, or has not one public class.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EntryError(f"{path} cannot be read: {error.strerror}") from None
    return replace(parse_entry(data, path.name), path=path)


def parse_entry(data: bytes, name: str) -> Entry:
    """An entry from its bytes; `name` is the file's, in messages.

    Raises:
        EntryError: it is too large, no text, no Python, or has not one public class.
    """
    if len(data) > MAX_BYTES:
        raise EntryError(f"{name} has {len(data):,} bytes; an entry has at most {MAX_BYTES:,}")
    if data.count(b"{") > MAX_BRACES:
        raise EntryError(f"{name} has more than {MAX_BRACES:,} braces: no kernel needs as many")
    try:
        text = data.decode("utf-8-sig")
        tree = ast.parse(text)
    except UnicodeDecodeError:
        raise EntryError(f"{name} is no UTF-8 text") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise EntryError(f"{name} is no Python: {error}") from None
    classes = [n.name for n in tree.body if isinstance(n, ast.ClassDef) and n.name[0] != "_"]
    if len(classes) != 1:
        found = ", ".join(classes) or "none"
        raise EntryError(
            f"{name} needs one public class, which is what is measured; it has {found}"
            " (a helper class begins with an underscore)"
        )
    if len(classes[0]) > LONGEST_NAME:
        raise EntryError(f"a class's name has at most {LONGEST_NAME} letters: {classes[0][:20]}...")
    header = HEADER.search(text)
    return Entry(Path(name), text, header[1] if header else None, classes[0], tree)
