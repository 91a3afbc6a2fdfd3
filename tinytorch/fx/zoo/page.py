"""What a run of the zoo found: the table, and the page docs/zoo.md."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from tinytorch.bench.units import markdown_table
from tinytorch.fx.zoo.runner import Record
from tinytorch.fx.zoo.stages import GUARDED, PEERS, RIGHT_IN_EVALUATION, STAGES, WHY_GUARDED
from tinytorch.fx.zoo.verdict import (
    CORNER,
    CRASH,
    EQUAL,
    GOOD,
    MEMORY,
    NONE,
    REFUSED,
    TIMEOUT,
    WITHIN,
    WRONG,
)

COLUMNS = (EQUAL, WITHIN, REFUSED, WRONG, CRASH, TIMEOUT, MEMORY)


def counts(records: Iterable[Record]) -> dict[str, Counter[str]]:
    """The count of each verdict, for each stage."""
    found: dict[str, Counter[str]] = {stage: Counter() for stage in STAGES}
    for record in records:
        for stage, verdict in record.stages.items():
            found[stage][verdict["verdict"]] += 1
    return {stage: count for stage, count in found.items() if count}


def rows(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the table: a row a stage, the share that is right in percent; and how
    many of these have guards, because their Python asks for values."""
    table = []
    for stage, count in counts(records).items():
        of = sum(count.values()) - count[NONE]
        right = count[EQUAL] + count[WITHIN]
        name = f"{stage} (PyTorch's)" if stage in PEERS else stage
        share = f"{100 * right / of:.1f} %" if of else "-"
        guarded = len(with_guards(records, stage))
        table.append([name, str(of), *(str(count[c]) for c in COLUMNS), share, str(guarded)])
    return ["stage", "models", *COLUMNS, "right", "with guards"], table


def with_guards(records: Iterable[Record], stage: str) -> list[tuple[str, dict[str, Any]]]:
    """The models that a stage gets right with guards only, and what was measured of each."""
    found = ((r.name, r.stages.get(stage, {})) for r in records)
    return [(name, verdict["facts"]) for name, verdict in found
            if verdict.get("verdict") in GOOD and GUARDED in verdict.get("facts", {})]  # fmt: skip


def bad(records: Iterable[Record]) -> list[tuple[str, str, str]]:
    """Model, stage and detail of everything of ours that is WRONG or a crash."""
    return [(r.name, stage, f"{v['verdict']}: {v.get('detail', '')}")
            for r in records for stage, v in r.stages.items()
            if v["verdict"] in (WRONG, CRASH) and stage not in PEERS]  # fmt: skip


def refusals(records: Iterable[Record]) -> dict[str, list[tuple[str, str]]]:
    """Reasons in plain words, each with the models and stages that it refused, commonest first."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for record in records:
        for stage, verdict in record.stages.items():
            if verdict["verdict"] == REFUSED and stage not in PEERS:
                reason = re.sub(r"\s*\n\s*", "; ", verdict.get("detail", "")).strip()
                found[reason[:240]].append((record.name, stage))
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def peaks(records: Iterable[Record]) -> tuple[int, int]:
    """The number of checkpointed models whose peak was measured, and at most as predicted + 1 %."""
    facts = [v["facts"] for r in records for s, v in r.stages.items()
             if s == "checkpoint" and "measured" in v.get("facts", {})]  # fmt: skip
    return len(facts), sum(f["measured"] <= 1.01 * f["predicted"] for f in facts)


def summary(records: Sequence[Record], versions: dict[str, str]) -> dict[str, Any]:
    """The summary as plain values, as for JSON: what the table says."""
    ran = [r for r in records if not r.skipped]
    return {
        "versions": versions,
        "architectures": len(records),
        "ran": len(ran),
        "stages": {stage: dict(count) for stage, count in counts(ran).items()},
        "bad": [{"model": m, "stage": s, "detail": d} for m, s, d in bad(ran)],
        "peaks_as_predicted": peaks(ran),
    }


def markdown(records: Sequence[Record], versions: dict[str, str], how: str) -> str:
    """The page.

    Args:
        how: which architectures these are, and the command that ran them.
    """
    ran = [r for r in records if not r.skipped]
    columns, table = rows(ran)
    there = ", ".join(f"{k} {v}" for k, v in versions.items() if v != "absent")
    gone = ", ".join(k for k, v in versions.items() if v == "absent")
    lines = [
        "# The zoo", "",
        "Made by `tito fx zoo --page docs/zoo.md` from the results of a run; not "
        "edited by hand. Each architecture is built small, with random weights, and goes through "
        "each stage in a process of its own, compared with eager PyTorch.", "",
        f"Versions: {there}." + (f" Not installed, so not covered: {gone}." if gone else ""), "",
        how, "",
        f"Of {len(records)} architectures {len(ran)} build small and run eagerly; the others are "
        "listed at the end. *Within* means: not equal to the last bit, but with an error against "
        "float64 that is at most four times eager's own (or below 1e-6 of the largest value); "
        "where one run of eager's does not show its own error, because a gradient jumps at the "
        "corner of a ReLU, eager's on inputs (or, without floating-point inputs, parameters) that "
        "differ in the last bit counts, too.", "",
        markdown_table(columns, table), "",
        "Inputs that say sizes (such as `grid_thw`) are constants of forward, joint and steps.", "",
        *_of_peaks(ran),
        *_of_training(ran),
        *_of_corners(ran),
        *_of_guards(ran),
        "## Wrong, or a crash", "",
    ]  # fmt: skip
    wrong = bad(ran)
    lines += [f"- `{m}`, {s}: {_plain(d)}" for m, s, d in wrong] or ["None."]
    lines += ["", "## Refused, and why", ""]
    for reason, where in refusals(ran).items():
        by_model: dict[str, list[str]] = defaultdict(list)
        for model, stage in where:
            by_model[model].append(stage)
        names = ", ".join(f"`{m.partition('/')[2]}` ({', '.join(s)})" for m, s in by_model.items())
        lines.append(f"- {_plain(reason)}: {names}")
    lines += ["", "## Left out", "",
              "They do not become small, or do not build or run eagerly.", ""]  # fmt: skip
    lines += [f"- `{r.name}`: {_plain(r.skipped)}" for r in records if r.skipped]
    return "\n".join(lines) + "\n"


def _of_corners(records: Sequence[Record]) -> list[str]:
    """What was judged in float64 and on other inputs."""
    facts = [(r.name, s, v.get("facts", {})) for r in records for s, v in r.stages.items()]
    lines = [f"- `{name}`, {s}: {_plain(f[CORNER])}" for name, s, f in facts if CORNER in f]
    if not lines:
        return []
    return [
        "*A corner*: compiled code that is off by more than eager ever is counts as within if what "
        "is compiled of the model in float64 is right, and the code in float32 is right on most "
        "of six other inputs. So a wrong rewrite is found, and so is an error that float32 alone "
        "has, unless few inputs meet it:", "", *lines, "",
    ]  # fmt: skip


def _of_guards(records: Sequence[Record]) -> list[str]:
    """Which models are right with guards only, and why."""
    lines: list[str] = []
    for stage in ("forward", "joint"):
        for name, facts in with_guards(records, stage):
            why = facts[WHY_GUARDED].partition("\n")[0]
            lines.append(f"- `{name}`, {stage}, graphs: {facts[GUARDED]}; {_plain(why)}")
    if not lines:
        return []
    return [
        "*With guards*: Python asks for values (an `if` on a random number that leaves out "
        "a layer, on a mask, on a length). Such a model is refused by default; with "
        "`guarded=True` the graph is of the values of the example, and checks them. For other "
        "values another graph is captured (`Branches`), which is counted here as right:",
        "", *lines, "",
    ]  # fmt: skip


def _of_training(records: Sequence[Record]) -> list[str]:
    """How many of those that are refused in training mode are right in evaluation mode."""
    facts = [v.get("facts", {}) for r in records for s, v in r.stages.items()
             if s == "joint" and v["verdict"] == REFUSED]  # fmt: skip
    right = sum(bool(f.get(RIGHT_IN_EVALUATION)) for f in facts)
    if not right:
        return []
    return [f"Of the {len(facts)} that are refused in joint, {right} are right in evaluation mode.",
            ""]  # fmt: skip


def _of_peaks(records: Sequence[Record]) -> list[str]:
    measured, right = peaks(records)
    if not measured:
        return []
    return [
        "Checkpointed half-way between keeping everything and the lowest peak there is (with a "
        "batch eight times as large where weights and their gradients take more than all else): in "
        f"{right} of {measured} models the measured peak is within 1 % of the predicted one or "
        "below it.", "",
    ]  # fmt: skip


def _plain(text: str) -> str:
    """On one line, with nothing that Markdown takes for a sign."""
    text = " ".join(text.split())[:260]
    return re.sub(r"([*_<>|\[\]`])", r"\\\1", text)
