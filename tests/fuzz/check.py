"""Eager and compiled side by side: results, arguments, state and gradients after every call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

import tinytorch
from tests.fuzz.interpreted import interpreted_loops
from tests.fuzz.programs import Program
from tests.fuzz.world import World
from tinytorch.dispatch import Input, Mode
from tinytorch.errors import AutogradError
from tinytorch.graph import TraceError
from tinytorch.graph.compiler.native import partition
from tinytorch.graph.ir import GraphError
from tinytorch.op import Op, Params, Plan
from tinytorch.state import using_backend

TOLERANCE = 2e-5  # relative to the largest element
NOISE = 1e-6  # relative change of the inputs that shows how far rounding is carried
SAFETY = 50.0
ILL_CONDITIONED_TRIALS = 6


@dataclass(frozen=True)
class Target:
    """Where a program is compiled.

    Attributes:
        threads: with more than one, even the smallest steps are divided among them.
        compiles_loops: native code's loops are machine code too; see `interpreted`.
    """

    backend: str
    threads: int
    compiles_loops: bool = False

    def __str__(self) -> str:
        loops = ", loops compiled" if self.compiles_loops else ""
        return f"{self.backend}, {self.threads} thread{'s' * (self.threads > 1)}{loops}"


@dataclass(frozen=True)
class Outcome:
    """What came of a comparison.

    Attributes:
        kind: "same"; "refused": the compiler says that it cannot, in `text`; "different".
        text: what differs.
        fell_back: why native code was not possible, if it was not.
    """

    kind: str
    text: str = ""
    fell_back: str = ""


@contextmanager
def chosen(target: Target) -> Iterator[None]:
    """Compile for a target inside of the block."""
    threads, smallest = tinytorch.get_num_threads(), partition.MIN_PARALLEL_WORK
    tinytorch.set_num_threads(target.threads)
    if target.threads > 1:
        partition.MIN_PARALLEL_WORK = 0.0
    is_interpreted = target.backend == "optimized" and not target.compiles_loops
    try:
        with (
            using_backend(target.backend),
            interpreted_loops() if is_interpreted else nullcontext(),
        ):
            yield
    finally:
        tinytorch.set_num_threads(threads)
        partition.MIN_PARALLEL_WORK = smallest


def compare(program: Program, target: Target) -> Outcome:
    """Run a program both ways."""
    with using_backend("numpy"), np.errstate(all="ignore"):
        try:
            expected = World(program).calls(program)
        except AutogradError as error:  # of a write that only what is called often refuses
            return Outcome("refused", f"eager mode raises: {error}")
    fell_back = ""
    with chosen(target), np.errstate(all="ignore"):
        try:
            try:
                mode = "native" if target.backend == "optimized" else "python"
                world = World(program, {"mode": mode})
                found = world.calls(program)
            except GraphError as reason:
                if "no native code" not in str(reason):
                    raise
                fell_back = str(reason).splitlines()[-1].split(": ", 1)[-1]
                world = World(program, {"mode": "auto"})
                found = world.calls(program)
        except TraceError as reason:
            return Outcome("refused", str(reason).splitlines()[0])
        except Exception as error:
            text = f"raises {type(error).__name__}: {error}"
            if _eager_raises(program, target.backend, type(error)):  # NumPy's alone does not
                return Outcome("refused", f"eager mode {text}")
            return Outcome("different", f"compiled {text}")
    if not world.returns_history:
        found, expected = _without_history(found), _without_history(expected)
    text = difference(found, expected)
    if text and _is_ill_conditioned(program, found, expected):
        text = ""
    return Outcome("different" if text else "same", text, fell_back)


def _eager_raises(program: Program, backend: str, error: type[Exception]) -> bool:
    try:
        with using_backend(backend):
            World(program).calls(program)
    except error:
        return True
    return False


def _without_history(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What calls leave, but for what shows whether results have a history."""
    return [
        {k: v for k, v in call.items() if not k.endswith("requires grad") and "outer" not in k}
        for call in calls
    ]


def difference(
    found: list[dict[str, Any]],
    expected: list[dict[str, Any]],
    noise: Sequence[list[dict[str, Any]]] = (),
) -> str:
    """What the first difference is; "" if there is none.

    Args:
        noise: runs of perturbed inputs: how far they are from `expected` is allowed, times SAFETY.
    """
    for call, (ours, eager) in enumerate(zip(found, expected, strict=True)):
        if ours.keys() != eager.keys():
            return f"call {call}: only one of them has {sorted(ours.keys() ^ eager.keys())}"
        for name, value in eager.items():
            others = [run[call].get(name) for run in noise]
            if (text := _differs(ours[name], value, others)) is not None:
                return f"call {call}, {name}: {text}"
    return ""


def _differs(ours: Any, eager: Any, noise: Sequence[Any]) -> str | None:
    if not (isinstance(ours, np.ndarray) and isinstance(eager, np.ndarray)):
        return None if type(ours) is type(eager) and ours == eager else f"{ours!r}, not {eager!r}"
    if (ours.shape, ours.dtype) != (eager.shape, eager.dtype):
        return f"{ours.dtype}{ours.shape}, not {eager.dtype}{eager.shape}"
    if not eager.size:
        return None
    a, b = ours.astype(np.float64), eager.astype(np.float64)
    finite = b[np.isfinite(b)]
    allowed = TOLERANCE * (1.0 + (np.abs(finite).max() if finite.size else 0.0))
    for other in noise:
        if not isinstance(other, np.ndarray) or other.shape != eager.shape:
            return None  # even this depends on the noise
        c = other.astype(np.float64)
        if (np.isfinite(c) != np.isfinite(b)).any():
            return None
        allowed += SAFETY * np.nanmax(np.abs(np.where(np.isfinite(c), c - b, 0.0)))
    same = np.isclose(a, b, 0.0, allowed, equal_nan=True)
    if same.all():
        return None
    index = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{(~same).sum()} of {eager.size} elements; at {index} {a[index]!r}, not {b[index]!r}"


class Noise(Mode):
    """Changes results of elementwise ops a little, each element otherwise.

    Values that a program makes itself carry rounding too: the layer norm of a constant row is
    nothing but rounding.
    """

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)

    def run(self, op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan) -> Any:
        data = self.below(op, inputs, params, plan)
        if op.kind != "elementwise" or data.dtype.kind != "f":
            return data
        noise = self._draw.standard_normal(data.shape)
        return np.asarray(data * (1 + NOISE * noise)).astype(data.dtype)


def _is_ill_conditioned(
    program: Program, found: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> bool:
    """Noise changes the results as much as compiling does: rounding can as well."""
    noise = []
    for seed in range(ILL_CONDITIONED_TRIALS):
        try:
            inside = Noise(seed) if seed % 2 else nullcontext()
            with using_backend("numpy"), np.errstate(all="ignore"), inside:
                world = World(program, perturbation=NOISE, seed=seed)
                noise.append(world.calls(program))
        except Exception:
            return True  # even whether it runs depends on the noise
    return not difference(found, expected, noise)
