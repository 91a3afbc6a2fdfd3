"""Frontiers that were found before, on disk: a search takes long, and its result is small.

<cache root>/recompute/<digest of the problem and of the code that searches>.json
"""

from __future__ import annotations

import hashlib
import inspect
import json
import warnings
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

from tinytorch.files import atomic_write, cache_root
from tinytorch.fx.recompute.mincut import STRATEGIES
from tinytorch.graph.recompute.frontier import Frontier, Progress, find_frontier
from tinytorch.graph.recompute.problem import Problem

KEPT = 200  # frontiers on disk; those that were not used for the longest time go first


@cache
def _code() -> bytes:
    """Of what decides which plans are found."""
    digest = hashlib.sha256(torch.__version__.encode())
    for file in (inspect.getfile(Problem), __file__):
        for path in sorted(Path(file).parent.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.digest()


def known_frontier(
    problem: Problem,
    strategies: Iterable[str] = tuple(STRATEGIES),
    *,
    progress: Progress = lambda what: None,
) -> Frontier:
    """The frontier from disk if the same problem was solved before; else it is searched, and kept.

    Args:
        strategies: names in STRATEGIES.

    Raises:
        KeyError: there is no strategy of this name.
    """
    chosen = {name: STRATEGIES[name] for name in strategies}
    path = file_of(problem, chosen)
    found = load(path, problem)
    if found is None:
        found = find_frontier(problem, chosen, progress=progress)
        save(path, found)
    return found


def file_of(problem: Problem, strategies: Iterable[str]) -> Path:
    """The file of a problem's frontier, if it is known.

    Equal for problems in which every plan has the same effect: the same ops in the same order, with
    the same costs, and the same bytes.
    """
    ops = [[(str(op.node.target), op.reads, op.makes, op.cost, op.flops) for op in part]
           for part in (problem.forward, problem.backward)]  # fmt: skip
    facts = (ops, problem.sizes, problem.forward_live, problem.backward_live,
             sorted(problem.fixed), sorted(problem.results), tuple(strategies))  # fmt: skip
    digest = hashlib.sha256(_code() + repr(facts).encode()).hexdigest()
    return cache_root() / "recompute" / f"{digest[:32]}.json"


def load(path: Path, problem: Problem) -> Frontier | None:
    """The plans of a file, if it is there and each takes what the file says."""
    try:
        found = json.loads(path.read_text())
        plans = [problem.simulate(kept, source) for kept, _, source in found["plans"]]
        proposed = {name: (int(n), int(used)) for name, (n, used) in found["proposed"].items()}
        peaks = [peak for _, peak, _ in found["plans"]]
    except (OSError, ValueError, KeyError, TypeError):  # none, or not one of ours
        return None
    if not plans or [plan.peak for plan in plans] != peaks:
        return None
    with suppress(OSError):
        path.touch()
    return Frontier(plans, proposed)


def save(path: Path, frontier: Frontier) -> None:
    """Write a frontier; where that fails, it is searched again the next time."""
    lines = [(sorted(plan.kept), plan.peak, plan.source) for plan in frontier.plans]
    try:
        with atomic_write(path) as stream:
            stream.write(json.dumps({"plans": lines, "proposed": frontier.proposed}).encode())
        files = sorted(path.parent.glob("*.json"), key=lambda p: p.stat().st_mtime)
        for old in files[:-KEPT]:
            old.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(f"the plans found could not be kept in {path.parent}: {error}", stacklevel=2)
