"""`tito cache`: the compiled kernels on disk."""

from __future__ import annotations

from dataclasses import asdict
from importlib.util import find_spec
from typing import Annotated

import typer

from tito import console


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all compiled kernels.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For a machine to read.")] = False,
) -> None:
    """Show the compiled kernels on disk, or remove them; they are compiled again when needed."""
    if find_spec("numba") is None:
        console.errors.print(
            "compiled kernels need numba, which is not installed: pip install 'tinytorch[fast]'",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(1)
    from tinytorch.backends.optimized.jit.cache import cache_info, clear_cache
    from tinytorch.bench import format_bytes

    freed = clear_cache() if clear else 0
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
