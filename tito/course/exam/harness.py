"""The kernel in which a submission runs: an IPython shell that answers on a pipe.

Run as a script inside the sandbox. First the whole notebook runs as the student has it, the visible
tests included, and what it prints is kept for the feedback. Then test cells come, one at a time,
already rewritten by `instrument`, and each runs in the names that were at its place.

Nothing that this process says is believed: it only claims values. The nonce keeps what a student
prints by accident from being taken for an answer.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import json
import os
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any, TextIO

OUTPUT_CHARACTERS = 20_000
IMAGE_CHARACTERS = 2_000_000
MESSAGE_CHARACTERS = 600
OWN = "own:"  # before the name of a class that the student's code has made
IMAGES = 20  # of one cell
STDIN, STDOUT, STDERR = 0, 1, 2


class Pipe:
    """Lines of JSON to and from the grader."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.requests: TextIO = os.fdopen(os.dup(STDIN), "r", encoding="utf-8")
        self.answers = os.dup(STDOUT)
        self.nonce = ""
        self._to_nowhere(STDIN, STDOUT)

    def begin(self, nonce: str) -> None:
        """From here on the student's code may run; until here errors were our own."""
        self._to_nowhere(STDERR)
        self.nonce = nonce
        self.tell(ready=True)

    def _to_nowhere(self, *descriptors: int) -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in descriptors:
            os.dup2(nothing, descriptor)
        os.close(nothing)

    def ask(self) -> Any:
        line = self.requests.readline()
        if not line:
            os._exit(0)
        return json.loads(line)

    def tell(self, **message: Any) -> None:
        if os.getpid() != self.owner:
            os._exit(0)  # a fork of the student's has come back here
        text = json.dumps(message, ensure_ascii=False)
        data = f"\n{self.nonce} {text}\n".encode(errors="replace")
        while data:
            data = data[os.write(self.answers, data) :]


class Limited(io.StringIO):
    """Text that stops growing at a limit."""

    def write(self, text: str) -> int:
        room = OUTPUT_CHARACTERS - self.tell()
        if room > 0:
            super().write(text[:room])
            if len(text) >= room:
                super().write("\n[... the rest is left out ...]\n")
        return len(text)


class CompilerWatch:
    """Tells the grader when numba compiles: a kernel's compilation is not the student's time.

    It is a finder of modules that waits for numba's own events to be imported, and listens to them.
    """

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.depth = 0

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "numba.core.event":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_listen(module: Any) -> None:
                load(module)
                methods = {"on_start": self.starts, "on_end": self.ends}
                listener = type("Listener", (module.Listener,), methods)
                module.register("numba:compiler_lock", listener())

            spec.loader.exec_module = load_and_listen  # type: ignore[method-assign]
        return spec

    def starts(self, event: Any) -> None:
        """One lock inside of another counts once."""
        if self.depth == 0:
            self.pipe.tell(compiling=True)
        self.depth += 1

    def ends(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.pipe.tell(compiling=False)


class Recorder:
    """What test cells call in place of the checks; each call is sent as a claim."""

    def __init__(self, pipe: Pipe) -> None:
        import tinytorch.errors  # noqa: F401  (among the classes that are listed below)
        from tito import checks
        from tito.course.exam.values import encode

        self._send = pipe.tell
        self._encode = encode
        self._checks = {
            name: getattr(checks, name) for name in ("equal", "close", "raises", "check")
        }
        self._libraries = {kind: _qualified(kind) for kind in _errors()}

    def got(self, site: int, got: Any) -> None:
        self._send(site=site, got=self._encode(got))

    def both(self, site: int, got: Any, expected: Any) -> None:
        self._send(site=site, got=self._encode(got), expected=self._encode(expected))

    def truth(self, site: int, condition: Any) -> None:
        self._send(site=site, got=self._encode(condition))

    def outcome(self, site: int, function: Any, *args: Any, **kwargs: Any) -> None:
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            name = self._libraries.get(type(error)) or f"{OWN} {type(error).__name__}"
            message = str.__add__("", str(error))[:MESSAGE_CHARACTERS]
            self._send(site=site, raised=name, message=message)
        else:
            self._send(site=site, returned=self._encode(result))

    def local(self, site: int, check: str, *args: Any, **kwargs: Any) -> None:
        try:
            self._checks[check](*args, **kwargs)
        except AssertionError as error:
            self._send(site=site, held=False, message=str(error))
        else:
            self._send(site=site, held=True, message="")

    def key(self, site: int, check: str, *args: Any, **kwargs: Any) -> None:
        """For the reference: the check itself, and what it expects."""
        self._checks[check](*args, **kwargs)
        if check == "raises":
            error, match = args[0], kwargs.get("match", "")
            kwargs = {k: v for k, v in kwargs.items() if k == "hint"}
            self._send(site=site, raised=_qualified(error), match=match, options=kwargs)
        elif check == "check":
            text = args[1] if len(args) > 1 else kwargs.pop("message", "")
            options = {k: v for k, v in kwargs.items() if k == "hint"}
            self._send(site=site, truth=True, message=str(text), options=options)
        else:
            names = ("got", "expected", *(("rtol", "atol") if check == "close" else ()), "hint")
            given = dict(zip(names, args, strict=False)) | kwargs
            got, expected = given.pop("got"), given.pop("expected")
            self._send(
                site=site, got=self._encode(got), expected=self._encode(expected), options=given
            )


def _qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _errors(below: type = BaseException) -> Iterator[type]:
    """The classes of errors that there are: called before the student's code can make its own."""
    yield below
    for each in type.__subclasses__(below):
        yield from _errors(each)


class Kernel:
    """A shell of IPython, and the names as they were at each test cell."""

    def __init__(self, pipe: Pipe) -> None:
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        class Shell(InteractiveShell):
            def enable_gui(self, gui: str | None = None) -> None:
                """There is no screen: `%matplotlib` changes nothing."""

            def _tee(self, channel: str) -> Any:
                """IPython 9 keeps all output a second time, at 30 us a line and without end."""
                return nullcontext()

        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        module = types.ModuleType("__main__")
        module.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = module
        self.names = module.__dict__
        self.shell = Shell.instance(user_module=module, user_ns=module.__dict__, config=config)
        self.shell.showtraceback = self.shell.showsyntaxerror = _quiet
        self.pipe = pipe
        self.at_test: dict[str, dict[str, Any]] = {}
        self.bound_by_tests: dict[str, Any] = {}

    def import_package(self) -> None:
        """Import TinyTorch, in which the student's own code may be: from here on it runs."""
        try:
            self.recorder = Recorder(self.pipe)
            _seed(0)
            sys.meta_path.insert(0, CompilerWatch(self.pipe))  # type: ignore[arg-type]
        except BaseException as error:
            self.pipe.tell(imported=False, error=_described(error))
            os._exit(0)
        self.pipe.tell(imported=True)

    def run_cell(self, unit: str, source: str) -> None:
        """Run a cell as the student has it."""
        from IPython.core.displayhook import CapturingDisplayHook
        from IPython.core.displaypub import CapturingDisplayPublisher

        self.pipe.tell(begin=unit)
        text, publisher = Limited(), CapturingDisplayPublisher()
        hook = CapturingDisplayHook(shell=self.shell, outputs=publisher.outputs)
        self.shell.display_pub = publisher
        self.shell.display_trap.hook = hook
        streams = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = text
        try:
            result = self.shell.run_cell(source, store_history=True)
        finally:
            sys.stdout, sys.stderr = streams
        error = result.error_before_exec or result.error_in_exec
        self.pipe.tell(
            end=unit,
            text=text.getvalue(),
            shown=[_plain(output) for output in publisher.outputs[:IMAGES]],
            error=error and _described(error),
        )

    def keep(self, unit: str) -> None:
        """Remember the names as they are here, for the test of this place."""
        self.at_test[unit] = dict(self.names)

    def _put_back(self, names: dict[str, Any]) -> None:
        """Let functions of the notebook find names as they were: what was bound again later, one of
        Python's own as well, is what it was. A helper that is further down stays."""
        for name in self.names.keys() & vars(builtins).keys() - names.keys():
            del self.names[name]
        self.names |= names

    def run_test(self, unit: str, source: str, seed: int) -> None:
        """Run a rewritten test cell."""
        self.pipe.tell(begin=unit)
        _seed(seed)
        after = dict(self.names)
        here = self.at_test.get(unit, after)
        self._put_back(here)
        names = {**self.bound_by_tests, **here}
        names["__tito__"] = self.recorder
        before = set(names)
        silent, error = io.StringIO(), None
        streams = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = silent
        try:
            exec(compile(source, f"<{unit}>", "exec", dont_inherit=True), names)
        except BaseException as raised:
            error = _described(raised)
        finally:
            sys.stdout, sys.stderr = streams
            self.names |= after
        self.bound_by_tests |= {name: names[name] for name in set(names) - before}
        self.pipe.tell(end=unit, error=error)


def _quiet(*args: Any, **kwargs: Any) -> None:
    """Errors are reported by the kernel, not printed by the shell."""


def _described(error: BaseException) -> dict[str, Any]:
    from tito.cells_child import describe

    return describe(error)


def _plain(output: Any) -> dict[str, Any]:
    """Of something shown: its text and its picture; nothing that a browser would execute."""
    data: Mapping[str, Any] = output["data"] if isinstance(output, dict) else output.data
    kept = {"text/plain": str(data.get("text/plain", ""))[:OUTPUT_CHARACTERS]}
    picture = data.get("image/png")
    if isinstance(picture, bytes):
        import base64

        picture = base64.b64encode(picture).decode()
    if isinstance(picture, str) and len(picture) <= IMAGE_CHARACTERS:
        kept["image/png"] = picture
    return kept


def _seed(seed: int) -> None:
    """The same start for each test cell, here and with the reference."""
    import random

    import numpy as np

    import tinytorch

    random.seed(seed)
    np.random.seed(seed)
    tinytorch.manual_seed(seed)


def main() -> None:
    pipe = Pipe()
    start = pipe.ask()
    sys.path[:0] = start["path"]
    kernel = Kernel(pipe)
    pipe.begin(start["nonce"])
    kernel.import_package()
    for unit in start["units"]:
        if unit["source"] is not None:
            kernel.run_cell(unit["id"], unit["source"])
        if unit["test"] is not None:
            kernel.keep(unit["test"])
    pipe.tell(finished=True)
    while True:
        test = pipe.ask()
        kernel.run_test(test["id"], test["source"], test["seed"])


if __name__ == "__main__":
    main()
