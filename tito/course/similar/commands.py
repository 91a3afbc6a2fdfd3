"""`tito course similar`: pairs of solutions to look at."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tito import console
from tito.course.common import Json, Where, explained, noted

app = typer.Typer()
SHOWN = 15


@app.command(
    epilog="Examples:\n\ntito course similar 02_tensor --to similar.html\n\n"
    "tito course similar 02_tensor --most 20 --json"
)
def similar(
    assignment: Annotated[str, typer.Argument(help="An assignment that is generated.")],
    to: Annotated[Path | None, typer.Option(help="A page with the pairs side by side.")] = None,
    most: Annotated[int, typer.Option(help="Pairs, those that share most first.", min=1)] = 100,
    course: Where = Path(),
    as_json: Json = False,
) -> None:
    """List pairs of solutions that share what is not in the reference; it judges nothing."""
    with explained():
        from tito.course.config import Course
        from tito.course.files import write_whole
        from tito.course.similar.compare import report
        from tito.course.similar.page import page

        here = Course.load(course)
        found = report(here, assignment, most)
        if to is not None:
            write_whole(to, page(found).encode(errors="replace"))
        noted(here, "similar", assignment, pairs=len(found.pairs))
    if as_json:
        pairs = [{**asdict(pair), "part": pair.part} for pair in found.pairs]
        console.print_json({"pairs": pairs, "skipped": dict(found.skipped)})
        return
    rows = [
        [pair.left, pair.right, f"{pair.shared}", f"{pair.part:.0%} of {pair.of}"]
        for pair in found.pairs[:SHOWN]
    ]
    console.print_rows(["", "", "shared", "of the smaller one"], rows)
    for name, reason in found.skipped.items():
        console.out.print(f"not compared: {name}: {reason}", markup=False, highlight=False)
    if to is not None:
        console.out.print(str(to), markup=False, highlight=False)
