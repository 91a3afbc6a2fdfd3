"""What each rank of `distributed.py` measures: training steps, all-reduces, averaged gradients."""

import thread_count  # noqa: F401, I001 - before NumPy

import itertools
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

HIDDEN = 512
BATCH = 64
SIZES = (4_000, 40_000, 400_000, 4_000_000, 16_000_000)  # bytes; every second one is predicted
STEPS = (64, 256, 512, 1024, 1536)  # hidden units: gradients of 0.2 to 14.3 MB
Step = Callable[[], None]


def training_step(
    library: ModuleType, hidden: int, wrap: Callable[[Any], Any] | None = None
) -> Step:
    """A step of an MLP of three layers on the same 64 images on every rank.

    Args:
        library: tinytorch or torch.
        hidden: units of the two hidden layers.
        wrap: what averages the gradients of a model, if anything does.
    """
    nn = library.nn
    rng = np.random.default_rng(0)
    images, digits = rng.standard_normal((BATCH, 784), np.float32), rng.integers(0, 10, BATCH)
    pairs = itertools.pairwise((784, hidden, hidden, 10))
    layers = [layer for a, b in pairs for layer in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    if wrap is not None:
        model = wrap(model)
    optimizer = library.optim.SGD(model.parameters(), lr=0.01)
    x, y = library.from_numpy(images), library.from_numpy(digits)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def gradient_bytes(hidden: int) -> int:
    """Of the model of `training_step`, in float32."""
    return 4 * sum((a + 1) * b for a, b in itertools.pairwise((784, hidden, hidden, 10)))


def averaged(model: Any) -> Any:
    from tinytorch.distributed import data_parallel

    data_parallel(model)
    return model


def timed(steps: dict[Any, Step], rounds: int, clock: Callable[[], float]) -> np.ndarray:
    """Seconds (rounds, steps), one after another in every round, begun by all ranks at once."""
    from tinytorch.distributed import barrier

    seconds = np.empty((rounds + 2, len(steps)))
    for row in seconds:
        for i, step in enumerate(steps.values()):
            barrier()
            begin = clock()
            step()
            row[i] = clock() - begin
    return seconds[2:]  # the first two compile and connect


def measure_overhead(rounds: int) -> dict[str, float]:
    """Median CPU seconds of a step by contestant."""
    import torch

    import tinytorch

    one_thread()
    torch.set_num_threads(1)
    steps = {
        "ours": training_step(tinytorch, HIDDEN),
        "ours, data_parallel": training_step(tinytorch, HIDDEN, averaged),
        "torch": training_step(torch, HIDDEN),
        "torch, DDP": training_step(torch, HIDDEN, torch.nn.parallel.DistributedDataParallel),
    }
    seconds = timed(steps, rounds, time.process_time)
    return dict(zip(steps, np.median(seconds, 0).tolist(), strict=True))


def measure_links(repeats: int) -> dict[str, list[Any]]:
    """Least seconds by the clock of an all-reduce of SIZES, and of STEPS alone and averaged.

    Returns:
        "gloo", "our ring": a list for SIZES; "a step": pairs for STEPS.
    """
    import tinytorch
    from tinytorch.distributed import measure_all_reduce, ring_all_reduce
    from tinytorch.distributed.cost import least_times

    one_thread()
    ways = {"gloo": None, "our ring": ring_all_reduce}
    found: dict[str, list[Any]] = {
        name: measure_all_reduce(SIZES, repeats, way) for name, way in ways.items()
    }
    steps = {(h, w): training_step(tinytorch, h, w) for h in STEPS for w in (None, averaged)}
    times = dict(zip(steps, least_times(timed(steps, repeats, time.perf_counter)), strict=True))
    return found | {"a step": [(times[h, None], times[h, averaged]) for h in STEPS]}


def one_thread() -> None:
    import tinytorch

    tinytorch.set_backend("optimized")
    tinytorch.set_num_threads(1)
