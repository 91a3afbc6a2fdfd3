"""Everything that `optim` and `nn` export: eager equals compiled, `state_dict` goes there and back,
and a run that is resumed goes on as if it had not stopped.

The table is `exported`. A class that is exported and has no line in it fails with that sentence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.fuzz.check import Target, chosen
from tests.graph import exported
from tests.graph.exported import LAYERS, OF_MATRICES, OPTIMIZERS, SCHEDULES
from tests.graph.steps import training_step
from tinytorch import nn, optim
from tinytorch.dtypes import Array
from tinytorch.graph import TraceError
from tinytorch.nn import functional as F
from tinytorch.tensor import Tensor

TARGETS = [Target("numpy", 1), Target("optimized", 2)]
EACH = [TARGETS[0], pytest.param(TARGETS[1], marks=pytest.mark.slow)]
STEPS = 3

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


# -- nothing is forgotten --------------------------------------------------------------------------


def classes(room: Any, base: type, names: list[str]) -> set[str]:
    found = ((name, getattr(room, name)) for name in names)
    return {n for n, value in found if inspect.isclass(value) and issubclass(value, base)}


@pytest.mark.parametrize(
    ("room", "base", "names", "tables"),
    [
        (optim, optim.Optimizer, optim.__all__,
         ("OPTIMIZERS", "UNTRACED_OPTIMIZERS", "NO_OPTIMIZERS")),
        (optim.lr_scheduler, object, optim.lr_scheduler.__all__, ("SCHEDULES", "NO_SCHEDULES")),
        (nn, nn.Module, nn.__all__, ("LAYERS", "UNTRACED_LAYERS", "NO_LAYERS")),
    ],
    ids=["optimizers", "schedules", "layers and losses"],
)  # fmt: skip
def test_every_exported_class_has_a_line(room: Any, base: type, names: list[str], tables: Any):
    listed = {name for table in tables for name in getattr(exported, table)}
    for name in sorted(classes(room, base, names) - listed):
        pytest.fail(
            f"{room.__name__}.{name} is exported and nobody has held it to eager mode: add a line "
            f"for it to {tables[0]} in tests/graph/exported.py"
        )
    gone = listed - classes(room, base, names)
    assert gone <= NOT_YET, f"{sorted(gone)} are in tests/graph/exported.py and not exported"


NOT_YET: set[str] = set()


# -- layers and losses -----------------------------------------------------------------------------


def outputs_of(layer: nn.Module, scale: Tensor, batch: Sequence[Tensor]) -> list[Tensor]:
    first, *others = batch
    if first.dtype.is_floating_point:
        first = first * scale
    return [t for t in _leaves(layer(first, *others)) if t.dtype.is_floating_point]


class Training:
    """A layer that is trained, together with a scale on its inputs, and what that leaves behind."""

    def __init__(self, make: Callable[[], nn.Module], inputs: Any, compiled: str | None) -> None:
        tinytorch.manual_seed(3)
        rng = np.random.default_rng(4)
        self.layer = make()
        self.scale = tinytorch.tensor(1.0, requires_grad=True)
        self.optimizer = optim.SGD([*self.layer.parameters(), self.scale], lr=0.05, momentum=0.9)
        self.batches = [[draw(rng) for draw in inputs] for _ in range(2 * STEPS)]

        layer, scale, optimizer = self.layer, self.scale, self.optimizer

        def predict(*batch: Tensor) -> list[Tensor]:
            return outputs_of(layer, scale, batch)

        def step(*batch: Tensor) -> Tensor:
            optimizer.zero_grad()
            total = scale * 0.01
            for t in outputs_of(layer, scale, batch):
                total = total + (t * t).mean()
            total.backward()
            optimizer.step()
            return total

        self.step, self.predict = (
            function if compiled is None else tinytorch.compile(function, mode=compiled)
            for function in (step, predict)
        )

    def run(self, start: int, stop: int) -> list[Array]:
        """Losses, and then outputs in evaluation."""
        losses = []
        for batch in self.batches[start:stop]:
            losses.append(self.step(*map(tinytorch.tensor, batch)).detach().numpy().copy())
        self.layer.eval()
        with tinytorch.no_grad():
            outputs = self.predict(*map(tinytorch.tensor, self.batches[stop - 1]))
        self.layer.train()
        return [*losses, *(t.numpy().copy() for t in outputs)]

    def state(self) -> dict[str, Array]:
        found = {**self.layer.state_dict(), "scale": self.scale.detach()}
        return {name: np.array(t.detach().numpy()) for name, t in found.items()}


def _leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for part in value for t in _leaves(part)] if isinstance(value, tuple) else []


def same(found: list[Array], expected: list[Array], what: str) -> None:
    for ours, eager in zip(found, expected, strict=True):
        assert (ours.shape, ours.dtype) == (eager.shape, eager.dtype), what
        np.testing.assert_allclose(ours, eager, 2e-4, 2e-5, err_msg=what)


@pytest.mark.slow_beyond(20)
@pytest.mark.parametrize("target", EACH, ids=str)
@pytest.mark.parametrize("name", sorted(n for n in LAYERS if hasattr(nn, n)))
def test_layers_and_losses(name: str, target: Target):
    mode = "python" if target.backend == "numpy" else "auto"
    for make, inputs in LAYERS[name]:
        with chosen(target):
            eager, compiled = (Training(make, inputs, m) for m in (None, mode))
            for training in (eager, compiled):
                tinytorch.manual_seed(5)
                training.found = training.run(0, STEPS)
            same(compiled.found, eager.found, f"{name}: losses and outputs")
            a, b = compiled.state(), eager.state()
            assert a.keys() == b.keys()
            same(list(a.values()), list(b.values()), f"{name}: state")
            if target is not TARGETS[-1]:  # what a state holds is no matter of the backend
                continue
            resumed = Training(make, inputs, mode)
            resumed.layer.load_state_dict(compiled.layer.state_dict())
            resumed.optimizer.load_state_dict(compiled.optimizer.state_dict())
            with tinytorch.no_grad():
                resumed.scale.copy_(compiled.scale)
            for training in (resumed, eager):
                tinytorch.manual_seed(6)
                training.found = training.run(STEPS, 2 * STEPS)
            same(resumed.found, eager.found, f"{name}: resumed")


# -- optimizers and schedules ----------------------------------------------------------------------


class Descent:
    """Training of a small model by an optimizer, perhaps with a schedule."""

    def __init__(
        self,
        make: Callable[[Any], optim.Optimizer],
        schedule: Callable[[optim.Optimizer], Any] | None,
        compiled: str | None,
    ) -> None:
        tinytorch.manual_seed(3)
        rng = np.random.default_rng(4)
        self.model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
        self.optimizer = make(self.model.parameters())
        self.schedule = schedule(self.optimizer) if schedule is not None else None
        self.x = tinytorch.tensor(rng.standard_normal((6, 4)).astype(np.float32))
        self.y = tinytorch.tensor(rng.integers(0, 3, 6))

        step = training_step(self.model, self.optimizer)
        self.step = step if compiled is None else tinytorch.compile(step, mode=compiled)

    def run(self, steps: int) -> list[Array]:
        """Losses and learning rates, and then the parameters."""
        found = []
        for _ in range(steps):
            loss = self.step(self.x, self.y)
            found += [loss.detach().numpy().copy(), np.array(self.optimizer.param_groups[0]["lr"])]
            if isinstance(self.schedule, optim.ReduceLROnPlateau):
                self.schedule.step(loss.item())
            elif self.schedule is not None:
                self.schedule.step()
        return found + [p.detach().numpy().copy() for p in self.model.parameters()]

    def resume(self, other: Descent) -> None:
        """Take over the state of another."""
        self.model.load_state_dict(other.model.state_dict())
        self.optimizer.load_state_dict(other.optimizer.state_dict())
        if self.schedule is not None:
            self.schedule.load_state_dict(other.schedule.state_dict())


def check_descent(
    make: Callable[[Any], optim.Optimizer],
    schedule: Callable[[optim.Optimizer], Any] | None,
    target: Target,
    what: str,
) -> None:
    mode = "python" if target.backend == "numpy" else "native"
    with chosen(target):
        eager, compiled = (Descent(make, schedule, m) for m in (None, mode))
        same(compiled.run(STEPS), eager.run(STEPS), what)
        if target is not TARGETS[-1]:
            return
        resumed = Descent(make, schedule, mode)
        resumed.resume(compiled)
        same(resumed.run(STEPS), eager.run(STEPS), f"{what}, resumed")


@pytest.mark.slow_beyond(3)
@pytest.mark.parametrize("target", EACH, ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str, target: Target):
    for options in OPTIMIZERS[name]:

        def make(params: Any, options: dict[str, Any] = options) -> optim.Optimizer:
            chosen = [p for p in params if p.ndim == 2 or name not in OF_MATRICES]
            return getattr(optim, name)(chosen, **options)

        check_descent(make, None, target, f"{name} with {options}")


@pytest.mark.slow_beyond(5)
@pytest.mark.parametrize("target", EACH, ids=str)
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str, target: Target):
    check_descent(lambda p: optim.Adam(p, lr=0.05), SCHEDULES[name], target, name)


def test_lbfgs_is_refused():
    descent = Descent(lambda p: optim.LBFGS(p), None, None)

    def closure() -> Tensor:
        descent.optimizer.zero_grad()
        loss = F.cross_entropy(descent.model(descent.x), descent.y)
        loss.backward()
        return loss

    with pytest.raises(TraceError):
        tinytorch.compile(lambda: descent.optimizer.step(closure))()


def test_ctc():
    loss = nn.CTCLoss()

    def run(scores: Tensor, labels: Tensor, spans: Tensor) -> tuple[Tensor, Tensor]:
        out = loss(scores.log_softmax(2), labels, spans, (3, 2))
        return out, tinytorch.autograd.grad(out, [scores])[0]

    compiled = tinytorch.compile(run)
    for seed, spans in enumerate(([6, 5], [4, 6], [3, 0])):  # the last has no alignments
        rng = np.random.default_rng(seed)
        scores = tinytorch.tensor(rng.standard_normal((6, 2, 5)), requires_grad=True)
        labels, lengths = tinytorch.tensor(rng.integers(1, 5, (2, 3))), tinytorch.tensor(spans)
        expected = run(scores, labels, lengths)
        for ours, eager in zip(compiled(scores, labels, lengths), expected, strict=True):
            np.testing.assert_allclose(ours.detach().numpy(), eager.detach().numpy(), 1e-9)
    assert len(compiled.traces) == 1
