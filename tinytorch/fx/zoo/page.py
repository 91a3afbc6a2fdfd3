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

#: A reason with the user's line: "why at file.py:12: x = y".
AT = re.compile(r"(?P<why>.*?) at (?P<file>\S+:\d+)(: (?P<code>.*))?$")
#: What a reason says of one model only: a name, or by how much something differs.
OWN = re.compile(r":? (output|gradient|loss|parameter|buffer)?( '[^']*')? differs by up to \S+|"
                 r"(?<=parameter) '[^']*'")  # fmt: skip
OPERATORS_SHOWN = 3
#: Why architectures are left out, by what is said of them; what fits none is the last.
LEFT_OUT = (
    ("They need a library that is not installed", r"requires the (\S+) library"),
    ("They do not become small", r"has [\d,]+ parameters, more than"),
    ("They do not build from a configuration that is shrunk by rule", r"does not build"),
    ("They do not run on the inputs that are made by rule", r""),
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


#: Why, and the user's line: for each the models, with their stages.
Reasons = dict[tuple[str, str], dict[str, list[str]]]


def refusals(records: Iterable[Record]) -> Reasons:
    """Reasons in plain words with the user's code, each with the models that it refused and in
    which stages."""
    found: Reasons = defaultdict(lambda: defaultdict(list))
    for record in records:
        for stage, verdict in record.stages.items():
            if verdict["verdict"] == REFUSED and stage not in PEERS:
                found[_reason(verdict.get("detail", ""))][record.name].append(stage)
    return found


def _reason(detail: str) -> tuple[str, str]:
    """The reason of a refusal, without what differs from model to model, and the code of the
    line where it was met; of operators that cannot be taken over, which they are."""
    first, _, rest = detail.partition("\n")
    if "operators cannot be taken over" in first:
        lines = (line.partition(": ")[2].partition("; there are")[0] for line in rest.splitlines())
        whole = dict.fromkeys(x for x in lines if x and not x.endswith("is not supported"))
        return f"operators cannot be taken over: {'; '.join(list(whole)[:OPERATORS_SHOWN])}", ""
    at = AT.match(first)
    why, code = (at["why"], at["code"] or "") if at else (first, "")
    return OWN.sub("", why), code.partition("  #")[0].strip()


def _by_reason(found: Reasons) -> list[str]:
    """Lines of a list: the reason of most models first, each line of code on its own."""
    by_why: dict[str, dict[str, dict[str, list[str]]]] = defaultdict(dict)
    for (why, code), models in found.items():
        by_why[why][code] = models
    lines = []
    for why, codes in sorted(by_why.items(), key=lambda x: -sum(map(len, x[1].values()))):
        plain = codes.pop("", None)
        lines.append(f"- {_plain(why)}{': ' + _listed(plain) if plain else ''}")
        for code, models in sorted(codes.items(), key=lambda x: (-len(x[1]), x[0])):
            lines.append(f"  - `{code.replace('`', '')}`: {_listed(models)}")
    return lines


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
    there = ", ".join(f"{k} {v}" for k, v in versions.items() if v != "absent")
    gone = ", ".join(k for k, v in versions.items() if v == "absent")
    lines = [
        "# The zoo", "",
        "Each architecture is built small, with random weights, and goes through each stage in a "
        "process of its own, compared with eager PyTorch. `tito fx zoo --page docs/zoo.md` writes "
        "this page from the results of a run.", "",
        f"Versions: {there}." + (f" Not installed, so not covered: {gone}." if gone else "")
        + _of_codes(records), "",
        how, "",
        markdown_table(*rows(ran)), "",
        f"Of {len(records)} architectures {len(ran)} build small and run eagerly.", "",
        "- *within*: not equal to the last bit, but with an error against float64 that is at most "
        "four times eager's own (or below 1e-6 of the largest value). Where a gradient jumps at "
        "the corner of a ReLU, one run of eager's does not show its own error: then eager's on "
        "inputs or parameters that differ in the last bit counts, too.",
        "- *refused*: an error of ours says why; the model itself is left as it was.",
        "- *with guards*: Python asks for values, and such a model is refused by default; with "
        "`guarded=True` a graph is of the values of its example and checks them, and another is "
        "captured for others (`Branches`). That counts as right.",
        *_of_peaks(ran), *_of_training(ran),
        "- Inputs that say sizes (such as `grid_thw`) are constants of forward, joint and steps.",
        "", "## Wrong, or a crash", "",
    ]  # fmt: skip
    lines += [f"- `{m}`, {s}: {_plain(d)}" for m, s, d in bad(ran)] or ["None."]
    lines += ["", *_of_corners(ran), "## Refused, and why", ""]
    lines += _by_reason(refusals(ran)) or ["Nothing."]
    lines += ["", *_of_guards(ran), *_of_left_out(records)]
    return "\n".join(lines).rstrip() + "\n"


def _listed(models: dict[str, list[str]]) -> str:
    """Models, those together that are named for the same stages."""
    together: dict[str, list[str]] = defaultdict(list)
    for model, stages in models.items():
        together[", ".join(stages)].append(f"`{model.partition('/')[2]}`")
    return "; ".join(f"{', '.join(names)} ({stages})" for stages, names in together.items())


def _of_codes(records: Sequence[Record]) -> str:
    """Which sources of TinyTorch the results are of."""
    if not any(r.codes for r in records):
        return ""
    count = Counter(" and ".join(r.codes) or "earlier ones" for r in records)
    if len(count) == 1:
        return f" All results are of the same sources of TinyTorch, {next(iter(count))}."
    each = ", ".join(f"{n} of {code}" for code, n in count.most_common())
    return f" Sources of TinyTorch, by their digest: {each} (`--renew` runs them anew)."


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
    found: Reasons = defaultdict(lambda: defaultdict(list))
    for stage in counts(records):
        for name, facts in with_guards(records, stage):
            found[_reason(facts[WHY_GUARDED])][name].append(stage)
    lines = _by_reason(found)
    return ["## Right with guards", "", *lines, ""] if lines else []


def _of_left_out(records: Sequence[Record]) -> list[str]:
    """The names of those that did not come as far as the first stage, by cause."""
    found: dict[str, list[str]] = {cause: [] for cause, _ in LEFT_OUT}
    for record in records:
        if record.skipped:
            fits = (cause for cause, said in LEFT_OUT if re.search(said, record.skipped))
            found[next(fits)].append(f"`{record.name}`")
    lines = [f"- {cause}: {', '.join(names)}" for cause, names in found.items() if names]
    if not lines:
        return []
    return ["## Left out", "", "What each of them says is in the results, as `skipped`.", "",
            *lines]  # fmt: skip


def _of_training(records: Sequence[Record]) -> list[str]:
    """How many of those that are refused in training mode are right in evaluation mode."""
    facts = [v.get("facts", {}) for r in records for s, v in r.stages.items()
             if s == "joint" and v["verdict"] == REFUSED]  # fmt: skip
    right = sum(bool(f.get(RIGHT_IN_EVALUATION)) for f in facts)
    if not right:
        return []
    return [f"- Of the {len(facts)} that are refused in joint, {right} are right in evaluation "
            "mode."]  # fmt: skip


def _of_peaks(records: Sequence[Record]) -> list[str]:
    measured, right = peaks(records)
    if not measured:
        return []
    return [
        "- *checkpoint*: half-way between keeping everything and the lowest peak there is (with a "
        "batch eight times as large where weights and their gradients take more than all else): in "
        f"{right} of {measured} models the measured peak is within 1 % of the predicted one or "
        "below it.",
    ]  # fmt: skip


def _plain(text: str) -> str:
    """On one line, with nothing that Markdown takes for a sign."""
    text = " ".join(text.split())[:260]
    return re.sub(r"([*_<>|\[\]`])", r"\\\1", text)
