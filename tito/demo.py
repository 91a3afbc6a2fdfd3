"""`tito demo`: a convolutional network learns real handwritten digits, on three backends."""

from __future__ import annotations

from typing import Annotated

import typer

from tito import scripts
from tito.milestone import find


def demo(
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout; progress goes to stderr.")
    ] = False,
) -> None:
    """Train a small CNN on real digits: first on loops, then fast, with the same numbers.

    Exits with 1 if the backends disagree or the network does not learn.
    """
    script = find("cnn").script.with_name("demo.py")
    code, _ = scripts.run_script(script, ["--json"] if as_json else [])
    raise typer.Exit(code)
