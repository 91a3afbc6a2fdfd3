"""A training step, eager: ours beside NumPy written by hand and PyTorch.

Each step is forward, cross entropy, backward and SGD, from the same weights on the same batch. The
first losses must agree before anything is timed.
"""

import thread_count  # noqa: F401, I001 - before NumPy

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy_models
import torch
from runner import ATTEMPTS, ROUNDS, Case, Result, as_json, measure

import tinytorch
from tinytorch.backends.load import load_backend
from tinytorch.bench import format_seconds, format_table

LR = 0.01
AGREEMENT = 1e-4  # relative, of the first losses
STEPS_COMPARED = 3
STEPS_BEFORE = 64  # a training has thousands: the first, in which programs are made, are not timed
Step = Callable[[], Any]  # returns the loss, as something with .item()


def mlp(library):
    """784-128-10, from the `nn` of TinyTorch or PyTorch: here they are spelt the same."""
    nn = library.nn
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def lenet(library):
    """LeNet-5 with ReLU and maximum pooling, on images (n, 1, 28, 28)."""
    nn = library.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


CASES = {
    "MLP, batch 1": (mlp, numpy_models.mlp_step, (1, 784)),
    "MLP, batch 32": (mlp, numpy_models.mlp_step, (32, 784)),
    "MLP, batch 256": (mlp, numpy_models.mlp_step, (256, 784)),
    "LeNet, batch 32": (lenet, numpy_models.lenet_step, (32, 1, 28, 28)),
}


def training_step(library, model, optimizer) -> Callable[[Any, Any], Any]:
    """A training step with TinyTorch or PyTorch, as a function of the batch."""
    loss_function = library.nn.CrossEntropyLoss()

    def step(x: Any, y: Any) -> Any:
        loss = loss_function(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def step_of(library, model, optimizer, x, y) -> Step:
    """The same on one batch."""
    return partial(training_step(library, model, optimizer), x, y)


def steps_of(case: str) -> dict[str, Step]:
    """The same step three times, from the same weights."""
    build, numpy_step, shape = CASES[case]
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape, dtype=np.float32)
    y = rng.integers(0, 10, shape[0])
    torch.manual_seed(0)
    theirs = build(torch)
    ours = build(tinytorch)
    weights = {name: p.detach().numpy().copy() for name, p in theirs.named_parameters()}
    for name, p in ours.named_parameters():
        with tinytorch.no_grad():
            p.copy_(weights[name])
    by_hand = [weights[name] for name in weights]
    return {
        "ours": step_of(
            tinytorch,
            ours,
            tinytorch.optim.SGD(ours.parameters(), lr=LR),
            tinytorch.from_numpy(x),
            tinytorch.from_numpy(y),
        ),
        "numpy": lambda: numpy_step(by_hand, x, y, LR),
        "torch": step_of(
            torch,
            theirs,
            torch.optim.SGD(theirs.parameters(), lr=LR),
            torch.from_numpy(x),
            torch.from_numpy(y),
        ),
    }


def check_agreement(case: str, steps: dict[str, Step]) -> None:
    """Raises AssertionError if the three do not compute the same losses."""
    for number in range(STEPS_COMPARED):
        losses = {name: step().item() for name, step in steps.items()}
        spread = max(losses.values()) - min(losses.values())
        if spread > AGREEMENT * abs(losses["torch"]):
            raise AssertionError(f"{case}, step {number + 1}: the losses differ: {losses}")


def compare(case: str, rounds: int, attempts: int) -> Result:
    """The times of one case."""
    steps = steps_of(case)
    check_agreement(case, steps)
    for step in steps.values():
        for _ in range(STEPS_BEFORE):
            step()
    return measure(Case("training", case, steps), clock="cpu", rounds=rounds, attempts=attempts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="optimized", help="a name, or FILE.py:CLASS")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="while others disturb")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tinytorch.set_backend(load_backend(options.backend))
    results = [compare(case, options.rounds, options.attempts) for case in CASES]
    if options.json:
        print(as_json(results, backend=options.backend))
        return
    print(f"a training step on the {options.backend} backend, CPU time of one thread\n")
    print(step_table(results))
    if any(result.disturbed for result in results):
        print('"!": other processes were running; measure these again on a quiet machine')


def step_table(results: list[Result]) -> str:
    """A row per case; the ratios say how many times as long the others take."""
    rows = [
        [
            result.name + (" !" if result.disturbed else ""),
            *(format_seconds(result.seconds[name]) for name in ("ours", "numpy", "torch")),
            *(f"{result.ratios[name]:.2f}" for name in ("numpy", "torch")),
        ]
        for result in results
    ]
    return format_table(["step", "ours", "NumPy", "PyTorch", "NumPy/ours", "PyTorch/ours"], rows)


if __name__ == "__main__":
    main()
