"""Measure contestants, and print what came of it: a table or JSON, and the exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

import typer
from rich.progress import Progress

from tito import console
from tito.compete.budget import Budget
from tito.compete.event import Event
from tito.compete.fingerprint import fingerprint
from tito.compete.match import Failed, Launch
from tito.compete.measure import Measured, measure
from tito.compete.process import Contestant
from tito.compete.result import Result
from tito.sandbox import NoSandboxError

OURS = 3  # exit code where the machine, and not the entry, was at fault


def report(
    event: Event,
    contestants: list[Contestant],
    count: int,
    seed: int | None,
    confined: bool,
    as_json: bool,
    budget: Budget | None = None,
) -> int:
    """Measure and print; returns the exit code."""
    try:
        measured = _measure(event, contestants, count, seed, confined, budget)
    except NoSandboxError as error:
        typer.echo(f"{error}; or run your own file with --no-sandbox", err=True)
        return OURS
    for failed in measured.failed.values():
        _print_failure(failed, as_json)
    result = measured.result
    if result is None or measured.failed:
        ours = any(f.verdict == "infrastructure" for f in measured.failed.values())
        return OURS if ours else 1
    machine = fingerprint(confined)
    if as_json:
        told = {"event": event.name, "launches": [asdict(each) for each in measured.launches]}
        console.print_json({**told, **result.to_dict(), "machine": machine})
    else:
        _print(event, result, measured.launches, machine)
    return OURS if measured.is_noisy else int("impossible" in result.verdicts.values())


def _measure(
    event: Event,
    contestants: list[Contestant],
    count: int,
    seed: int | None,
    confined: bool,
    budget: Budget | None,
) -> Measured:
    with Progress(console=console.errors, transient=True) as progress:
        bar = progress.add_task("measuring")

        def begin(total: int) -> Callable[[], None]:
            if budget is None:
                progress.reset(bar, total=total)
                return lambda: progress.advance(bar)
            progress.update(bar, total=budget.seconds)
            return lambda: progress.update(bar, completed=budget.spent)

        def again() -> None:
            typer.echo("noisy, or others computed: more launches", err=True)

        return measure(
            event, contestants, count, seed=seed, confined=confined, budget=budget,
            begin=begin, again=again,
        )  # fmt: skip


def _print_failure(failed: Failed, as_json: bool) -> None:
    if as_json:
        told = {"contestant": failed.contestant, "verdict": failed.verdict, "text": failed.text}
        console.print_json(told)
    else:
        typer.echo(f"{failed.verdict}: {failed.contestant}, {failed.text}", err=True)


def _print(
    event: Event, result: Result, launches: Sequence[Launch], machine: dict[str, str]
) -> None:
    columns = ["contestant", "case", f"times {result.baseline}", "95 % interval", "ms", "Gflop/s"]
    lines = [
        [r.name, r.case, f"{r.ratio:.3f}", f"{r.low:.3f} to {r.high:.3f}",
         f"{r.milliseconds:.2f}", f"{r.gflops:.1f}"]
        for r in result.rows
    ]  # fmt: skip
    console.print_rows(columns, lines)
    print()
    console.print_rows(
        ["contestant", "score", "95 % interval", "verdict", "first calls, s"],
        [
            [r.name, f"{r.ratio:.3f}", f"{r.low:.3f} to {r.high:.3f}", result.verdicts[r.name],
             f"{result.compile_seconds[r.name]:.1f}"]
            for r in result.scores
        ],
    )  # fmt: skip
    pairs = max(len(rounds) for launch in launches for rounds in launch.gflop.values())
    print(
        f"\n{len(launches)} launches, up to {pairs} pairs of each case; "
        f"{event.name}, {event.division} division, {event.clock} time; {machine['cpu']}, "
        f"{machine['cores']} cores, of which other programs used up to {result.others:.2f}; "
        f"{machine['sandbox']}"
    )
    if "wide" in result.verdicts.values():
        print(
            "wide: the time was over before the interval was within 3 %; it covers all the same. "
            "--seconds buys more launches, --seconds 0 as many as a server makes"
        )
