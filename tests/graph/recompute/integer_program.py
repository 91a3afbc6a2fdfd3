"""What to compute again at the least cost, by integer programming: slow, and exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from tinytorch.graph.recompute.problem import Problem


def exact_plans(problem: Problem, steps: int = 16) -> Iterator[frozenset[int]]:
    """The plans of least cost for ever lower bounds on the bytes kept.

    A strategy for graphs of up to some hundred nodes: what the others are measured against.
    """
    program = _Program(problem)
    total = sum(problem.sizes[s] for s in program.keep)
    for step in range(steps, -1, -1):
        yield program.cheapest(total * step // steps)


class _Program:
    """Variables, 0 or 1: a storage is kept; an instruction is computed again."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.keep = {s: i for i, s in enumerate(problem.candidates)}
        #: where a storage's instruction is among the variables; several may share one
        self.compute: dict[int, int] = {}
        self.costs = [0.0] * len(self.keep)
        for s in self.keep:
            if s not in self.compute:
                made_by = problem.made_by[s]
                self.compute |= dict.fromkeys(made_by.makes, len(self.costs))
                self.costs.append(made_by.cost)
        self.rows: list[Any] = []
        self.least: list[float] = []
        for s in self.keep:
            self._require_value(s)

    def _require(self, coefficients: dict[int, float], least: float) -> None:
        row = np.zeros(len(self.costs))
        for i, c in coefficients.items():
            row[i] = c
        self.rows.append(row)
        self.least.append(least)

    def _require_value(self, s: int) -> None:
        """What the backward reads is kept or computed again, and so is what that is made from."""
        if s in self.problem.needed:
            self._require({self.keep[s]: 1, self.compute[s]: 1}, 1)
        for r in self.problem.made_by[s].reads:
            if r in self.keep:
                self._require({self.keep[r]: 1, self.compute[r]: 1, self.compute[s]: -1}, 0)

    def cheapest(self, kept_bytes: int) -> frozenset[int]:
        """The cheapest set to keep within so many bytes."""
        sizes = np.zeros(len(self.costs))
        sizes[list(self.keep.values())] = [-self.problem.sizes[s] for s in self.keep]
        solution = milp(
            np.array(self.costs) / (max(self.costs) or 1.0),
            integrality=np.ones(len(self.costs)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(
                np.array([*self.rows, sizes]), lb=np.array([*self.least, -kept_bytes])
            ),
        )
        assert solution.x is not None, solution.message  # to keep nothing is always allowed
        return frozenset(s for s, i in self.keep.items() if solution.x[i] > 0.5)
