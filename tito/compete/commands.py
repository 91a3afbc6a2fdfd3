"""`tito compete`: measure a backend in one file, as a server would, on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tito import console

if TYPE_CHECKING:
    from tito.compete.entry import Entry
    from tito.compete.event import Event
    from tito.compete.match import Failed
    from tito.compete.measure import Measured
    from tito.compete.process import Contestant
    from tito.compete.result import Result

BASELINE = "numpy"
LAUNCHES = 6
STUDIED = 10
OURS = 3  # exit code where the machine, and not the entry, was at fault

app = typer.Typer(
    help="Measure a backend of your own against baselines, in a sandbox.",
    epilog=(
        "Examples:\n\ntito compete list\n\ntito compete new matmul\n\n"
        "tito compete run mine.py\n\ntito compete duel mine.py yours.py"
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
)

EVENT = Annotated[
    str | None,
    typer.Option(help="Its name, or a folder with event.toml. By default the file's header says."),
]
LAUNCH = Annotated[int, typer.Option(min=1, help="Fresh processes that are measured.")]
SEED = Annotated[
    int | None, typer.Option(help="Of shapes and values; by default one that nobody knows.")
]
OPEN_AIR = Annotated[
    bool, typer.Option("--no-sandbox", help="Run your own file without a sandbox, with limits.")
]
AS_JSON = Annotated[bool, typer.Option("--json", help="For a machine to read.")]


@app.command("list", epilog="Example: tito compete list --json")
def list_(as_json: AS_JSON = False) -> None:
    """The events that come with TinyTorch."""
    from tito.compete.event import list_events, load_event

    events = [load_event(name) for name in list_events()]
    if as_json:
        console.print_json([{"name": e.name, "title": e.title, "division": e.division,
                             "cases": [c["name"] for c in e.cases]} for e in events])  # fmt: skip
        return
    console.print_rows(["event", "division", ""], [[e.name, e.division, e.title] for e in events])


@app.command(epilog="Examples:\n\ntito compete new matmul\n\ntito compete new conv2d --out fast.py")
def new(
    event: Annotated[str, typer.Argument(help="Name of the event; see `tito compete list`.")],
    out: Annotated[Path | None, typer.Option(help="The file; by default EVENT.py.")] = None,
) -> None:
    """Write a file to begin with: a right entry, and slow."""
    from tito.compete.event import EventError, load_event

    try:
        found = load_event(event)
    except EventError as error:
        raise typer.BadParameter(str(error)) from None
    path = out or Path(f"{found.name}.py")
    if path.exists():
        raise typer.BadParameter(f"{path} is there already: give another name with --out")
    path.write_text(found.starter, "utf-8")
    print(f"{path}: {found.title}. Measure it: tito compete run {path}")


@app.command(
    epilog=(
        "Examples:\n\ntito compete run mine.py\n\ntito compete run mine.py --beside optimized,torch"
        "\n\ntito compete run mine.py --launches 12 --json\n\n"
        "Exit codes: 0 measured, 1 the entry failed, 3 the machine was too noisy or failed."
    )
)
def run(
    file: Annotated[Path, typer.Argument(help="One class in one file.")],
    event: EVENT = None,
    beside: Annotated[
        str, typer.Option(help="Baselines to measure too: naive, blocked, optimized, torch.")
    ] = "",
    launches: LAUNCH = LAUNCHES,
    seed: SEED = None,
    no_sandbox: OPEN_AIR = False,
    as_json: AS_JSON = False,
) -> None:
    """Check an entry, and measure it against NumPy on inputs that nobody has seen.

    Its process is stopped but for the measured calls; every output is checked element by element;
    each launch is new processes, and the interval is taken over launches.
    """
    entry, found = _read(file, event)
    contestants = [_baseline(BASELINE), _contestant("entry", entry)]
    contestants += [_baseline(name) for name in filter(None, beside.split(","))]
    raise typer.Exit(_report(found, contestants, launches, seed, not no_sandbox, as_json))


@app.command(
    epilog=("Examples:\n\ntito compete duel a.py b.py\n\ntito compete duel a.py a.py --launches 10")
)
def duel(
    first: Annotated[Path, typer.Argument(help="The file that ratios are to.")],
    second: Annotated[Path, typer.Argument(help="The other.")],
    event: EVENT = None,
    launches: LAUNCH = LAUNCHES,
    seed: SEED = None,
    no_sandbox: OPEN_AIR = False,
    as_json: AS_JSON = False,
) -> None:
    """Two entries head to head in one run, on the same inputs."""
    one, found = _read(first, event)
    other, theirs = _read(second, event)
    if theirs.folder != found.folder:
        raise typer.BadParameter(f"{first} is for {found.name} and {second} for {theirs.name}")
    names = [first.stem, second.stem]
    if names[0] == names[1]:
        names = [f"{names[0]} (first)", f"{names[1]} (second)"]
    contestants = [_contestant(n, e) for n, e in zip(names, (one, other), strict=True)]
    raise typer.Exit(_report(found, contestants, launches, seed, not no_sandbox, as_json))


@app.command(epilog="Examples:\n\ntito compete sandbox\n\ntito compete sandbox conv2d --json")
def sandbox(
    event: Annotated[str, typer.Argument(help="Whose starter file is measured.")] = "matmul",
    launches: Annotated[int, typer.Option(min=2, help="Pairs of fresh processes.")] = STUDIED,
    seed: SEED = None,
    as_json: AS_JSON = False,
) -> None:
    """What the sandbox costs on this machine: the same file inside and outside of it, in one run.

    The ratio is CPU time inside over outside, as a contestant's is to a baseline.
    """
    from tito.compete.event import EventError, load_event

    try:
        found = load_event(event)
    except EventError as error:
        raise typer.BadParameter(str(error)) from None
    entry, _ = _read(found.folder / "starter.py", str(found.folder))
    outside = _contestant("outside", entry)
    pair = [replace(outside, is_confined=False), replace(outside, name="inside")]
    raise typer.Exit(_report(found, pair, launches, seed, True, as_json))


def _read(file: Path, event: str | None) -> tuple[Entry, Event]:
    from tito.compete.entry import EntryError, read_entry
    from tito.compete.event import EventError, load_event

    try:
        entry = read_entry(file)
        name = event or entry.event
        if name is None:
            raise EntryError(
                f"{file.name} does not say its event: begin it with `# tito: event = matmul`, or "
                "give --event"
            )
        found = load_event(name)
        entry.check_rules(found.division)
    except (EntryError, EventError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    return entry, found


def _contestant(name: str, entry: Entry) -> Contestant:
    from tito.compete.process import Contestant

    return Contestant(name, entry.path.resolve(), entry.class_name)


def _baseline(name: str) -> Contestant:
    from tito.compete.process import BASELINES, Contestant

    if name not in BASELINES:
        raise typer.BadParameter(console.unknown("baseline", name, BASELINES))
    return Contestant(name)


def _report(
    event: Event,
    contestants: list[Contestant],
    count: int,
    seed: int | None,
    confined: bool,
    as_json: bool,
) -> int:
    """Measure and print; returns the exit code."""
    from tito.compete.fingerprint import fingerprint
    from tito.sandbox import NoSandboxError

    try:
        measured = _measure(event, contestants, count, seed, confined)
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
        _print(event, result, machine)
    return OURS if measured.is_noisy else _code(result)


def _code(result: Result) -> int:
    return int(any(verdict != "ok" for verdict in result.verdicts.values()))


def _measure(
    event: Event, contestants: list[Contestant], count: int, seed: int | None, confined: bool
) -> Measured:
    from rich.progress import Progress

    from tito.compete.measure import measure

    with Progress(console=console.errors, transient=True) as progress:
        bar = progress.add_task("measuring")

        def begin(total: int) -> Callable[[], None]:
            progress.reset(bar, total=total)
            return lambda: progress.advance(bar)

        def again() -> None:
            typer.echo("noisy, or others computed: measured once more, longer", err=True)

        return measure(
            event, contestants, count, seed=seed, confined=confined, begin=begin, again=again
        )


def _print_failure(failed: Failed, as_json: bool) -> None:
    if as_json:
        told = {"contestant": failed.contestant, "verdict": failed.verdict, "text": failed.text}
        console.print_json(told)
    else:
        typer.echo(f"{failed.verdict}: {failed.contestant}, {failed.text}", err=True)


def _print(event: Event, result: Result, machine: dict[str, str]) -> None:
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
    print(
        f"\n{event.name}, {event.division} division, {event.clock} time; {machine['cpu']}, "
        f"{machine['cores']} cores, of which other programs used up to {result.others:.2f}; "
        f"{machine['sandbox']}"
    )
