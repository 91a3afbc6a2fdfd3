"""Which functions of a package ran, and how often: the child's side. Standard library only.

Run as a script, `python trace.py REPORT FOLDERS SCRIPT [ARGUMENT...]`, it runs a script as Python
would and writes a report at its end, however that comes; FOLDERS is a list as PATH is.

From Python 3.12 on the interpreter calls back through `sys.monitoring` when a function starts, and
no more for code that is not looked for; before, through `sys.settrace`, which takes several times
as long. Either way a generator counts once, when it starts, and not at each of its steps. Functions
that numba has compiled call nothing back: of them is said that a function that ran refers to them.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
from collections.abc import Iterator
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_NEWLOCALS
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

RESUMABLE = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
monitoring: Any = getattr(sys, "monitoring", None)
TOOL = 4  # of those that have no name: cProfile, which a script may use, takes that of profilers


class Trace:
    """The code that ran in a block.

    Args:
        folders: code in other folders and files is not counted. The first is the package.

    Attributes:
        calls: of each function so far. `Work` puts another dictionary here for a while.
        ops: by name of op: how often it ran, its FLOPs, and what its kernels called.
    """

    def __init__(self, *folders: str) -> None:
        self.folders = tuple(os.path.realpath(folder) for folder in folders)
        self.calls: dict[CodeType, int] = {}
        self.ops: dict[str, tuple[int, int, set[CodeType]]] = {}
        self._counted: dict[CodeType, bool] = {}
        self._names: dict[CodeType, dict[str, Any]] = {}  # what a function's names stand for

    def __enter__(self) -> Trace:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """From here on, in this thread and in those that begin later."""
        if monitoring is None:
            threading.settrace(self._called)
            sys.settrace(self._called)
            return
        events = monitoring.events
        monitoring.use_tool_id(TOOL, "tito")
        monitoring.register_callback(TOOL, events.PY_START, self._started)
        monitoring.set_events(TOOL, events.PY_START)
        monitoring.restart_events()

    def stop(self) -> None:
        if monitoring is None:
            sys.settrace(None)
            threading.settrace(None)
        else:
            monitoring.set_events(TOOL, 0)
            monitoring.free_tool_id(TOOL)

    def op_ran(self, name: str, flops: int, calls: dict[CodeType, int]) -> None:
        """Note an op and what its kernel called; the calls are added to those there are."""
        for code, count in calls.items():
            self.calls[code] = self.calls.get(code, 0) + count
        times, before, codes = self.ops.get(name, (0, 0, set()))
        self.ops[name] = times + 1, before + flops, codes | calls.keys()

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        counted = self._counted.get(code)
        if counted is None:
            counted = self._meet(code, frame)
        if counted and not (code.co_flags & RESUMABLE and _goes_on(frame)):
            self.calls[code] = self.calls.get(code, 0) + 1

    def _started(self, code: CodeType, offset: int) -> Any:
        counted = self._counted.get(code)
        if counted is None:
            counted = self._meet(code, sys._getframe(1))
        if not counted:
            return monitoring.DISABLE
        self.calls[code] = self.calls.get(code, 0) + 1
        return None

    def _meet(self, code: CodeType, frame: FrameType) -> bool:
        """Whether a function counts: it is in one of the folders, and no module or class body,
        which runs at import."""
        file = os.path.realpath(code.co_filename)
        inside = any(file == f or file.startswith(os.path.join(f, "")) for f in self.folders)
        counted = self._counted[code] = inside and bool(code.co_flags & CO_NEWLOCALS)
        if counted:
            local = frame.f_locals if code.co_freevars else {}
            free = {name: local[name] for name in code.co_freevars if name in local}
            self._names[code] = {**frame.f_globals, **free}
        return counted

    def report(self) -> dict[str, Any]:
        """The functions that ran, and the ops with the numbers of the functions of their kernels.

        A compiled function has 0 calls: nobody counts them.
        """
        numbers: dict[CodeType, int] = {}
        for code in [*self.calls]:
            for each in [code, *self._compiled(code)]:
                numbers.setdefault(each, len(numbers))
        root = os.path.dirname(self.folders[0])
        functions = [
            {
                "file": os.path.relpath(os.path.realpath(code.co_filename), root),
                "name": code.co_qualname,
                "first": code.co_firstlineno,
                "calls": self.calls.get(code, 0),
            }
            for code in numbers
        ]
        ops = [
            {
                "op": name,
                "calls": times,
                "flops": flops,
                "functions": sorted({numbers[c] for k in codes for c in (k, *self._compiled(k))}),
            }
            for name, (times, flops, codes) in self.ops.items()
        ]
        return {"functions": functions, "ops": ops}

    def write(self, path: str) -> None:
        """The report as JSON."""
        with open(path, "w", encoding="utf-8") as stream:
            json.dump(self.report(), stream)

    def _compiled(self, code: CodeType) -> list[CodeType]:
        """The functions compiled by numba that a function refers to, and those that they do."""
        found: dict[CodeType, None] = {}
        waiting = list(_dispatchers(code, self._names.get(code, {})))
        while waiting:
            function = waiting.pop()
            inner = function.__code__
            if inner in found or not os.path.realpath(inner.co_filename).startswith(self.folders):
                continue
            found[inner] = None
            cells = zip(inner.co_freevars, function.__closure__ or (), strict=True)
            free = {name: cell.cell_contents for name, cell in cells}
            waiting += _dispatchers(inner, {**function.__globals__, **free})
        return list(found)


def _dispatchers(code: CodeType, names: dict[str, Any]) -> Iterator[FunctionType]:
    """The Python sources of the compiled functions that code names, in modules as well."""
    for name in (*code.co_names, *code.co_freevars):
        value = names.get(name)
        inside = [value]
        if isinstance(value, ModuleType):
            inside = [vars(value).get(other) for other in code.co_names]
        for each in inside:
            source = getattr(each, "py_func", None)
            if isinstance(source, FunctionType):
                yield source


def _goes_on(frame: FrameType) -> bool:
    """Whether a generator goes on, instead of starting: its instruction is RESUME, whose argument
    is 0 at the start."""
    return bool(frame.f_code.co_code[frame.f_lasti + 1] & 3)


def main(report: str, folders: str, script: str, *arguments: str) -> None:
    """Run a script as `python SCRIPT ARGUMENT...` does; it may end by SystemExit or an error."""
    sys.argv[:] = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    trace = Trace(*folders.split(os.pathsep))
    from tito.workspace.work import Work

    try:
        with Work(trace), trace:
            runpy.run_path(script, run_name="__main__")
    finally:
        trace.write(report)


if __name__ == "__main__":
    main(*sys.argv[1:])
