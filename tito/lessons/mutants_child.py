"""Run the mutants of one exercise, each in a fork of a warm process: the child's side of
`tito.lessons.mutants`.

Run as a script: `python mutants_child.py PLAN EVENTS`. The cells before the exercise run once; then
each solution runs in a fork of its own, with the cells below it, until one fails. One line of JSON
a solution goes to EVENTS.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from typing import Any

from tito.cells_child import Session
from tito.usage import sleeping

CELL_SECONDS = 600.0  # of wall time: the limit below is one of CPU time
SOLUTION_SECONDS = 120.0  # of wall time, of a whole solution
LOOK_SECONDS = 0.25


def judge(
    session: Session, cells: list[dict[str, Any]], seconds: float, idle_seconds: float
) -> dict[str, Any]:
    """Run cells in a fork, until one fails.

    Args:
        seconds: of CPU time that they may take together.
        idle_seconds: after which threads that all sleep wait for each other.

    Returns:
        `failed`: the name of the cell, "" if there is none; `why`; `seconds` of CPU time.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, whatever it catches
        signal.setitimer(signal.ITIMER_PROF, seconds)
        with os.fdopen(writer, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(_first_failure(session, cells)))
        os._exit(0)
    os.close(writer)
    answer, deadlock = _read(reader, child, idle_seconds)
    _, status = os.waitpid(child, 0)
    if answer:
        return json.loads(answer)  # type: ignore[no-any-return]
    why = "did not finish" if os.WIFSIGNALED(status) else "the process ended"
    if deadlock:
        why = f"none of its threads ran for {idle_seconds:g} s"
    return {"failed": "the process", "why": why, "seconds": seconds}


def _first_failure(session: Session, cells: list[dict[str, Any]]) -> dict[str, Any]:
    failed, why = "", ""
    start = time.process_time()
    for cell in cells:
        failure = session.run(cell["name"], cell["source"], CELL_SECONDS)["failure"]
        if failure is not None:
            failed, why = cell["name"], f"{failure['type']}: {failure['message']}"
            break
    return {"failed": failed, "why": why, "seconds": time.process_time() - start}


def _read(reader: int, child: int, idle_seconds: float) -> tuple[bytes, bool]:
    """All that a fork writes, and whether it was ended because its threads wait for each other; one
    that takes too long is ended too."""
    parts: list[bytes] = []
    began = ran = time.monotonic()
    before: tuple[int, ...] = ()
    with os.fdopen(reader, "rb", buffering=0) as stream:
        while True:
            ready, _, _ = select.select([stream], [], [], LOOK_SECONDS)
            if ready:
                part = stream.read(1 << 16)
                if not part:
                    return b"".join(parts), False
                parts.append(part)
                continue
            now, waits = time.monotonic(), sleeping(child)
            if waits is None or waits != before:
                ran, before = now, waits or ()
            idle = now - ran > idle_seconds
            if idle or now - began > SOLUTION_SECONDS:
                os.kill(child, signal.SIGKILL)
                return b"", idle


def main(plan: dict[str, Any], events: str) -> None:
    """Run a plan: `before` and `after` the solution are cells, `solutions` are sources, the
    reference first; its time gives the others' limit. What the cells after it import is imported
    here, once for all forks."""
    session = Session()
    for statement in plan["imports"]:
        exec(statement, {})
    for cell in plan["before"]:
        session.run(cell["name"], cell["source"], CELL_SECONDS)
    limit, least, times, idle = plan["seconds"]
    with open(events, "w", encoding="utf-8") as stream:
        for number, source in enumerate(plan["solutions"]):
            cells = [{"name": plan["exercise"], "source": source}, *plan["after"]]
            verdict = judge(session, cells, limit, idle)
            if number == 0:
                limit = least + times * verdict["seconds"]
            stream.write(json.dumps(verdict) + "\n")
            stream.flush()


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        todo = json.load(file)
    sys.path.pop(0)  # the folder of this file
    main(todo, sys.argv[2])
    os._exit(0)
