"""A network that reads digits loses half of its channels, and learns again from what it was.

What is left is faster. Then its weights become bytes.
"""

import copy
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import tinytorch
from tinytorch import nn, optim
from tinytorch.bench import bootstrap_interval, paired_ratios
from tinytorch.compression import Distiller, prune_channels_, quantize_
from tinytorch.data import DataLoader, datasets
from tinytorch.training import Trainer

sys.path.append(str(Path(__file__).resolve().parents[1]))
from gates import SEED, Milestone, accuracy, values

HERE = Path(__file__).resolve().parent
EPOCHS, AGAIN = 5, 3
PAIRS = 15
ALLOWED = 0.015  # of accuracy: five of the unseen digits


def network():
    """Three convolutions and two linear layers, for digits of 8x8 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def fit(model, kind, lr, epochs, **teaching):
    """Train on the digits, in the same order whoever learns."""
    optimizer = optim.AdamW(model.parameters(), lr=lr)
    loader = DataLoader(datasets.digits("train"), 64, shuffle=True, generator=SEED)
    run = kind(model, nn.CrossEntropyLoss(), optimizer, progress="quiet", **teaching)
    return run.fit(loader, epochs=epochs).records[-1]["loss"]


def how_much_faster(large, small, x):
    """Paired ratios of CPU time, large over small, and an interval for their median."""
    seconds = {id(large): [], id(small): []}
    with tinytorch.no_grad():
        for _ in range(1 + PAIRS):  # the first pair warms up
            for model in (large, small):
                start = time.process_time()
                for _ in range(2):
                    model(x)
                seconds[id(model)].append(time.process_time() - start)
    ratios = paired_ratios(seconds[id(large)][1:], seconds[id(small)][1:])
    return statistics.median(ratios), bootstrap_interval(ratios)


def memory(scheme):
    """What a model adds to a process, as `memory.py` measures it in one of its own.

    The C library may keep freed memory for itself; the setting makes it give large pieces back.
    """
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": path, "MALLOC_MMAP_THRESHOLD_": "262144"}
    command = [sys.executable, str(HERE / "memory.py"), scheme]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


def main() -> None:
    milestone = Milestone("2020: small and fast", usual_seconds=10, backend="optimized")
    unseen = datasets.digits("test").tensors
    large = network()
    before = values(large)
    loss = fit(large, Trainer, 2e-3, len(milestone.epochs(EPOCHS)))
    right = accuracy(large, *unseen)
    milestone.say(f"trained: loss {loss:.3f}, {right:.2%} of unseen digits right")
    milestone.moved(before, large)
    milestone.at_least("accuracy before", right, 0.96)

    small = copy.deepcopy(large)
    prune_channels_(small, unseen[0][:1], amount=0.5)
    hurt = accuracy(small, *unseen)
    fit(small, Distiller, 1e-3, len(milestone.epochs(AGAIN)), teacher=large)
    milestone.say(f"half of its channels gone: {hurt:.2%}; taught by what it was: "
                  f"{accuracy(small, *unseen):.2%}")  # fmt: skip
    shapes = [tuple(small[i].weight.shape) for i in (0, 3, 7, 11, 13)]
    wanted = [(16, 1, 3, 3), (32, 16, 3, 3), (32, 32, 3, 3), (64, 512), (10, 64)]
    milestone.gate("removed channels are gone", shapes == wanted, f"weights {shapes}")
    milestone.at_least("accuracy after", accuracy(small, *unseen), right - ALLOWED)
    faster, (low, high) = how_much_faster(large.eval(), small.eval(), unseen[0])
    milestone.gate(
        "faster", low > 1, f"{faster:.2f} times, {low:.2f} to {high:.2f} (95 %), needed above 1"
    )

    scores = small(unseen[0]).detach().numpy()
    quantize_(small, "int8")
    milestone.at_least("accuracy in 8 bits", accuracy(small, *unseen), right - ALLOWED)
    moved = float(np.abs(small.eval()(unseen[0]).detach().numpy() - scores).max())
    milestone.gate("8 bits are not 32", 0 < moved < 1, f"scores move by up to {moved:.3f}")
    if Path("/proc/self/statm").exists():
        floats, codes = (memory(s) for s in ("float32", "int8"))
        detail = f"{codes / 1e6:.0f} and {floats / 1e6:.0f} MB: {codes / floats:.2f}, needed 0.30"
        milestone.gate("memory of a large model in 8 bits", codes <= 0.3 * floats, detail)
    milestone.finish(accuracy=right, faster=faster)


if __name__ == "__main__":
    main()
