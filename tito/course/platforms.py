"""How learning platforms name the files in the archives of submissions that they give out.

Canvas    doejane_LATE_4711_90210_02_tensor-1.ipynb      name, user, submission, file, attempt
Moodle    Jane Doe_4711_assignsubmission_file_/02_tensor.ipynb, or without the slash
ours      jane/02_tensor/02_tensor.ipynb, jane/02_tensor.ipynb, jane.ipynb

Source: Canvas, Submissions controller, "Download submissions"; Moodle, mod/assign/locallib.php,
`download_submissions` and `get_plugin_file_name`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

CANVAS = re.compile(r"(?P<name>[^_/]+)(?:_LATE)?_(?P<user>\d+)_(?P<number>\d+)_(?P<file>[^/]+)")
MOODLE = re.compile(
    r"(?P<name>[^/_][^/]*)_(?P<user>\d+)_assignsubmission_(?P<kind>file|onlinetext)_?"
    r"(?P<file>/?[^/]+)"
)
ATTEMPT = re.compile(r"(?P<stem>.+?)(?:-| \()(?P<number>\d{1,3})\)?(?P<suffix>\.[A-Za-z0-9]+)")


class DestinationError(ValueError):
    """A path names no student or no file; the text says why."""


@dataclass(frozen=True)
class Destination:
    """What a path says.

    Attributes:
        name: of the file in the student's folder.
        order: of two files for one place the later one has the greater order, before time.
        account: the platform, and its number for the student: a roster may know them.
    """

    student: str
    name: str
    order: tuple[int, ...] = ()
    account: tuple[str, str] | None = None


def destination(path: str, assignment: str, notebooks: Sequence[str]) -> Destination:
    """The student and the file that a path stands for.

    Args:
        notebooks: of the assignment, without `.ipynb`.

    Raises:
        DestinationError: it has none of the forms.
    """
    if found := MOODLE.fullmatch(path):
        if found["kind"] != "file":
            raise DestinationError("it is a text that was typed in, not a file")
        file, order = _file(found["file"].lstrip("/"), notebooks)
        account = "moodle", found["user"]
        return Destination(folder_name(found["name"], found["user"]), file, order, account)
    if found := CANVAS.fullmatch(path):
        file, order = _file(found["file"], notebooks)
        order = int(found["number"]), *order
        account = "canvas", found["user"]
        return Destination(folder_name(found["name"], found["user"]), file, order, account)
    student, _, rest = path.partition("/")
    if not rest:
        if not student.endswith(".ipynb"):
            raise DestinationError("it names no student: STUDENT/FILE or STUDENT.ipynb")
        student = student.removesuffix(".ipynb")
        if student in notebooks:
            raise DestinationError("it names no student, only the notebook")
        return Destination(student, f"{notebooks[0]}.ipynb")
    rest = rest.removeprefix(f"{assignment}/")
    if "/" in rest:
        raise DestinationError("it is too deep: STUDENT/ASSIGNMENT/FILE or STUDENT/FILE")
    return Destination(student, rest)


def _file(name: str, notebooks: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """The name that a file had before the platform put its attempt to it."""
    found = ATTEMPT.fullmatch(name)
    stem, _, suffix = name.rpartition(".")
    if suffix != "ipynb":
        return name, ()
    order = (int(found["number"]),) if found and found["stem"] in notebooks else (0,)
    if found and found["stem"] in notebooks:
        return f"{found['stem']}.ipynb", order
    if stem in notebooks or len(notebooks) == 1:
        return (f"{stem}.ipynb" if stem in notebooks else f"{notebooks[0]}.ipynb"), order
    raise DestinationError(f"it is none of the notebooks {', '.join(notebooks)}")


def folder_name(name: str, user: str) -> str:
    """A name for a folder: letters of ASCII and the platform's number, which is never the same."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    words = re.findall(r"[A-Za-z0-9]+", plain)
    return "_".join(["-".join(words) or "user", user])


def without_top(paths: Sequence[str], assignment: str, notebooks: Sequence[str]) -> str:
    """The folder around everything, with its slash, if it is no student's; else ""."""
    tops = {path.partition("/")[0] for path in paths}
    rests = [path.partition("/")[2] for path in paths]
    if len(tops) != 1 or not all(rests):
        return ""
    deeper = [rest for rest in rests if "/" in rest]
    if deeper and not all(rest.startswith(f"{assignment}/") for rest in deeper):
        return f"{tops.pop()}/"
    known = {f"{name}.ipynb" for name in notebooks}
    if not deeper and not known & set(rests) and any(r.endswith(".ipynb") for r in rests):
        return f"{tops.pop()}/"
    return ""
