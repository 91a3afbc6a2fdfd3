"""An A/A study: NumPy's backend as the baseline, and the same file as an entry, match after match.

Both sides are the same code, so a ratio other than 1 is luck or a fault of the harness. Each match
is a whole one: new processes in the sandbox, new inputs, and more launches where it was noisy. A
match *holds* if 1 is within its interval. Finished matches are kept in a file, a line each, and a
study that was interrupted goes on where it was.

Source: R. Kohavi, R. Longbotham, D. Sommerfield, R. Henne, "Controlled experiments on the web:
survey and practical guide", Data Mining and Knowledge Discovery 18, 2009 (the A/A test).
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from tito.compete.event import Event
from tito.compete.measure import REPEATS, measure
from tito.compete.process import Contestant

COPY = (
    "from tinytorch.backends.numpy import NumpyBackend\n\n\nclass Copy(NumpyBackend):\n    pass\n"
)
SHARE = 0.95  # of the matches should hold


class StudyError(Exception):
    """The study cannot go on; the text says why."""


@dataclass(frozen=True)
class Match:
    """What came of one match.

    Attributes:
        seed: of its shapes and values.
        scores: the ratio in each launch.
        ratio, low, high: the score and its 95 % interval.
        verdict: as an entry's: "ok" or "noisy".
    """

    seed: int
    scores: tuple[float, ...]
    ratio: float
    low: float
    high: float
    verdict: str

    @property
    def holds(self) -> bool:
        """Whether it says that code is as fast as itself."""
        return self.low <= 1.0 <= self.high


def study(
    event: Event,
    matches: int,
    launches: int,
    *,
    seed: int | None = None,
    file: Path | None = None,
    confined: bool = True,
    repeats: int = REPEATS,
    step: Callable[[], None] = lambda: None,
) -> list[Match]:
    """Measure until there are so many matches, those in the file included.

    Args:
        event: measured in its open division, where an entry may be NumPy's backend.
        seed: of the first match; the next has the next.
        file: of finished matches, which is read first.
        step: called for each match, those of the file included.

    Raises:
        StudyError: a side failed, or the file is that of another study.
    """
    event = replace(event, division="open")
    told = {"event": event.name, "cases": list(event.cases), "rounds": event.rounds,
            "launches": launches, "confined": confined}  # fmt: skip
    done = _read(file, told)
    for _ in done:
        step()
    begin = int(np.random.default_rng(seed).integers(1 << 32)) if seed is None else seed
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "copy.py"
        path.write_text(COPY, "utf-8")
        pair = [Contestant("numpy"), Contestant("copy", path, "Copy")]
        while len(done) < matches:
            own = begin + len(done)
            measured = measure(event, pair, launches, seed=own, confined=confined, repeats=repeats)
            if measured.result is None:
                failed = "; ".join(str(f) for f in measured.failed.values())
                raise StudyError(f"match {len(done) + 1}: {failed}")
            score = measured.result.scores[1]
            found = Match(
                own, measured.result.by_launch["copy"], score.ratio, score.low, score.high,
                measured.result.verdicts["copy"],
            )  # fmt: skip
            done.append(found)
            if file is not None:
                with file.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(asdict(found)) + "\n")
            step()
    return done


def _read(file: Path | None, told: dict[str, object]) -> list[Match]:
    """Matches of a file that begins with what the study measures; a new one is begun."""
    if file is None:
        return []
    try:
        if not file.exists():
            file.write_text(json.dumps(told) + "\n", "utf-8")
            return []
        first, *lines = map(json.loads, file.read_text("utf-8").splitlines())
        found = [Match(**{**line, "scores": tuple(line["scores"])}) for line in lines]
    except OSError as error:
        raise StudyError(f"{file} cannot be read or written: {error.strerror}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise StudyError(f"{file} is not the file of a study: {error}") from None
    if first != told:
        raise StudyError(
            f"{file} is of another study, {first}, and this one is {told}: give another file"
        )
    return found


def at_most(held: int, matches: int, share: float = SHARE) -> float:
    """The probability that at most `held` matches hold if each holds with probability `share`.

    >>> round(at_most(94, 100), 3)
    0.384
    """
    return sum(
        math.comb(matches, k) * share**k * (1 - share) ** (matches - k) for k in range(held + 1)
    )
