"""YAML of a lesson: the entries at its top, and the options of a directive, with their lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

try:
    import yaml
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "lessons need pyyaml, which is not installed: pip install 'tinytorch[course]'"
    ) from error

# libyaml's parser where PyYAML was built with it: reading the lessons is most of `tito status`.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Check = Callable[[Any], str | None]  # None if the value is good, else what it should be
Known = dict[str, tuple[Check, bool]]  # for each key its check, and whether it may be left out
Report = Callable[[int, str], None]  # is told the line and the message of what is wrong
ID = re.compile(r"[a-z][a-z0-9-]{0,49}")


@dataclass(frozen=True)
class Fence:
    """A fenced block: its info string, its content, the lines of both."""

    info: str
    body: list[str]
    line: int

    def split(self) -> tuple[str, list[str], int]:
        """Options, content below them, and the line where the content begins."""
        if self.body and self.body[0].strip() == "---":
            for i, line in enumerate(self.body[1:], start=1):
                if line.strip() == "---":
                    return "\n".join(self.body[1:i]), self.body[i + 1 :], self.line + i + 2
        return "", self.body, self.line + 1

    def code(self, what: str, report: Report) -> tuple[str, int]:
        """The code below the options, and the line where it begins; an empty one is reported."""
        _, body, line = self.split()
        source = "\n".join(body)
        if not source.strip():
            report(self.line, f"this {what} is empty")
        return source.strip("\n").rstrip(), line + len(source) - len(source.lstrip("\n"))


class Options:
    """Entries of a YAML block, checked against what may be there.

    Args:
        text: the block, without the lines `---` around it.
        first: the line of its first line in the file.

    Attributes:
        values: the good entries.
        lines: the line of each entry.
    """

    def __init__(
        self,
        text: str,
        first: int,
        known: Known,
        report: Report,
    ) -> None:
        self.values: dict[str, Any] = {}
        self.lines: dict[str, int] = {}
        try:
            root, loaded = _parse(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            problem = getattr(error, "problem", None) or error
            report(first + (mark.line if mark else 0), f"not YAML: {problem}")
            return
        if not isinstance(root, yaml.MappingNode):
            report(first, "expected `key: value` lines")
            return
        for key_node, _ in root.value:
            key, line = str(key_node.value), first + key_node.start_mark.line
            if key in self.lines:
                report(line, f"{key} is given twice")
            elif key not in known:
                report(line, f"unknown option {key}; known: {', '.join(known)}")
            else:
                self.lines[key] = line
                wrong = known[key][0](loaded[key])
                if wrong:
                    report(line, f"{key} must be {wrong}, not {loaded[key]!r}")
                else:
                    self.values[key] = loaded[key]
        missing = [k for k, (_, optional) in known.items() if not optional and k not in self.lines]
        if missing:
            report(first, f"missing: {', '.join(missing)}")


def _parse(text: str) -> tuple[Any, Any]:
    """The node at the root, which knows the lines, and the value that it stands for."""
    loader = _LOADER(text)
    try:
        root = loader.get_single_node()
        return root, None if root is None else loader.construct_document(root)
    finally:
        loader.dispose()


def is_text(value: Any) -> str | None:
    """A text that is not empty."""
    return None if isinstance(value, str) and value.strip() else "a text"


def is_id(value: Any) -> str | None:
    """By which a block is called."""
    good = isinstance(value, str) and ID.fullmatch(value)
    return None if good else "lower-case letters, digits and hyphens, a letter first"


def is_bool(value: Any) -> str | None:
    """true or false."""
    return None if isinstance(value, bool) else "true or false"


def is_points(value: Any) -> str | None:
    """A whole number above 0."""
    good = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return None if good else "a whole number above 0"


def is_amount(value: Any) -> str | None:
    """A number above 0."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    return None if good else "a number above 0"


def is_texts(value: Any) -> str | None:
    """A list of texts; it may be empty."""
    good = isinstance(value, list) and not any(is_text(v) for v in value)
    return None if good else "a list of texts"


def is_choices(value: Any) -> str | None:
    """Two texts or more, all different."""
    good = is_texts(value) is None and len(value) >= 2 and len(set(value)) == len(value)
    return None if good else "a list of two or more different texts (quote numbers)"


def is_code(value: Any) -> str | None:
    """A block of lines, or a list of them."""
    return is_texts(value) and is_text(value) and "a text or a list of lines"
