"""How many launches and pairs a time buys, for who waits at a terminal.

A match without a budget has all of its event's pairs in every launch, and as many launches as its
interval needs. With one, the first launch has two pairs of each case, and shows what its start,
its first calls and a pair take. The others have as many pairs as leave time for all launches; where
not even two do, there are fewer launches. What was not bought is in the interval, which is wider.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

FEWEST_PAIRS, FEWEST_LAUNCHES = 2, 3  # turned round once; of two, an interval says nothing


@dataclass
class Budget:
    """Seconds from now on.

    >>> now = iter([0.0, 10.0])  # made at 0; the first launch ends at 10
    >>> budget = Budget(100.0, clock=lambda: next(now))
    >>> budget.note(first_calls=4.0, pairs=2, seconds=10.0)
    >>> budget.pairs(most=8, launches=11)  # 90 s for 10 launches: 4 s, and 3 s for each pair
    2

    Attributes:
        seconds: for the whole match, of any clock.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    _launches: list[tuple[float, float]] = field(default_factory=list, init=False)
    _pairs: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def spent(self) -> float:
        """Seconds that have passed."""
        return self.clock() - self._began

    def begin(self) -> None:
        """A match begins; again, without a contestant that failed."""
        self._launches, self._pairs = [], 0

    def note(self, first_calls: float, pairs: int, seconds: float) -> None:
        """A launch took so long, of which so much until all had made their first calls."""
        self._launches.append((first_calls, max(0.0, seconds - first_calls) / pairs))

    def pairs(self, most: int, launches: int) -> int:
        """How many pairs of each case the next launch has: decided once, after the first one.

        Args:
            most: of the event.
            launches: those that are wanted, with those that were.
        """
        if not self._launches:
            return FEWEST_PAIRS
        if not self._pairs:
            first_calls, pair = self._means()
            left = max(1, launches - len(self._launches))
            each = (self.seconds - self.spent) / left - first_calls
            fits = int(each / pair) if pair > 0 else most
            self._pairs = max(FEWEST_PAIRS, min(most, fits - fits % 2))
        return self._pairs

    def affords(self) -> bool:
        """Whether there is time for another launch, as the last ones went."""
        if len(self._launches) < FEWEST_LAUNCHES:
            return True
        first_calls, pair = self._means()
        return self.spent + first_calls + self._pairs * pair <= self.seconds

    def _means(self) -> tuple[float, float]:
        count = len(self._launches)
        first_calls, pairs = zip(*self._launches, strict=True)
        return sum(first_calls) / count, sum(pairs) / count
