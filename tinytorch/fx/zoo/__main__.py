"""The command: `tito fx zoo`, `python benchmarks/zoo.py` or `python -m tinytorch.fx.zoo`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tinytorch.bench import format_table
from tinytorch.errors import TinyTorchError
from tinytorch.fx.zoo.catalogue import absent, catalogue, chosen
from tinytorch.fx.zoo.child import Limits
from tinytorch.fx.zoo.page import bad, markdown, rows, summary
from tinytorch.fx.zoo.runner import Record, read, recorded_versions, run, versions
from tinytorch.fx.zoo.stages import STAGES
from tinytorch.fx.zoo.verdict import NONE

DEFAULT = Path("build/zoo.jsonl")


def parser() -> argparse.ArgumentParser:
    """The options; `tito fx zoo` passes its own on to them."""
    found = argparse.ArgumentParser(prog="zoo", description=__doc__)
    found.add_argument("--only", action="append", default=[], metavar="PATTERN",
                       help="transformers/ber*, or bert; may be given again")  # fmt: skip
    found.add_argument("--sample", type=int, metavar="N", help="so many of them, at random")
    found.add_argument("--seed", type=int, default=0, help="of the sample")
    found.add_argument("--stages", default=",".join(STAGES), help="by default all")
    found.add_argument("--out", type=Path, default=DEFAULT, help="results, a line of JSON each")
    found.add_argument("--stage-seconds", type=float, default=Limits.stage_seconds)
    found.add_argument("--model-seconds", type=float, default=Limits.model_seconds)
    found.add_argument("--memory", type=float, default=Limits.memory_bytes / 2**30, metavar="GiB")
    found.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at a time")
    found.add_argument("--stop-after", type=float, metavar="MINUTES", help="begin no model then")
    found.add_argument("--retry", action="store_true", help="build again what was left out")
    found.add_argument("--page", type=Path, help="write the results as this Markdown page")
    found.add_argument(
        "--note", default="", help="a sentence on how the run was made, for the page"
    )
    found.add_argument("--no-run", action="store_true", help="only look at what --out has")
    found.add_argument("--list", action="store_true", help="the names, and no run")
    found.add_argument("--json", action="store_true", help="the summary, for a machine")
    return found


def said(done: int, of: int, record: Record) -> None:
    """One line of progress, on stderr."""
    found: dict[str, list[str]] = {}
    for stage, verdict in record.stages.items():
        found.setdefault(verdict["verdict"], []).append(stage)
    text = "; ".join(f"{verdict}: {' '.join(stages)}" for verdict, stages in found.items()
                     if verdict != NONE)  # fmt: skip
    print(f"[{done}/{of}] {record.name}  {record.skipped or text}", file=sys.stderr, flush=True)


class _Stop(Exception):
    """The time that was given is over."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print the table; 1 if something of ours is wrong or crashes."""
    options = parser().parse_args(arguments)
    try:
        return _main(options)
    except TinyTorchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _main(options: argparse.Namespace) -> int:
    stages = options.stages.split(",")
    unknown = [s for s in stages if s not in STAGES]
    if unknown:
        raise TinyTorchError(f"there is no stage {unknown[0]!r}; there are {', '.join(STAGES)}")
    there = catalogue()
    names = chosen(there, options.only, options.sample, options.seed)
    if options.list:
        print("\n".join(names))
        return 0
    for library in absent():
        print(f"{library} is not installed: its models are left out", file=sys.stderr)
    if not options.no_run:
        _run(options, names, stages)
    known = read(options.out)
    records = [known[name] for name in names if name in known]
    wrong = bad(records)
    if options.json:
        print(json.dumps(summary(records, versions()), indent=2))
    else:
        print(format_table(*rows([r for r in records if not r.skipped])))
        for model, stage, detail in wrong:
            print(f"{model} {stage} {detail}")
    if options.page is not None:
        how = _how(options, len(names), len(there), len(records))
        options.page.write_text(markdown(records, recorded_versions(options.out), how))
    return 1 if wrong else 0


def _run(options: argparse.Namespace, names: list[str], stages: list[str]) -> None:
    limits = Limits(options.stage_seconds, options.model_seconds, int(options.memory * 2**30))
    end = time.monotonic() + 60 * options.stop_after if options.stop_after else None

    def progress(done: int, of: int, record: Record) -> None:
        said(done, of, record)
        if end is not None and time.monotonic() > end:
            raise _Stop

    try:
        run(names, stages, options.out, limits, progress, options.jobs, options.retry)
    except _Stop:
        print("the time is over; the same command goes on from here", file=sys.stderr)


def _how(options: argparse.Namespace, asked: int, there: int, reached: int) -> str:
    kind = f"all {there} architectures that are installed"
    if options.only:
        kind = f"those like {', '.join(options.only)} of {kind}"
    if options.sample is not None:
        kind = f"a random sample of {options.sample} (seed {options.seed}) of {kind}"
    short = "" if reached == asked else f", of which {reached} were reached"
    return (
        f"Asked for: {kind}; {asked} in all{short}. Limits: {options.stage_seconds:g} s of CPU "
        f"time for a stage, {options.memory:g} GiB. {options.note}".rstrip()
    )


if __name__ == "__main__":
    sys.exit(main())
