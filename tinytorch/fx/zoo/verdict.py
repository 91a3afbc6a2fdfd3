"""What became of a model in a stage, and how results are compared.

A result that is not equal to eager's to the last bit is judged by its error against float64: it may
be as large as eager's own, times a small factor. So a reordered sum passes, a wrong one does not.

A gradient jumps where a ReLU's input changes its sign, and one rounding decides on which side of
such a corner a model is. What is off by more may therefore be tried `Again`: an error in what is
computed stays in float64, and an error of the float32 code alone is there on other inputs, too. A
corner is neither. What this cannot show is an error of float32 code that most inputs do not meet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tinytorch.errors import TinyTorchError
from tinytorch.fx.diagnosis.reasons import explain, is_out_of_memory, user_line

EQUAL, WITHIN, REFUSED, WRONG, CRASH = "bit-equal", "within", "refused", "WRONG", "crash"
TIMEOUT, MEMORY, NONE = "timeout", "memory", "not applicable"
VERDICTS = (EQUAL, WITHIN, REFUSED, WRONG, CRASH, TIMEOUT, MEMORY, NONE)
GOOD = (EQUAL, WITHIN)
CORNER = "a corner"  # a fact: why something was judged in float64 and on other inputs

FACTOR = 4.0  # times eager's own error against float64
UNJUDGED = 1e-5  # of the largest value: how far from eager's where there is no float64
UNRELATED = 1e-2  # of the largest value: farther off, float64 has computed something else
FLOOR = 1e-6  # of the largest value: an error below it says nothing
FLOOR_IN_FLOAT64 = 1e-10  # the same of what was itself computed in float64


@dataclass
class Verdict:
    """The outcome of a model in one stage.

    Attributes:
        verdict: one of VERDICTS.
        detail: why; for a refusal its reason, with the user's line.
        facts: what was measured, such as a peak.
        seconds: that it took.
    """

    verdict: str
    detail: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The verdict as a line of JSON has it; empty fields are left out."""
        found = {"verdict": self.verdict, "seconds": round(self.seconds, 2)}
        return found | {k: v for k in ("detail", "facts") if (v := getattr(self, k))}


Tensors = Sequence[Tensor | None]


@dataclass(frozen=True)
class Again:
    """What is examined, run in other ways.

    Attributes:
        in_float64: its results on the same inputs, made of the model in float64.
        elsewhere: on other inputs its results, eager's, and eager's in float64, batch by batch.
    """

    in_float64: Callable[[], Tensors]
    elsewhere: Callable[[], Iterable[tuple[Tensors, Tensors, Tensors | None]]]


def judge(
    found: Tensors,
    expected: Tensors,
    exact: Callable[[], Tensors | None],
    nearby: Callable[[], Iterable[Tensors]] = tuple,
    again: Again | None = None,
) -> Verdict:
    """Compare results with eager's.

    Args:
        exact: the same in float64; asked only if they are not equal. None if it cannot be had.
        nearby: eager's on inputs that differ in the last bit; asked only if an error is larger
            than eager's. Gradients jump where a ReLU's input changes its sign, so one run of
            eager's, which may be on the lucky side, does not show how large its errors are.
        again: asked only if even that does not show it.
    """
    if len(found) != len(expected):
        return Verdict(WRONG, f"{len(found)} results, and eager has {len(expected)}")
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if (a is None) != (b is None):
            return Verdict(WRONG, f"result {i} is {_said(a)}, and eager's {_said(b)}")
        if a is not None and b is not None and (a.shape != b.shape or a.dtype != b.dtype):
            return Verdict(WRONG, f"result {i} is {_said(a)}, and eager's {_said(b)}")
    different = [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if not same(a, b)]
    if not different:
        return Verdict(EQUAL)
    reference = exact()
    if reference is None or not _is_of(expected, reference):
        return _judge_by_eager(found, expected, different)
    verdict = _judge_by(found, [expected], reference, different)
    if verdict.verdict == WRONG and (others := list(nearby())):
        verdict = _judge_by(found, [expected, *others], reference, different)
        if verdict.verdict == WITHIN:
            verdict.detail += f", which is the largest of {len(others) + 1} runs of eager's"
    if verdict.verdict != WRONG or again is None:
        return verdict
    return _at_a_corner(verdict, reference, again)


def _at_a_corner(wrong: Verdict, reference: Tensors, again: Again) -> Verdict:
    """Whether what is wrong in float32 is right in float64 and, mostly, on other inputs."""
    wide, everything = again.in_float64(), range(len(reference))
    if [_said(x) for x in wide] != [_said(x) for x in reference]:
        return Verdict(WRONG, f"{wrong.detail}; made in float64 it has other results")
    found = _judge_by(wide, [reference], reference, everything, FLOOR_IN_FLOAT64)
    if found.verdict == WRONG:
        return Verdict(WRONG, f"{wrong.detail}; in float64, too: {found.detail}")
    judged = [judge(a, b, partial(_given, exact)).verdict in GOOD
              for a, b, exact in again.elsewhere()]  # fmt: skip
    count = f"{sum(judged)} of {len(judged)} other inputs"
    if 2 * sum(judged) <= len(judged):
        return Verdict(WRONG, f"{wrong.detail}; in float64 it is right, in float32 on {count}")
    return Verdict(
        WITHIN, wrong.detail, {CORNER: f"{wrong.detail}; in float64 it is right, and so on {count}"}
    )


def _given(results: Tensors | None) -> Tensors | None:
    return results


def _judge_by_eager(found: Tensors, expected: Tensors, different: list[int]) -> Verdict:
    """Where there is no float64: to a tolerance, and it is said."""
    scale = max((_largest(x) for x in expected), default=0.0)
    for i in different:
        mine, eager = found[i], expected[i]
        assert mine is not None and eager is not None
        off = _error(mine, eager.double()) if mine.is_floating_point() else math.inf
        if off > UNJUDGED * scale or not torch.equal(mine.isfinite(), eager.isfinite()):
            return Verdict(WRONG, f"result {i}, {_said(mine)}: {off:.1e} from eager's, no float64")
    return Verdict(WITHIN, f"no float64 to judge by; within {UNJUDGED:g} of eager's largest value")


def _is_of(expected: Tensors, exact: Tensors) -> bool:
    """Whether these are the same results: in float64 a model may take another expert or token."""
    if [x is None or x.shape for x in expected] != [x is None or x.shape for x in exact]:
        return False
    scale = max((_largest(x) for x in exact), default=0.0)
    return all(
        _error(a, b) <= UNRELATED * scale
        for a, b in zip(expected, exact, strict=True)
        if a is not None and b is not None and a.is_floating_point()
    )


def _judge_by(
    found: Tensors,
    runs: Sequence[Tensors],
    exact: Tensors,
    different: Iterable[int],
    floor: float = FLOOR,
) -> Verdict:
    """By the largest error of eager's runs; of them the first has the inputs that `found` has."""
    expected = runs[0]
    scale = max((_largest(x) for x in exact), default=0.0)
    worst, judged = 0.0, 0
    for i in different:
        mine, eager, right = found[i], expected[i], exact[i]
        if same(mine, eager):
            continue
        assert mine is not None and eager is not None
        judged += 1
        if right is None or not mine.is_floating_point():
            return Verdict(WRONG, f"result {i}, {_said(mine)}, differs")
        if not torch.equal(mine.isfinite(), eager.isfinite()):
            return Verdict(WRONG, f"result {i}, {_said(mine)}, is not finite where eager's is")
        ours = _error(mine, right)
        own = max(_error(x, right) for run in runs if (x := run[i]) is not None)
        allowed = max(FACTOR * own, floor * scale)
        if ours > allowed:
            return Verdict(
                WRONG, f"result {i}, {_said(mine)}: error {ours:.1e}, eager's is {own:.1e}"
            )
        worst = max(worst, ours / allowed if allowed else 0.0)
    detail = f"{judged} of {len(found)} results, {worst:.0%} of the error allowed"
    return Verdict(WITHIN, detail)


def same(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether values are equal to the last bit, NaN included; both absent counts."""
    if a is None or b is None:
        return a is b
    return torch.equal(a, b) or (
        a.is_floating_point() and torch.equal(a.nan_to_num(), b.nan_to_num())
        and torch.equal(a.isnan(), b.isnan())
    )  # fmt: skip


def _error(x: Tensor, exact: Tensor) -> float:
    difference = (x.double() - exact).abs()
    finite = difference[difference.isfinite()]
    return finite.max().item() if finite.numel() else 0.0


def _largest(x: Tensor | None) -> float:
    if x is None or not x.is_floating_point():
        return 0.0
    finite = x[x.isfinite()]
    return finite.abs().max().item() if finite.numel() else 0.0


def _said(x: Tensor | None) -> str:
    return "nothing" if x is None else f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"


def of_error(error: BaseException) -> Verdict:
    """A refusal, which is one of our own errors; or a crash, which is any other."""
    if is_out_of_memory(error):
        return Verdict(MEMORY, _relative(f"{str(error)[:200]} at {user_line(error)}"))
    if isinstance(error, TinyTorchError):
        reason = getattr(error, "reason", None)
        return Verdict(REFUSED, _relative(str(reason or error)))
    return Verdict(CRASH, _relative(f"{type(error).__name__}: {error} at {user_line(error)}"))


def of_peer(error: BaseException) -> Verdict:
    """The verdict of another tool that refuses a model."""
    return Verdict(REFUSED, _relative(str(explain(error))))


def _relative(text: str) -> str:
    """Without the folders of this machine."""
    return re.sub(r"\S*/site-packages/", "", text)[:600]
