"""The page of what was found."""

from __future__ import annotations

from dataclasses import replace

from tinytorch.fx.zoo import stages
from tinytorch.fx.zoo.page import bad, markdown, refusals, rows, summary
from tinytorch.fx.zoo.runner import Record

RECORDS = [
    Record("transformers/a", model={"class": "A"}, stages={
        "forward": {"verdict": "bit-equal", "seconds": 1.0},
        "joint": {"verdict": "refused", "seconds": 1.0, "detail": "a value\n  fix: none"},
        "checkpoint": {"verdict": "within", "seconds": 1.0,
                       "facts": {"predicted": 100, "measured": 100}},
        "export": {"verdict": "WRONG", "seconds": 1.0}}),
    Record("transformers/b", model={"class": "B"}, stages={
        "forward": {"verdict": "WRONG", "seconds": 1.0, "detail": "result 0"},
        "joint": {"verdict": "not applicable", "seconds": 0.0}}),
    Record("transformers/c", skipped="has 1 parameter too many"),
]  # fmt: skip


def test_the_page_says_what_was_found():
    columns, table = rows([r for r in RECORDS if not r.skipped])
    forward = dict(zip(columns, table[0], strict=True))
    assert forward["models"] == "2" and forward["WRONG"] == "1" and forward["right"] == "50.0 %"
    assert bad(RECORDS) == [("transformers/b", "forward", "WRONG: result 0")]  # no peer's
    assert refusals(RECORDS) == {("a value", ""): {"transformers/a": ["joint"]}}
    found = summary(RECORDS, {"torch": "2"})
    assert found["ran"] == 2 and found["peaks_as_predicted"] == (1, 1)
    page = markdown(RECORDS, {"torch": "2", "timm": "absent"}, "All of them.")
    for part in (
        "torch 2.",
        "not covered: timm",
        "| forward | 2 |",
        "- a value: `a` (joint)",
        "on the inputs that are made by rule: `transformers/c`",
        "in 1 of 1 models",
    ):
        assert part in page
    assert "sources of TinyTorch" not in page  # of which none is known
    known = markdown([replace(r, codes=["cafe"]) for r in RECORDS], {}, "")
    assert "All results are of the same sources of TinyTorch, cafe." in known


def test_the_page_gathers_what_is_refused_for_one_reason():
    why = "Python asks for the value of a tensor at models/{0}.py:{1}: if x > p:  # {0}\n  fix: it"
    missing = "2 of {} operators cannot be taken over; so:\n  a_{}: aten::polar is not in our table"
    records = [
        Record(f"transformers/{name}", model={"class": name}, codes=[code], stages={
            "joint": {"verdict": "refused", "seconds": 1.0, "detail": why.format(name, number)},
            "sgd": {"verdict": "refused", "seconds": 1.0, "detail": why.format(name, number)},
            "from_torch": {"verdict": "refused", "seconds": 1.0,
                           "detail": missing.format(number, number)},
            "forward": {"verdict": "bit-equal", "seconds": 1.0, "facts": {
                stages.GUARDED: 1, stages.WHY_GUARDED: why.format(name, number)}}})
        for name, number, code in (("a", 1, "cafe"), ("b", 20, "cafe"), ("c", 3, "beef"))
    ]  # fmt: skip
    records += [
        Record("transformers/d", skipped="requires the natten library", codes=["cafe"]),
        Record("timm/e", skipped="has 70,000,000 parameters, more than", codes=["cafe"]),
    ]
    page = markdown(records, {"torch": "2"}, "five.")
    for part in ("- Python asks for the value of a tensor\n  - `if x > p:`: `a`, `b`, `c` (joint",
                 "taken over: aten::polar is not in our table: `a`, `b`, `c` (from_torch)",
                 "`if x > p:`: `a`, `b`, `c` (forward)", "not installed: `transformers/d`",
                 "do not become small: `timm/e`", "4 of cafe, 1 of beef (`--renew`"):  # fmt: skip
        assert part in page, part
