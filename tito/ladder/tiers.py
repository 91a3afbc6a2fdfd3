"""What a step runs on, tier by tier."""

from __future__ import annotations

from dataclasses import dataclass

EAGER, COMPILED, TORCH = "eager", "compiled", "torch"


@dataclass(frozen=True)
class Tier:
    """One way to run a training step.

    Attributes:
        name: in tables and on the command line.
        says: what runs there.
        backend: as `--backend` takes it; "" where there is none.
        how: "eager"; "compiled", the whole step by `tinytorch.compile`; or "torch".
        needs: a package that must be installed.
        lesson: the slug of the one that it is about.
    """

    name: str
    says: str
    backend: str = ""
    how: str = EAGER
    needs: str = ""
    lesson: str = ""


TIERS = (
    Tier("loops", "plain Python loops", "naive", lesson="tensor"),
    Tier("numpy", "NumPy for every op", "numpy", lesson="backends"),
    Tier("mine", "your backends/mine.py", "mine", lesson="backends"),
    Tier("blocked", "blocked kernels in numba", "blocked", needs="numba", lesson="kernels"),
    Tier("optimized", "vector code, ours", "optimized", needs="numba"),
    Tier("compiled", "one function for a step", "optimized", COMPILED, "numba", "compiler"),
    Tier("torch", "PyTorch", how=TORCH, needs="torch"),
)


def beside(backend: str) -> tuple[Tier, ...]:
    """What `tito backend compare` runs: a backend between loops and NumPy, and ours."""
    by_name = {tier.name: tier for tier in TIERS}
    own = by_name.get(backend) or Tier(backend, "your backend", backend)
    return tuple(dict.fromkeys((by_name["loops"], by_name["numpy"], own, by_name["optimized"])))
