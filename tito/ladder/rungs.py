"""What a step runs on, rung by rung."""

from __future__ import annotations

from dataclasses import dataclass

EAGER, COMPILED, TORCH = "eager", "compiled", "torch"


@dataclass(frozen=True)
class Rung:
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


RUNGS = (
    Rung("loops", "plain Python loops", "naive", lesson="tensor"),
    Rung("numpy", "NumPy for every op", "numpy", lesson="backends"),
    Rung("mine", "your backends/mine.py", "mine", lesson="backends"),
    Rung("blocked", "blocked kernels in numba", "blocked", needs="numba", lesson="kernels"),
    Rung("optimized", "vector code, ours", "optimized", needs="numba"),
    Rung("compiled", "one function for a step", "optimized", COMPILED, "numba", "compiler"),
    Rung("torch", "PyTorch", how=TORCH, needs="torch"),
)


def beside(backend: str) -> tuple[Rung, ...]:
    """What `tito backend race` runs: a backend between loops and NumPy, and ours."""
    by_name = {rung.name: rung for rung in RUNGS}
    own = by_name.get(backend) or Rung(backend, "your backend", backend)
    return tuple(dict.fromkeys((by_name["loops"], by_name["numpy"], own, by_name["optimized"])))
