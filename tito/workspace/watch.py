"""`tito test --watch`: one screen that is drawn anew after every save and every key.

The file is looked at five times a second, which finds every way in which editors save, on network
folders too. A run is a process of its own, as without --watch: a third of a second of CPU for
module 01, three quarters of it the process.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from tito import console, scripts
from tito.cells import child_environment
from tito.lessons.model import Exercise, Lesson
from tito.workspace import module, show
from tito.workspace.folder import Workspace, WorkspaceError
from tito.workspace.run import Result, run_tests

SAVED = "saved"  # an event beside the keys
LOOK_SECONDS = 0.2
KEYS = "h hint   n next exercise   c complete   o open   q quit"


@dataclass
class Session:
    """A student at work on a lesson.

    Attributes:
        result: of the last run; None before the first.
        place: which exercise is shown.
        hints: of that exercise, as far as they were asked for.
        notes: what the last key or save led to, in lines.
    """

    workspace: Workspace
    lesson: Lesson
    result: Result | None = None
    place: int = 0
    hints: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def exercise(self) -> Exercise:
        return self.lesson.exercises[self.place]

    def run(self) -> None:
        """Run the tests on the file as it is; an exercise that passes makes room for the next."""
        start = time.perf_counter()
        try:
            path = module.file_of(self.workspace, self.lesson)
            self.result = run_tests(self.workspace, self.lesson, path)
        except WorkspaceError as error:
            self.notes = str(error).splitlines()
            return
        module.remember(self.workspace, self.result)
        self.notes = [f"run at {time.strftime('%H:%M:%S')}, {time.perf_counter() - start:.1f} s"]
        if self.result.answers[self.place].passed:
            self._go_to(self._first_open())

    def _first_open(self) -> int:
        assert self.result is not None
        passed = [answer.passed for answer in self.result.answers]
        return passed.index(False) if False in passed else self.place

    def _go_to(self, place: int) -> None:
        if place != self.place:
            self.place, self.hints = place, []

    def press(self, key: str) -> bool:
        """Do what a key asks for; False to end."""
        actions: dict[str, Callable[[], None]] = {
            "h": self._hint, "n": self._next, "c": self._complete, "o": self._open,
        }  # fmt: skip
        if key in actions:
            self.notes = []
            try:
                actions[key]()
            except WorkspaceError as error:
                self.notes = str(error).splitlines()
        return key not in ("q", "\x03", "\x04")

    def _hint(self) -> None:
        whole = self.exercise.hints
        module.next_hint(self.workspace, self.lesson, self.exercise)
        if len(self.hints) < len(whole):
            self.hints.append(whole[len(self.hints)].strip())
        else:
            self.notes = ["there are no more hints"]

    def _next(self) -> None:
        self._go_to((self.place + 1) % len(self.lesson.exercises))

    def _complete(self) -> None:
        if self.result is None or not self.result.passed:
            self.notes = ["not yet: your code goes into tinytorch/ when all tests pass"]
            return
        done = module.complete(self.workspace, self.result)
        self.notes = list(show.completion_lines(self.result, done))

    def _open(self) -> None:
        command = [sys.executable, "-m", "tito", "module", "open", f"{self.lesson.number:02}"]
        nowhere = subprocess.DEVNULL
        subprocess.Popen(
            command, cwd=self.workspace.root, env=child_environment([scripts.ROOT], None),
            stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True,
        )  # fmt: skip
        self.notes = [f"opening {module.file_of(self.workspace, self.lesson).name}"]

    def lines(self) -> Iterator[str]:
        """The screen."""
        if self.result is None:
            yield f"{self.lesson.folder}: running the tests"
            return
        share = self.result.points / max(self.lesson.points, 1)
        points = f"{self.result.points} of {self.lesson.points} points"
        yield f"{self.lesson.folder}  {console.bar(share, 24)}  {points}"
        width = max(len(answer.exercise.id) for answer in self.result.answers)
        for i, answer in enumerate(self.result.answers):
            mark = ">" if i == self.place else " "
            got = f"{answer.points}/{answer.exercise.points}"
            yield f"{mark} {answer.exercise.id:{width}}  {got:>5}  {show.status_of(answer)}"
        answer = self.result.answers[self.place]
        if not answer.passed and not answer.not_written:
            yield ""
            yield from show.answer_lines(answer)
        for number, hint in enumerate(self.hints, start=1):
            yield ""
            yield f"hint {number} of {len(self.exercise.hints)}: {hint}"
        if self.result.passed:
            yield ""
            yield "all tests pass: c puts your code into tinytorch/"
        yield ""
        yield from self.notes
        yield KEYS


def watch(workspace: Workspace, lesson: Lesson) -> bool:
    """Watch a lesson's file on this terminal until q; whether all its tests passed at the end.

    Raises:
        WorkspaceError: this is no terminal, or there is no file.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise WorkspaceError("--watch needs a terminal; here use `tito module test`")
    module.file_of(workspace, lesson)
    session = Session(workspace, lesson)
    session.place = lesson.exercises.index(module.current(workspace, lesson))
    with _one_key_at_a_time(), suppress(KeyboardInterrupt):
        loop(session, _events(session), _draw)
    return session.result is not None and session.result.passed


def loop(session: Session, events: Iterable[str], draw: Callable[[Iterable[str]], None]) -> None:
    """Draw, then draw again after each event: a save, or a key."""
    draw(session.lines())
    session.run()
    draw(session.lines())
    for event in events:
        if event == SAVED:
            session.run()
        elif not session.press(event):
            return
        draw(session.lines())


def _events(session: Session) -> Iterator[str]:
    """Saves and keys as they come."""
    last = _stamp(session)
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], LOOK_SECONDS)
        if ready:
            key = os.read(sys.stdin.fileno(), 1).decode(errors="replace")
            yield key or "q"  # the terminal is gone
        if (now := _stamp(session)) != last:
            last = now
            yield SAVED


def _stamp(session: Session) -> tuple[str, int, int] | None:
    """What of the file changes with every save; None while an editor exchanges it."""
    try:
        path = module.file_of(session.workspace, session.lesson)
        status = path.stat()
    except (OSError, WorkspaceError):
        return None
    return path.name, status.st_mtime_ns, status.st_size


def _draw(lines: Iterable[str]) -> None:
    width, height = shutil.get_terminal_size()
    cut = [part for line in lines for part in _wrapped(line, width)]
    if len(cut) >= height:  # the message is cut in its middle: the keys stay in sight
        cut = [*cut[: height - 5], "...", *cut[-3:]]
    sys.stdout.write("\x1b[2J\x1b[H" + "\n".join(cut))
    sys.stdout.flush()


def _wrapped(line: str, width: int) -> list[str]:
    return [line[i : i + width] for i in range(0, len(line), width)] or [""]


class _one_key_at_a_time:
    """The terminal gives each key at once, and is as before afterwards."""

    def __enter__(self) -> None:
        import termios
        import tty

        self.before = termios.tcgetattr(sys.stdin)
        tty.setcbreak(sys.stdin)

    def __exit__(self, *error: object) -> None:
        import termios

        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self.before)
        print()
