"""`tito bench`: run the benchmarks of the repository."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tito import INTERRUPTED, console, scripts
from tito.module import plainly

if TYPE_CHECKING:
    from tito.workspace.folder import Workspace


def benchmarks() -> dict[str, Path]:
    """The scripts in benchmarks/ that can be run, by name; helper modules have no main part."""
    files = sorted(scripts.folder("benchmarks").glob("*.py"))
    return {p.stem: p for p in files if 'if __name__ == "__main__":' in p.read_text("utf-8")}


def _title(script: Path) -> str:
    docstring = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def _with_backend(arguments: Sequence[str], workspace: Workspace | None) -> list[str]:
    """The arguments with a student's backend after `--backend` as FILE.py:CLASS."""
    from tito.workspace import backends

    found: list[str] = []
    for argument in arguments:
        option, equals, name = argument.partition("=")
        if found[-1:] == ["--backend"]:
            argument = backends.resolve(argument, workspace)
        elif option == "--backend" and equals:
            argument = f"{option}={backends.resolve(name, workspace)}"
        found.append(argument)
    return found


@plainly
def bench(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Which benchmark; without a name all, for hours.")
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show the benchmarks.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout; progress goes to stderr.")
    ] = False,
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            help="Keep this machine's figures in benchmarks/results and docs/machines.md.",
        ),
    ] = False,
    hide: Annotated[
        str, typer.Option(help="A vector unit that nothing may use: avx512.", metavar="UNIT")
    ] = "",
) -> None:
    """Measure TinyTorch side by side with NumPy and PyTorch.

    Other options go to the benchmark itself; ask it with: tito bench NAME -- --help. In a workspace
    it runs on your tinytorch, and a benchmark with the option --backend takes --backend mine.
    """
    from tito.workspace import module
    from tito.workspace.folder import find

    known = benchmarks()
    if record:
        name = name or "machines"
        context.args.append("--record")
    if show_list:
        titles = {each: _title(path) for each, path in known.items()}
        if as_json:
            console.print_json(titles)
        else:
            console.print_rows(["name", "what"], list(titles.items()))
        return
    if name is not None and name not in known:
        raise typer.BadParameter(console.unknown("benchmark", name, list(known)))
    from tinytorch.bench import CANNOT_RUN_HERE

    chosen = known if name is None else {name: known[name]}
    workspace = find()
    if workspace is not None:
        module.refresh(workspace)
    package = scripts.ROOT if workspace is None else workspace.root
    arguments = _with_backend(context.args, workspace) + ["--json"] * as_json
    hiding = [str(scripts.folder("tools") / "without.py"), hide] if hide else []
    results, worst = {}, 0
    for number, (each, path) in enumerate(chosen.items(), 1):
        if name is None:
            out = console.errors if as_json else console.out
            out.print(f"== {each}, {number} of {len(chosen)}", highlight=False)
        script, *before = (*hiding, str(path))
        code, text = scripts.run_script(
            script, [*before, *arguments], capture=as_json and name is None, package=package
        )
        if code == INTERRUPTED:
            raise typer.Exit(code)
        if name is None and code == CANNOT_RUN_HERE:
            continue
        worst = max(worst, code)
        if text and not code:
            results[each] = json.loads(text)
    if as_json and name is None:
        console.print_json(results)
    raise typer.Exit(worst)
