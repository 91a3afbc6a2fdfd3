"""`tito compete`: measure a backend in one file, as a server would, on this machine."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from tito import console

if TYPE_CHECKING:
    from tito.compete.budget import Budget
    from tito.compete.entry import Entry
    from tito.compete.event import Event
    from tito.compete.process import Contestant

BASELINE = "numpy"
LAUNCHES = 8
SECONDS = 45.0  # starting Python, compiling our kernels and the table come on top
STUDIED = 10

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
TIME = Annotated[
    float, typer.Option(min=0, help="Time to measure in; 0: as long as it takes, as on a server.")
]
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
    found = _event(event)
    path = out or Path(f"{found.name}.py")
    if path.exists():
        raise typer.BadParameter(f"{path} is there already: give another name with --out")
    try:
        path.write_text(found.starter, "utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror}") from None
    print(f"{path}: {found.title}. Measure it: tito compete run {path}")


@app.command(
    epilog=(
        "Examples:\n\ntito compete run mine.py\n\ntito compete run mine.py --beside optimized,torch"
        "\n\ntito compete run mine.py --seconds 0 --json\n\n"
        "Exit codes: 0 measured, 1 the entry failed, 3 the machine was too noisy or failed."
    )
)
def run(
    file: Annotated[Path, typer.Argument(help="One class in one file.")],
    event: EVENT = None,
    beside: Annotated[
        str,
        typer.Option(help="Baselines to measure too: naive, blocked, optimized, torch; or all."),
    ] = "",
    launches: LAUNCH = LAUNCHES,
    seconds: TIME = SECONDS,
    seed: SEED = None,
    no_sandbox: OPEN_AIR = False,
    as_json: AS_JSON = False,
) -> None:
    """Check an entry, and measure it against NumPy on inputs that nobody has seen.

    Its process is stopped but for the measured calls; every output is checked element by element;
    each launch is new processes, and the interval is taken over launches. With --seconds the time
    is divided over launches and pairs; what it does not buy makes the interval wider.
    """
    from tito.compete.report import report

    entry, found = _read(file, event)
    contestants = [_baseline(BASELINE), _contestant("entry", entry)]
    contestants += [_baseline(name) for name in _beside(beside)]
    raise typer.Exit(
        report(found, contestants, launches, seed, not no_sandbox, as_json, _budget(seconds))
    )


@app.command(
    epilog=("Examples:\n\ntito compete duel a.py b.py\n\ntito compete duel a.py a.py --launches 10")
)
def duel(
    first: Annotated[Path, typer.Argument(help="The file that ratios are to.")],
    second: Annotated[Path, typer.Argument(help="The other.")],
    event: EVENT = None,
    launches: LAUNCH = LAUNCHES,
    seconds: TIME = SECONDS,
    seed: SEED = None,
    no_sandbox: OPEN_AIR = False,
    as_json: AS_JSON = False,
) -> None:
    """Two entries head to head in one run, on the same inputs."""
    from tito.compete.report import report

    one, found = _read(first, event)
    other, theirs = _read(second, event)
    if theirs.folder != found.folder:
        raise typer.BadParameter(f"{first} is for {found.name} and {second} for {theirs.name}")
    names = [first.stem, second.stem]
    if names[0] == names[1]:
        names = [f"{names[0]} (first)", f"{names[1]} (second)"]
    contestants = [_contestant(n, e) for n, e in zip(names, (one, other), strict=True)]
    raise typer.Exit(
        report(found, contestants, launches, seed, not no_sandbox, as_json, _budget(seconds))
    )


@app.command(
    epilog="Examples:\n\ntito compete aa --matches 20\n\ntito compete aa --file aa.jsonl\n\n"
    "Exit codes: 0 at least 95 % of the matches held, 1 fewer did, 3 the machine failed."
)
def aa(
    event: Annotated[str, typer.Argument(help="What is measured.")] = "matmul",
    matches: Annotated[int, typer.Option(min=1, help="Matches, those in the file included.")] = 100,
    file: Annotated[
        Path | None, typer.Option(help="Keeps finished matches; a study goes on where it was.")
    ] = None,
    launches: Annotated[int, typer.Option(min=2, help="Fresh processes in each match.")] = LAUNCHES,
    case: Annotated[str, typer.Option(help="Only this one, for a cheaper study.")] = "",
    pairs: Annotated[int, typer.Option(min=0, help="Of each case; 0: the event's.")] = 0,
    seed: SEED = None,
    as_json: AS_JSON = False,
) -> None:
    """How often the harness says that code is as fast as itself: NumPy's backend against a copy.

    Each match is measured as an entry is. It holds if 1 is within its 95 % interval.
    """
    from rich.progress import Progress

    from tito.compete.report import OURS
    from tito.compete.study import SHARE, StudyError, at_most, study
    from tito.sandbox import NoSandboxError

    found = _only(_event(event), case, pairs)
    try:
        with Progress(console=console.errors, transient=True) as progress:
            bar = progress.add_task("matches", total=matches)
            done = study(
                found, matches, launches, seed=seed, file=file, step=lambda: progress.advance(bar)
            )
    except (StudyError, NoSandboxError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(OURS) from None
    held = sum(match.holds for match in done)
    if as_json:
        console.print_json({"held": held, "matches": [asdict(match) for match in done]})
    else:
        print(
            f"{found.name}: {held} of {len(done)} matches held (if each does with {SHARE:.0%}, so "
            f"few or fewer with {at_most(held, len(done)):.2g}); ratios from "
            f"{min(m.ratio for m in done):.3f} to {max(m.ratio for m in done):.3f}, intervals "
            f"{median(m.high / m.low - 1 for m in done):.1%} wide; "
            f"{sum(m.verdict == 'noisy' for m in done)} stayed noisy"
        )
    raise typer.Exit(int(held < SHARE * len(done)))


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
    from tito.compete.report import report

    found = _event(event)
    entry, _ = _read(found.folder / "starter.py", str(found.folder))
    outside = _contestant("outside", entry)
    pair = [replace(outside, is_confined=False), replace(outside, name="inside")]
    raise typer.Exit(report(found, pair, launches, seed, True, as_json))


def _only(event: Event, case: str, pairs: int) -> Event:
    """The event with one of its cases, and so many pairs."""
    names = [c["name"] for c in event.cases]
    if case and case not in names:
        raise typer.BadParameter(console.unknown("case", case, names))
    if pairs % 2:
        raise typer.BadParameter(f"pairs are even, so that each goes first as often, not {pairs}")
    cases = tuple(c for c in event.cases if case in ("", c["name"]))
    return replace(event, cases=cases, rounds=pairs or event.rounds)


def _budget(seconds: float) -> Budget | None:
    from tito.compete.budget import Budget

    return Budget(seconds) if seconds else None


def _event(name: str) -> Event:
    from tito.compete.event import EventError, load_event

    try:
        return load_event(name)
    except EventError as error:
        raise typer.BadParameter(str(error)) from None


def _read(file: Path, event: str | None) -> tuple[Entry, Event]:
    from tito.compete.entry import EntryError, read_entry
    from tito.compete.event import EventError, list_events, load_event

    try:
        entry = read_entry(file)
        name = event or entry.event
        if name is None:
            raise EntryError(
                f"{file.name} does not say its event: begin it with `# tito: event = matmul`, or "
                "give --event"
            )
        known = list_events()
        if event is None and name not in known:  # an event's code runs here: a file that was handed
            said = console.unknown("event", name, known)  # in may not choose a folder beside it
            raise EntryError(f"{said}; if it is a folder of yours, give --event {name}")
        found = load_event(name)
        entry.check_rules(found.division)
    except (EntryError, EventError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    return entry, found


def _contestant(name: str, entry: Entry) -> Contestant:
    from tito.compete.process import Contestant

    return Contestant(name, entry.path.resolve(), entry.class_name)


def _beside(names: str) -> list[str]:
    """Baselines by name; `all` are those that are installed."""
    if names != "all":
        return [name for name in names.split(",") if name]
    from importlib.util import find_spec

    from tito.compete.process import BASELINES

    missing = [name for name in ("torch",) if find_spec(name) is None]
    return [name for name in BASELINES if name != BASELINE and name not in missing]


def _baseline(name: str) -> Contestant:
    from tito.compete.process import BASELINES, Contestant

    if name not in BASELINES:
        raise typer.BadParameter(console.unknown("baseline", name, BASELINES))
    return Contestant(name)
