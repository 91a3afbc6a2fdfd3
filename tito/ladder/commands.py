"""`tito ladder`: the same training step on all that the student has so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tito import console
from tito.module import AsJson, plainly, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tito.ladder.measure import Measured
    from tito.ladder.tiers import Tier
    from tito.workspace.folder import Workspace

PICTURE = "ladder"
MATMUL = "tinytorch/backends/naive/__init__.py::NaiveBackend.matmul"


@plainly
def ladder(
    step: Annotated[str, typer.Argument(help="What is trained: cnn or mlp.")] = "cnn",
    on: Annotated[
        str | None, typer.Option("--on", help="Only these tiers, with commas: loops,mine.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Times that each tier is measured.")] = 7,
    threads: Annotated[int, typer.Option(min=1, help="That kernels and BLAS may use.")] = 1,
    past: Annotated[
        bool, typer.Option("--history", help="Show what was measured before, and measure nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Time one training step on your tinytorch: on loops, NumPy, your backend, ours, PyTorch.

    On each tier three steps must first give the reference's losses and parameters. What is measured
    is kept in .tito/ladder.jsonl and drawn in ladder.svg and ladder.png. Exits with 1 if a tier
    fails or gives other numbers.
    """
    from tito.ladder import drawing, history, measure, report, steps
    from tito.ladder.tiers import TIERS
    from tito.workspace import completed, folder, module

    if step not in steps.STEPS:
        raise typer.BadParameter(console.unknown("step", step, list(steps.STEPS)))
    workspace = folder.require()
    if past:
        _show_history(history.load(workspace, step), as_json)
        return
    chosen = chosen_tiers(on, TIERS)
    module.refresh(workspace)
    found = run_tiers(workspace, step, chosen, rounds=rounds, threads=threads, with_share=True)
    done = [c.slug for c in completed.load(workspace)]
    result = report.as_json(
        step, found, moment=module.now(), threads=threads, rounds=rounds, completed=done
    )
    title = steps.title(step, threads)
    if as_json:
        console.print_json(result)
    else:
        say(f"{title}\n")
        show(found)
    if any(each.status == measure.OK for each in found):
        history.add(workspace, result)  # what was measured is shown, also where nothing can be kept
    if not as_json:
        try:
            past_ones = [r for r in history.load(workspace, step) if r["threads"] == threads]
            written = drawing.draw(past_ones, title, workspace.root / PICTURE)
            say(f"\ndrawn: {', '.join(path.name for path in written)}")
        except folder.WorkspaceError as error:
            say(f"\n{error}")
    raise typer.Exit(0 if result["passed"] else 1)


def chosen_tiers(on: str | None, tiers: Sequence[Tier]) -> list[Tier]:
    """The tiers that --on names, in the ladder's order; all without it."""
    names = [tier.name for tier in tiers]
    wanted = names if on is None else [name.strip() for name in on.split(",")]
    for name in wanted:
        if name not in names:
            raise typer.BadParameter(console.unknown("tier", name, names))
    return [tier for tier in tiers if tier.name in wanted]


def run_tiers(
    workspace: Workspace,
    step: str,
    tiers: Sequence[Tier],
    *,
    rounds: int,
    threads: int,
    with_share: bool,
) -> list[Measured]:
    """`measure.run_tiers` with progress on stderr, and tiers that are not here in their order."""
    from tito.ladder import measure

    there, absent = measure.here(tiers, workspace)
    with console.errors.status("starting") as shown:
        found = measure.run_tiers(
            workspace, step, there, rounds=rounds, threads=threads, with_share=with_share,
            said=lambda text: shown.update(f"{step}: {text}"),
        )  # fmt: skip
    return sorted([*found, *absent], key=lambda each: list(tiers).index(each.tier))


def show(found: Sequence[Measured]) -> None:
    """The table, and below it why a tier is not in it."""
    from tito.ladder import report

    columns, rows = report.rows(found)
    if rows:
        console.print_rows(columns, rows)
        say(f"\n{report.LEGEND}")
    for line in report.not_timed(found):
        say(line)


def _show_history(results: list[dict[str, object]], as_json: bool) -> None:
    from tinytorch.bench.units import format_seconds

    if as_json:
        console.print_json(results)
        return
    if not results:
        say("nothing was measured yet: tito ladder")
        return
    rows = []
    for result in results:
        tiers = result["tiers"]
        assert isinstance(tiers, list)
        timed = [tier for tier in tiers if "seconds" in tier]
        shown = [f"{r['tier']} {format_seconds(r['seconds'])}" for r in timed]
        rows.append([str(result["moment"])[:16].replace("T", " "), ", ".join(shown)])
    console.print_rows(["when", "a step"], rows)


def speed_line(workspace: Workspace, definitions: Sequence[str]) -> str:
    """What a step costs on loops and on NumPy, when the matrix product has become the student's.

    Args:
        definitions: what they have just completed.

    Returns:
        A line; "" if the product is not among them, or does not run.
    """
    if MATMUL not in definitions:
        return ""
    from tinytorch.bench.units import format_seconds
    from tito.ladder import measure
    from tito.ladder.steps import STEPS
    from tito.ladder.tiers import TIERS

    loops, numpy = run_tiers(workspace, "mlp", TIERS[:2], rounds=3, threads=1, with_share=False)
    if (loops.status, numpy.status) != (measure.OK, measure.OK):
        return ""
    return (
        f"a step of {STEPS['mlp'].title} costs {format_seconds(loops.seconds)} on your loops and "
        f"{format_seconds(numpy.seconds)} on NumPy, {measure.ratio(loops, numpy):.0f} times less: "
        f"a backend of your own begins with `tito backend new`"
    )
