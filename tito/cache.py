"""`tito cache`: the compiled kernels on disk."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from importlib.util import find_spec
from typing import Annotated

import typer

from tito import console


class Action(StrEnum):
    """What can be done with the cache."""

    WARM = "warm"


def cache(
    action: Annotated[
        Action | None,
        typer.Argument(help="warm: compile and time all kernels now, not when needed."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all compiled kernels.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For a machine to read.")] = False,
) -> None:
    """Show the compiled kernels on disk, remove them, or compile all that models use.

    They are compiled when they are first needed.
    """
    if find_spec("numba") is None:
        console.errors.print(
            "compiled kernels need numba, which is not installed: pip install 'tinytorch[fast]'",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(1)
    from tinytorch.bench import format_bytes
    from tinytorch.jit.cache import cache_info, clear_cache

    freed = clear_cache() if clear else 0
    if action is Action.WARM:
        _warm()
    info = cache_info()
    if as_json:
        report = {**asdict(info), "path": str(info.path), "freed_bytes": freed}
        console.print_json(report)
        return
    if clear:
        console.out.print(f"freed {format_bytes(freed)}", highlight=False)
    rows = [
        ["folder", str(info.path)],
        ["kernels", f"{info.entries} in {format_bytes(info.nbytes)}"],
        ["older libraries", str(info.other_libraries)],
    ]
    console.print_rows(["compiled kernels", ""], rows)


def _warm() -> None:
    """Compile every family of kernels, with a progress bar on stderr, and see where NumPy's library
    has the faster product."""
    from rich.progress import Progress

    from tinytorch.backends.optimized.gemm.library import all_classes
    from tinytorch.backends.optimized.gemm.matmul import choices as products
    from tinytorch.backends.optimized.precompile import load_library
    from tinytorch.jit.compile_progress import progress
    from tinytorch.text.kernels import encoder, trainer  # noqa: F401 - their kernels too

    progress.quiet = True
    with Progress(console=console.errors, transient=True) as bar:
        task = bar.add_task("compiling kernels")
        load_library(lambda done, total: bar.update(task, completed=done, total=total))
        bar.add_task("timing products beside NumPy's library")
        choices = products()
        for product in all_classes():
            choices.prefers_library(product)
