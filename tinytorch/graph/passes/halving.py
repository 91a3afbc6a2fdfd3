"""Which of a pass's rewrites break the graph, by halving: one bad one does not cost the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

ATTEMPTS = 40  # each is a run of the pass and a comparison


@dataclass
class Halving:
    """Rewrites by number, tried together and apart.

    Attributes:
        kept: those that leave the graph right, all together.
        bad: those that do not, each with why.
        untried: those that the attempts did not suffice for.
    """

    kept: list[int] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    untried: list[int] = field(default_factory=list)


def find_bad(
    count: int, problem: Callable[[Sequence[int]], str | None], attempts: int = ATTEMPTS
) -> Halving:
    """Search for the rewrites that break a graph, when all `count` together do.

    With b bad ones among n it takes about b log2(n) attempts.

    Args:
        problem: what is wrong when these rewrites are made, in their order; None if nothing is.

    >>> found = find_bad(10, lambda chosen: "6 is wrong" if 6 in chosen else None)
    >>> found.kept, found.bad
    ([0, 1, 2, 3, 4, 5, 7, 8, 9], {6: '6 is wrong'})
    """
    found, left = Halving(), attempts

    def search(numbers: list[int], is_known: bool) -> None:
        """Sort out some of them, on top of those that are kept."""
        nonlocal left
        if not is_known or len(numbers) == 1:
            if not left:
                found.untried += numbers
                return
            left -= 1
            why = problem(sorted([*found.kept, *numbers]))
            if why is None:
                found.kept += numbers
                return
            if len(numbers) == 1:
                found.bad[numbers[0]] = why
                return
        middle = len(numbers) // 2
        search(numbers[:middle], is_known=False)
        search(numbers[middle:], is_known=False)

    search(list(range(count)), is_known=True)
    found.kept.sort()
    return found
