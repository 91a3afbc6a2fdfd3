"""What `tito fx zoo` does; its options are there."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tinytorch.bench import format_table
from tinytorch.errors import TinyTorchError
from tinytorch.fx.zoo.catalogue import absent, catalogue, chosen
from tinytorch.fx.zoo.child import Limits
from tinytorch.fx.zoo.page import bad, markdown, rows, summary
from tinytorch.fx.zoo.runner import Record, read, recorded_versions, run, versions
from tinytorch.fx.zoo.stages import STAGES
from tinytorch.fx.zoo.verdict import NONE


class _StopError(Exception):
    """The time that was given is over."""


@dataclass(frozen=True)
class Zoo:
    """A run of the zoo: which architectures, which stages, under which limits.

    Attributes:
        only: patterns of names, such as "transformers/ber*" or "bert"; by default all.
        sample: how many of them, at random; None for all.
        seed: of the sample.
        stages: that are asked for.
        out: the file of results, a line of JSON each; a run goes on from them.
        limits: of each model.
        jobs: models at a time.
        stop_after: minutes after which no model is begun; None for no end.
        retry: build again what was left out, and go again through stages that were not right.
        renew: go again through stages whose results are of other sources of TinyTorch.
        note: a sentence on how the run was made, for the page.
    """

    only: Sequence[str] = ()
    sample: int | None = None
    seed: int = 0
    stages: Sequence[str] = tuple(STAGES)
    out: Path = Path("build/zoo.jsonl")
    limits: Limits = field(default_factory=Limits)
    jobs: int = 1
    stop_after: float | None = None
    retry: bool = False
    renew: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        for stage in self.stages:
            if stage not in STAGES:
                raise TinyTorchError(f"there is no stage {stage!r}; there are {', '.join(STAGES)}")

    def names(self) -> list[str]:
        """The architectures that are asked for, of those that are installed."""
        return self._chosen(catalogue())

    def _chosen(self, installed: list[str]) -> list[str]:
        return chosen(installed, self.only, self.sample, self.seed)

    def run(self) -> None:
        """Run what `out` does not have yet; a line of progress for each model, on stderr."""
        end = time.monotonic() + 60 * self.stop_after if self.stop_after else None

        def progress(done: int, of: int, record: Record) -> None:
            _said(done, of, record)
            if end is not None and time.monotonic() > end:
                raise _StopError

        for library in absent():
            print(f"{library} is not installed: its models are left out", file=sys.stderr)
        try:
            run(self.names(), self.stages, self.out, self.limits, progress, self.jobs, self.retry,
                self.renew)  # fmt: skip
        except _StopError:
            print("the time is over; the same command goes on from here", file=sys.stderr)

    def results(self) -> Results:
        """What `out` has of the architectures that are asked for."""
        known, installed = read(self.out), catalogue()
        names = self._chosen(installed)
        found = [known[name] for name in names if name in known]
        kind = f"all {len(installed)} architectures that are installed"
        if self.only:
            kind = f"those like {', '.join(self.only)} of {kind}"
        if self.sample is not None:
            kind = f"a random sample of {self.sample} (seed {self.seed}) of {kind}"
        short = "" if len(found) == len(names) else f", of which {len(found)} were reached"
        return Results(found, recorded_versions(self.out), (
            f"Asked for: {kind}; {len(names)} in all{short}. Limits: "
            f"{self.limits.stage_seconds:g} s of CPU time for a stage, "
            f"{self.limits.memory_bytes / 2**30:g} GiB. {self.note}".rstrip()
        ))  # fmt: skip


@dataclass(frozen=True)
class Results:
    """The records of a run, in three forms.

    Attributes:
        records: of the architectures that were asked for and reached.
        versions: with which they were made.
        how: which architectures these are, in a sentence.
    """

    records: list[Record]
    versions: dict[str, str]
    how: str

    @property
    def bad(self) -> list[tuple[str, str, str]]:
        """What is WRONG or a crash of ours: model, stage and detail."""
        return bad(self.records)

    def page(self) -> str:
        """Markdown."""
        return markdown(self.records, self.versions, self.how)

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain values, as for JSON."""
        return summary(self.records, versions())

    def __str__(self) -> str:
        table = format_table(*rows([r for r in self.records if not r.skipped]))
        return "\n".join([table, *(" ".join(line) for line in self.bad)])


def _said(done: int, of: int, record: Record) -> None:
    found: dict[str, list[str]] = {}
    for stage, verdict in record.stages.items():
        found.setdefault(verdict["verdict"], []).append(stage)
    text = "; ".join(f"{verdict}: {' '.join(stages)}" for verdict, stages in found.items()
                     if verdict != NONE)  # fmt: skip
    print(f"[{done}/{of}] {record.name}  {record.skipped or text}", file=sys.stderr, flush=True)
