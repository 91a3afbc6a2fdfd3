"""Runs inside the sandbox: loads an entry or a baseline, and calls it when it is told to.

                                                             worker: "b", it begins to load
                                                                     "p", it has loaded
    parent: a line of JSON, where inputs and outputs lie     worker: "p", they are mapped
    parent: "g"                                              worker: "d", outputs are written

A failure is "e" and a line of JSON. All of it may be forged by the entry, which shares this
process: the parent believes only what it finds in the shared memory.
"""

from __future__ import annotations

import ast
import builtins
import gc
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tito.compete.memory import Arena
from tito.compete.rules import (
    BLAS,
    BUILTINS,
    MODULES,
    PARTS,
    WAYS_ROUND,
    OwnNames,
    broken_rules,
)

BEGUN, PREPARED, DONE, FAILED = b"b", b"p", b"d", b"e"
MAX_MESSAGE = 4000
ABSENT = object()


def main() -> None:
    settings = json.loads(sys.argv[1])
    if settings["kernels"]:
        os.environ["TINYTORCH_CACHE_DIR"] = settings["kernels"]
    commands = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.dup(1)
    quiet = os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 0)  # what an entry prints goes nowhere, and it has nothing to read
    os.dup2(quiet, 1)
    try:
        arena = Arena(settings["memory"], settings["bytes"])
        task = _module("event_task", Path(settings["task"]))
        os.dup2(quiet, 2)  # until now our own code said there why it failed
        os.write(answers, BEGUN)  # what fails before this is no fault of the entry
        entry = load_contestant(settings, task)
        gc.freeze()  # what is loaded would make each of the collections below take long
        os.write(answers, PREPARED)
        while line := commands.readline():
            request = json.loads(line)
            inputs = [arena.view(p) for p in request["inputs"]]
            outputs = [arena.view(p) for p in request["outputs"]]
            gc.collect()  # or one that our own objects brought near would fall into the call
            os.write(answers, PREPARED)
            if commands.read(1) != b"g":
                return
            found = task.call(entry, inputs, request["case"])
            for place, array in zip(outputs, found, strict=True):
                np.copyto(place, array, casting="no")
            del found, array  # or the next call would get other memory than one that is not kept
            os.write(answers, DONE)
    except BaseException as error:  # whatever it is, the parent hears of it
        said = {"error": type(error).__name__, "text": str(error)[:MAX_MESSAGE]}
        os.write(answers, FAILED + json.dumps(said).encode() + b"\n")


def load_contestant(settings: dict[str, Any], task: ModuleType) -> Any:
    """Make what is measured: an instance of the entry's class, or a baseline."""
    if settings["baseline"]:
        return _baseline(settings["baseline"], task, settings["threads"])
    if settings["division"] == "kernel":
        _hide_libraries()
        entry = _restricted(Path(settings["entry"]))
    else:
        entry = vars(_module("entry", Path(settings["entry"])))
    return entry[settings["class"]]()


def _baseline(name: str, task: ModuleType, threads: int) -> Any:
    if name == "torch":
        import torch

        torch.set_num_threads(threads)
        return task.Torch()
    from tinytorch.backends import find_backend, set_num_threads

    if threads > 1:
        set_num_threads(threads)
    backend = type(find_backend(name))
    own: dict[str, Any] = {"own_kernels_only": True} if name == "optimized" else {}
    # TinyTorch checks every result of a class that does not say `trusted`, as no entry can
    return type(backend.__name__, (backend,), {})(**own)


def _module(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _restricted(path: Path) -> dict[str, Any]:
    """Run a file whose imports are held to the list, and that has no other way to modules."""

    def import_(name: str, scope: Any = None, own: Any = None, wanted: Any = (), level: int = 0):  # type: ignore[no-untyped-def]
        top, *parts = name.split(".")
        if level or top not in MODULES:
            raise ImportError(f"{name!r} is not among what may be imported")
        first = found = public(__import__(name))
        if top == "numba":
            _check_signatures()
        if wanted == []:  # of code in C, which takes the module from sys.modules
            return first
        try:
            for part in parts:
                found = getattr(found, part)
            for each in wanted or ():  # or Python would look for a module of this name itself
                getattr(found, each)
        except AttributeError as error:
            raise ImportError(str(error)) from None
        return found if wanted else first

    def type_(x: Any) -> Any:  # no class is made of text: its attributes could have any name
        if issubclass(found := type(x), type):
            raise PermissionError("the type of a class is not for kernels")
        return found

    allowed = {k: v for k, v in vars(builtins).items() if k not in BUILTINS}
    module = ModuleType("entry")
    sys.modules["entry"] = module  # numba looks functions up by their module
    scope = vars(module)
    scope["__builtins__"] = {**allowed, "__import__": import_, "type": type_}
    scope["__file__"] = str(path)
    tree = OwnNames().visit(ast.parse(path.read_text("utf-8-sig")))
    exec(compile(ast.fix_missing_locations(tree), str(path), "exec"), scope)
    return scope


def public(module: ModuleType) -> ModuleType:
    """A module without private names and the modules that it imports: through these, code that is
    only text (`dataclasses._create_fn`) or another's (`numba.np`) can be reached."""
    shown = ModuleType(module.__name__)

    def find(name: str) -> Any:
        own = name[0] == "_" or name in WAYS_ROUND
        value = ABSENT if own else getattr(module, name, ABSENT)
        if isinstance(value, ModuleType):
            known = name in set(getattr(module, "__all__", ())) - BLAS
            known = known or f"{module.__name__}.{name}" in PARTS
            value = public(value) if known else ABSENT
        if value is ABSENT:  # an error of the module itself would have it as its `obj`
            raise AttributeError(f"{module.__name__} has no {name!r} for kernels")
        vars(shown)[name] = value  # found without this function from now on
        return value

    vars(shown)["__getattr__"] = find
    return shown


def _check_signatures() -> None:
    """Hold to the rules what numba evaluates: signatures that are text."""
    from numba.core import sigutils

    def read(text: str, scope: Any, names: Any) -> Any:
        if broken := next(broken_rules(ast.parse(text, mode="eval")), None):
            raise PermissionError(broken)
        return eval(text, {"__builtins__": {}}, names)

    vars(sigutils)["eval"] = read


def _hide_libraries() -> None:
    """Replace NumPy's functions that end in BLAS, also where its other functions find them."""

    def hidden(name: str) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            raise PermissionError(f"np.{name} is a library's: the kernel division hides it")

        return refuse

    for module in (np, sys.modules["numpy._core.numeric"]):
        for name in BLAS:
            if callable(getattr(module, name, None)):
                setattr(module, name, hidden(name))
