"""What averaging gradients costs a step, beside PyTorch's DDP, and how well a link's model fits.

Every rank measures itself, all contestants in the same processes, interleaved. The overhead is CPU
time of the whole process (gloo's threads included) above that of the same step without a group.
More ranks than cores show the scheduler: nothing here says that training becomes faster.
"""

import thread_count  # noqa: F401, I001 - before NumPy

import argparse
import json
import statistics
import time

import numpy as np
import itertools

WIDTHS = (784, 512, 512, 10)
BATCH = 64
SIZES = (4_000, 40_000, 400_000, 4_000_000, 16_000_000)  # bytes; every second one is predicted


def _steps() -> dict:
    """One training step of an MLP by each contestant, made in the process that runs it."""
    import torch

    import tinytorch
    from tinytorch import nn, optim
    from tinytorch.distributed import data_parallel

    torch.set_num_threads(1)
    tinytorch.set_backend("optimized")
    tinytorch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, WIDTHS[0]), np.float32)
    y = rng.integers(0, WIDTHS[-1], BATCH)

    def ours(parallel: bool):
        layers = [layer for a, b in itertools.pairwise(WIDTHS)
                  for layer in (nn.Linear(a, b), nn.ReLU())]  # fmt: skip
        model = nn.Sequential(*layers[:-1])
        if parallel:
            data_parallel(model)
        optimizer = optim.SGD(model.parameters(), lr=0.01)
        tx, ty = tinytorch.from_numpy(x), tinytorch.from_numpy(y)

        def step() -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(tx), ty).backward()
            optimizer.step()

        return step

    def theirs(parallel: bool):
        layers = [layer for a, b in itertools.pairwise(WIDTHS)
                  for layer in (torch.nn.Linear(a, b), torch.nn.ReLU())]  # fmt: skip
        model = torch.nn.Sequential(*layers[:-1])
        if parallel:
            model = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        tx, ty = torch.from_numpy(x), torch.from_numpy(y)

        def step() -> None:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(tx), ty).backward()
            optimizer.step()

        return step

    return {
        "ours": ours(False), "ours, data_parallel": ours(True),
        "torch": theirs(False), "torch, DDP": theirs(True),
    }  # fmt: skip


def measure_steps(rounds: int) -> dict[str, float]:
    """Median CPU seconds of a step by contestant, on this rank."""
    from tinytorch.distributed import barrier

    steps = _steps()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for i in range(rounds + 2):
        for name, step in steps.items():
            barrier()
            begin = time.process_time()
            step()
            if i >= 2:
                seconds[name].append(time.process_time() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}


def measure_link(repeats: int) -> dict:
    """Fit a link to every second size, and say what it predicts for the others."""
    from tinytorch.distributed import (
        all_reduce,
        fit_link,
        get_world_size,
        measure_all_reduce,
        ring_all_reduce,
    )

    n = get_world_size()
    found = {}
    for name, reduce in (("gloo", all_reduce), ("our ring", ring_all_reduce)):
        seconds = measure_all_reduce(SIZES, repeats, reduce)
        sent = [2 * (n - 1) / n * size for size in SIZES]
        link = fit_link(sent[::2], [2 * (n - 1)] * len(sent[::2]), seconds[::2])
        found[name] = {
            "latency_s": link.latency,
            "bytes_per_s": link.bandwidth,
            "predicted / measured": {
                size: link.ring_all_reduce(size, n) / measured
                for size, measured in zip(SIZES[1::2], seconds[1::2], strict=True)
            },
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true", help="for a machine")
    options = parser.parse_args()
    import distributed as this  # the ranks run functions of a module that has a name

    from tinytorch.distributed import launch

    steps = launch(this.measure_steps, options.ranks, options.rounds)[0]
    links = launch(this.measure_link, options.ranks, max(3, options.rounds // 3))[0]
    overhead = {
        "ours": steps["ours, data_parallel"] - steps["ours"],
        "torch": steps["torch, DDP"] - steps["torch"],
    }
    result = {
        "ranks": options.ranks,
        "cpu_seconds": steps,
        "overhead ours / DDP": overhead["ours"] / overhead["torch"],
        "links": links,
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for name, seconds in steps.items():
        print(f"{name:22} {1e3 * seconds:8.2f} ms of CPU a step")
    print(f"overhead of data_parallel / that of DDP: {result['overhead ours / DDP']:.2f}")
    for name, link in links.items():
        shares = ", ".join(f"{n:,} B: {r:.2f}" for n, r in link["predicted / measured"].items())
        print(f"{name}: {1e6 * link['latency_s']:.0f} us a message, "
              f"{link['bytes_per_s'] / 1e9:.2f} GB/s; predicted / measured {shares}")  # fmt: skip


if __name__ == "__main__":
    main()
