"""The demo: one network on three backends, first with the same numbers, then each at its speed.

1. A few batches on `naive`, which loops over the definitions, and the same on `optimized`.
2. The whole training on `optimized`, to 97 % of test digits read right.
3. Time per step of `naive`, `numpy` and `optimized`, and where the time of a step goes.
"""

import itertools
import statistics
import sys
import time
from pathlib import Path

from network import EPOCHS, Training

import tinytorch
from tinytorch.bench import Profiler, format_seconds, format_table, time_callables
from tinytorch.data import datasets

sys.path.append(str(Path(__file__).resolve().parents[1]))
from gates import Milestone, accuracy

BATCHES = 5
AGREEMENT = 1e-4  # relative
PROFILED_STEPS = 20
FAST = "optimized"


def main() -> None:
    milestone = Milestone(
        "A convolutional network learns real handwritten digits", usual_seconds=5, backend=FAST
    )
    fast = milestone.backend
    prepare(milestone)
    naive_seconds = compare_losses(milestone, fast)
    training = train(milestone)
    seconds = {"naive": naive_seconds, **time_steps(["numpy", fast])}
    milestone.say(f"\ntime per step of {training.loader.batch_size} images (wall clock, median)\n")
    milestone.say(speed_table(seconds))
    profile = profile_steps(training)
    milestone.say(f"\nwhere the time of {PROFILED_STEPS} steps goes on {fast}\n")
    milestone.say(profile.table(limit=15))
    milestone.finish(
        test_accuracy=accuracy(training.model, *datasets.digits("test").tensors),
        step_seconds=seconds,
        profile=profile.to_dict(),
    )


def prepare(milestone: Milestone) -> None:
    """One step, thrown away: the kernels are compiled once, and loaded from disk from then on."""
    start = time.perf_counter()
    training = Training()
    training.step(*next(iter(training.loader)))
    ready = format_seconds(time.perf_counter() - start)
    milestone.say(f"kernels of {milestone.backend} ready after {ready}\n")


def compare_losses(milestone: Milestone, fast: str) -> float:
    """The first batches on loops and on the fast backend; returns a naive step's seconds."""
    milestone.say(f"the first {BATCHES} batches, on loops and on {fast}\n")
    milestone.say("batch   naive loss   seconds   " + f"{fast} loss   seconds   apart")
    runs = [losses(backend) for backend in ("naive", fast)]
    worst, naive_seconds = 0.0, []
    for batch, ((slow, slow_seconds), (quick, quick_seconds)) in enumerate(zip(*runs, strict=True)):
        apart = abs(slow - quick) / abs(slow)
        worst = max(worst, apart)
        naive_seconds.append(slow_seconds)
        milestone.say(
            f"{batch + 1:5}   {slow:10.6f}   {slow_seconds:7.3f}   "
            f"{quick:{len(fast) + 5}.6f}   {quick_seconds:7.3f}   {apart:.0e}"
        )
    milestone.gate(
        f"losses agree on naive and {fast}",
        worst <= AGREEMENT,
        f"at most {worst:.1e} apart, allowed {AGREEMENT:.0e}",
    )
    return statistics.median(naive_seconds)


def losses(backend: str):
    """Loss and seconds of each of the first steps on a backend, one at a time."""
    with tinytorch.using_backend(backend):
        training = Training()
    batches = itertools.islice(training.loader, BATCHES)
    for images, labels in batches:
        with tinytorch.using_backend(backend):
            start = time.perf_counter()
            loss = training.step(images, labels)
            seconds = time.perf_counter() - start
        yield loss, seconds


def train(milestone: Milestone) -> Training:
    """The whole training, with its gate."""
    milestone.say(f"\ntraining on {milestone.backend}\n")
    training = Training()
    start = time.perf_counter()
    for epoch in range(EPOCHS):
        loss = training.epoch()
        milestone.say(
            f"epoch {epoch + 1:2}/{EPOCHS}   loss {loss:.4f}   "
            f"{format_seconds(time.perf_counter() - start)}"
        )
    right = accuracy(training.model, *datasets.digits("test").tensors)
    milestone.at_least("test digits read right", right, 0.97)
    return training


def time_steps(backends: list[str]) -> dict[str, float]:
    """Seconds of a step on each backend, measured side by side."""
    steps = {}
    for backend in backends:
        with tinytorch.using_backend(backend):
            steps[backend] = step_on(backend, Training())
    return {name: t.median for name, t in time_callables(steps, rounds=9, clock="wall").items()}


def step_on(backend: str, training: Training):
    """A function that takes one step, always on the same batch."""
    images, labels = next(iter(training.loader))

    def step() -> float:
        with tinytorch.using_backend(backend):
            return training.step(images, labels)

    return step


def speed_table(seconds: dict[str, float]) -> str:
    """Backends with their time per step, and how many times faster than the others."""
    columns = ["backend", "step", *(f"times as fast as {name}" for name in list(seconds)[:-1])]
    rows = [
        [name, format_seconds(t), *(f"{seconds[o] / t:.3g}" for o in list(seconds)[:-1])]
        for name, t in seconds.items()
    ]
    return format_table(columns, rows)


def profile_steps(training: Training) -> Profiler:
    """Steps of a training under the profiler, after one that compiles what only a profile runs."""
    batches = list(itertools.islice(training.loader, PROFILED_STEPS))
    for profiled in (batches[:1], batches):
        with Profiler(trace=False) as profile:
            for images, labels in profiled:
                training.step(images, labels)
    return profile


if __name__ == "__main__":
    main()
