"""Makes tinytorch/text/unicode_classes.txt: which characters are letters, numbers and whitespace.

    python tools/make_unicode_classes.py [output.txt]

The version of Unicode is the one that tiktoken's and HF's engines have. Python 3.14's `unicodedata`
has it; an older Python needs the package `unicodedata2` in that version.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

VERSION = "16.0.0"
OUTPUT = Path(__file__).parents[1] / "tinytorch" / "text" / "unicode_classes.txt"
CONTROLS = frozenset("\t\n\v\f\r\x85")  # White_Space beyond the separators, PropList.txt


def database() -> ModuleType:
    """The module that knows characters by that version."""
    for name in ("unicodedata", "unicodedata2"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if module.unidata_version == VERSION:
            return module
    raise SystemExit(f"needs Unicode {VERSION}: pip install unicodedata2=={VERSION}")


def class_of(data: ModuleType, char: str) -> str:
    """letter (General_Category L*), number (N*), space (White_Space), or nothing."""
    if char in CONTROLS:
        return "space"
    return {"L": "letter", "N": "number", "Z": "space"}.get(data.category(char)[0], "")


def ranges(data: ModuleType) -> Iterator[tuple[str, int, int]]:
    """(class, first, last) of each run of characters of one class."""
    first, current = 0, ""
    for code in range(0x110001):
        name = class_of(data, chr(code)) if code < 0x110000 else ""
        if name != current:
            if current:
                yield current, first, code - 1
            first, current = code, name


def main(output: Path) -> None:
    lines = [f"Unicode {VERSION}"]
    lines += [f"{name} {first:X}-{last:X}" for name, first, last in ranges(database())]
    output.write_text("\n".join(lines) + "\n", encoding="ascii", newline="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT)
