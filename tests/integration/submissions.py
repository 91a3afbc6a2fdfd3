"""Forty and more notebooks handed in for one lesson: honest, unlucky and hostile ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tito.lessons.mistake import load_mistakes
from tito.lessons.model import Lesson

LOOPS = "while True:\n    pass"
SWALLOWS = """
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""
FORK_BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
MEMORY_BOMB = "kept = []\nwhile True:\n    kept.append(b'x' * (1 << 24))"
DISK_BOMB = """
import itertools
for number in itertools.count():
    with open(f"/tmp/{number}", "wb") as file:
        file.write(bytes(1 << 20))
"""
NETWORK = "import socket\nreturn socket.create_connection(('192.0.2.1', 80), timeout=60).recv(100)"
SEGFAULT = "import ctypes\nctypes.string_at(0)"
SUICIDE = "import os\nos.kill(os.getpid(), 9)"

GRADEBOOK = """
import glob, os, sqlite3
for path in [{gradebook!r}, *glob.glob("/*/*/gradebook.db")]:
    try:
        database = sqlite3.connect(path)
        database.execute("UPDATE grade SET auto_score = 1000, manual_score = 1000")
        database.execute("UPDATE grade_cell SET max_score = 1000")
        database.commit()
    except (sqlite3.Error, OSError) as error:
        print(path, error)
for name in ("grades.json", "results.json", "/autograder/results/results.json"):
    try:
        open(name, "w").write('{{"score": 1000}}')
    except OSError as error:
        print(error)
"""
READ_TESTS = """
import gc, glob, os, sys
found = []
def look():
    for folder in ({course!r}, "/work", "/home", "/tmp", "/root", "/srv"):
        for path in glob.glob(folder + "/**/*.ipynb", recursive=True):
            found.append(open(path, errors="replace").read())
    for each in gc.get_objects():
        if isinstance(each, str) and "equal(" in each:
            found.append(each)
    frame = sys._getframe()
    while frame is not None:
        found.append(repr(frame.f_code.co_consts) + repr(frame.f_code.co_names))
        frame = frame.f_back
    print("\\n".join(found))
    raise ValueError("\\n".join(found))
def normalize_dim(*a, **k): look()
def infer_size(*a, **k): look()
def shape_arguments(*a, **k): look()
try:
    look()
except ValueError:
    pass
"""
TRANSFORMER = """
def skip(lines):
    return ["pass\\n"] if any("equal(" in x or "raises(" in x for x in lines) else lines
get_ipython().input_transformers_cleanup.append(skip)
get_ipython().input_transformers_post.append(skip)
"""
AST_TRANSFORMER = """
import ast, builtins
class Skip(ast.NodeTransformer):
    def visit_Expr(self, node):
        return ast.Pass()
get_ipython().ast_transformers.append(Skip())
real = compile
def skipping(source, *args, **kwargs):
    return real("pass" if "__tito__" in str(source) else source, *args, **kwargs)
builtins.compile = skipping
builtins.exec = lambda *args: None
"""
PATCHED = """
import builtins, sys
import numpy as np
import tito.checks
nothing = lambda *args, **kwargs: None
for name in ("equal", "close", "raises", "check", "difference", "distance"):
    setattr(tito.checks, name, nothing)
np.array_equal = np.allclose = lambda *args, **kwargs: True
np.testing.assert_allclose = np.testing.assert_array_equal = nothing
builtins.AssertionError = ZeroDivisionError
equal = close = raises = check = nothing
class __tito__:
    got = both = truth = outcome = local = key = staticmethod(nothing)
"""
EQUALS_ALL = """
class Anything(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __getattr__(self, name): return self
    def __call__(self, *args, **kwargs): return self
    def __len__(self): return 1
    def __iter__(self): return iter(())
    def __array__(self, *args, **kwargs):
        import numpy
        return numpy.array(1.0)
    __class__ = property(lambda self: tuple)
normalize_dim = infer_size = shape_arguments = lambda *args, **kwargs: Anything()
"""
THIEF = """
import sys
def steal(*args, **kwargs):
    frame = sys._getframe(1)
    while frame is not None:
        for name in ("expected", "answer", "want", "wanted", "result"):
            for names in (frame.f_locals, frame.f_globals):
                if name in names:
                    return names[name]
        numbers = [c for c in frame.f_code.co_consts if isinstance(c, (int, tuple))]
        if numbers:
            return numbers[-1]
        frame = frame.f_back
normalize_dim = infer_size = shape_arguments = steal
"""
FORGER = """
import gc
def forge(*args, **kwargs):
    for each in gc.get_objects():
        if type(each).__name__ == "Pipe":
            for site in range(12):
                for got in (["int", "0"], ["bool", True], ["tuple", []]):
                    each.tell(site=site, got=got, held=True, passed=True, score=12,
                              raised=["builtins.ValueError", "builtins.IndexError"], message="")
            each.tell(end="count-from-the-end-values", error=None)
            each.tell(finished=True)
normalize_dim = infer_size = shape_arguments = forge
forge()
"""
LEFT_BEHIND = """
import os, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
if os.fork() == 0:
    time.sleep(1000)
if os.fork() == 0:
    pass  # comes back into the kernel
"""
NOISE = """
import os, sys
for descriptor in range(20):
    try:
        os.write(descriptor, b'{"end": "finished", "score": 12} noise')
    except OSError:
        pass
print('{"ready": true}', file=sys.stderr)
"""
MAGICS = "%matplotlib inline\n!echo hello\n%timeit -n1 -r1 pass\ndisplay(3)"
WARNS = "import sys, warnings\nwarnings.warn('careful')\nprint('a warning', file=sys.stderr)\n"
PRINTS = "for number in range(50_000):\n    print('line', number)"
MARKUP = """
from IPython.display import HTML, display
display(HTML("<script>stolen = 1</script>"))
print("<script>stolen = 2</script>")
"""


@dataclass(frozen=True)
class Submission:
    """What a student hands in, and what it deserves.

    Attributes:
        state: of the grader at the end.
        files: what lies beside the notebook.
    """

    student: str
    text: str
    points: float
    state: str = "graded"
    files: tuple[tuple[str, str], ...] = ()


class Notebook:
    """The notebook that students got, being filled in."""

    def __init__(self, release: dict[str, Any], source: dict[str, Any], brief: bool) -> None:
        self.data = deepcopy(release)
        if brief:
            self.data["cells"] = [cell for cell in self.data["cells"] if _grade_id(cell)]
        self.source = {_grade_id(cell): cell for cell in source["cells"]}

    def cell(self, name: str) -> dict[str, Any]:
        return next(cell for cell in self.data["cells"] if _grade_id(cell) == name)

    @property
    def tests(self) -> list[dict[str, Any]]:
        mine = self.data["cells"]
        return [c for c in mine if c["metadata"].get("nbgrader", {}).get("grade")]

    def solve(self, *exercises: str) -> Notebook:
        for name in exercises:
            self.cell(name)["source"] = self.source[name]["source"]
        return self

    def write(self, exercise: str, code: str) -> Notebook:
        self.cell(exercise)["source"] = code
        return self

    def above(self, code: str, kind: str = "code") -> Notebook:
        """A cell of the student's own, first of all."""
        cell = {"cell_type": kind, "id": "mine", "metadata": {}, "source": code}
        if kind == "code":
            cell |= {"outputs": [], "execution_count": None}
        self.data["cells"].insert(0, cell)
        return self

    def below(self, exercise: str, code: str) -> Notebook:
        cell = self.cell(exercise)
        cell["source"] = "".join(cell["source"]) + "\n\n" + code
        return self

    @property
    def text(self) -> str:
        return json.dumps(self.data)


def _grade_id(cell: dict[str, Any]) -> str:
    return str(cell["metadata"].get("nbgrader", {}).get("grade_id", ""))


def _body(signature: str, code: str) -> str:
    lines = code.strip().replace("\n", "\n    ")
    return f"def {signature}:\n    {lines}\n"


def submissions(lesson: Lesson, course: Path, brief: bool = False) -> list[Submission]:
    """All of them, for the lesson "setup".

    Args:
        brief: without the text and the cells that carry no points.
    """
    name = lesson.folder
    release = json.loads((course / "release" / name / f"{name}.ipynb").read_text("utf-8"))
    source = json.loads((course / "source" / name / f"{name}.ipynb").read_text("utf-8"))
    first, second, third = (exercise.id for exercise in lesson.exercises)
    worth = {exercise.id: exercise.points for exercise in lesson.exercises}
    full = float(lesson.points)
    made: list[Submission] = []

    def empty() -> Notebook:
        return Notebook(release, source, brief)

    def solved() -> Notebook:
        return empty().solve(first, second, third)

    def add(student: str, notebook: Notebook | str, points: float, **more: Any) -> None:
        text = notebook if isinstance(notebook, str) else notebook.text
        made.append(Submission(student, text, points, **more))

    def change(student: str, edit: Callable[[Notebook], object]) -> None:
        """A right solution in an odd notebook."""
        notebook = solved()
        edit(notebook)
        add(student, notebook, full)

    def spoil(student: str, code: str) -> None:
        """The second exercise does harm when it is called; the others are right."""
        body = _body("infer_size(shape, elements)", code)
        add(student, solved().write(second, body), full - worth[second])

    def attack(student: str, code: str) -> None:
        """Nothing is solved, and something tried instead."""
        add(student, empty().above(code).below(third, code), 0)

    add("right", solved(), full)
    change("wrong_kernel", lambda n: n.data["metadata"].update(kernelspec={"name": "julia-9"}))
    change("deleted_test", lambda n: n.data["cells"].remove(n.tests[0]))
    change("deleted_all_tests", lambda n: [n.data["cells"].remove(t) for t in n.tests])
    change("duplicated_test", lambda n: n.data["cells"].append({**n.tests[0], "source": "pass"}))
    change("emptied_tests", lambda n: [t.update(source="pass") for t in n.tests])
    change("changed_points", _raise_points)
    change("old_format", _old_format)
    change("warns", lambda n: n.below(first, WARNS))
    change("prints", lambda n: n.below(first, PRINTS))
    change("magics", lambda n: n.above(MAGICS))
    change("left_behind", lambda n: n.above(LEFT_BEHIND))
    change("noise", lambda n: n.above(NOISE))
    change("markup", lambda n: n.above(MARKUP).above("<script>stolen = 3</script>", "markdown"))
    change("exits_at_the_end", lambda n: n.data["cells"].append(_code("import os; os._exit(0)")))
    helper = "def twice(number):\n    return 2 * number\n"
    add("helper", solved().above("import sys; sys.path.insert(0, '.'); from helper import twice\n"
        "assert twice(2) == 4"), full, files=(("helper.py", helper),))  # fmt: skip

    add("unsolved", empty(), 0)
    add("half_done", empty().solve(first), worth[first])
    add("syntax_error", solved().write(second, "def infer_size(shape:"), full - worth[second])
    for mistake in _one_each(lesson):
        lost = sum(mistake.loses.values())
        wrong = solved().write(mistake.exercise, mistake.source)
        add(f"mistake_{mistake.exercise}", wrong, full - lost)

    spoil("endless_loop", LOOPS)
    spoil("swallows_interrupts", SWALLOWS)
    spoil("exits", "import os\nos._exit(0)")
    spoil("leaves", "import sys\nsys.exit()")
    spoil("kills_itself", SUICIDE)
    spoil("crashes", SEGFAULT)
    spoil("fork_bomb", FORK_BOMB)
    spoil("memory_bomb", MEMORY_BOMB)
    spoil("disk_bomb", DISK_BOMB)
    spoil("network", NETWORK)
    add("exits_at_once", solved().write(second, "import os\nos._exit(0)"), full - worth[second])

    attack("gradebook", GRADEBOOK.format(gradebook=str(course / "gradebook.db")))
    attack("reads_tests", READ_TESTS.format(course=str(course)))
    attack("transformer", TRANSFORMER)
    attack("ast_transformer", AST_TRANSFORMER)
    attack("patched_checks", PATCHED)
    attack("equals_all", EQUALS_ALL)
    attack("thief", THIEF)
    attack("forger", FORGER)

    add("not_json", '{"cells": [', 0, state="unreadable")
    add("no_notebook", '{"score": 12}', 0, state="unreadable")
    add("no_text", "", 0, state="unreadable")
    add("too_deep", "[" * 100_000 + "]" * 100_000, 0, state="unreadable")
    return made


def _one_each(lesson: Lesson) -> list[Any]:
    mistakes = load_mistakes(lesson.path.with_name("mistakes.py"))
    return list({mistake.exercise: mistake for mistake in mistakes}.values())


def _raise_points(notebook: Notebook) -> None:
    for cell in notebook.tests:
        cell["metadata"]["nbgrader"] |= {"points": 1000, "solution": True, "locked": False}


def _old_format(notebook: Notebook) -> None:
    notebook.data["nbformat_minor"] = 0
    for cell in notebook.data["cells"]:
        del cell["id"]


def _code(source: str) -> dict[str, Any]:
    return {
        "cell_type": "code", "id": "last", "metadata": {}, "source": source,
        "outputs": [], "execution_count": None,
    }  # fmt: skip
