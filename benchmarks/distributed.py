"""What averaging gradients costs a step, beside PyTorch's DDP, and how well a link's model fits.

Every rank measures itself, all contestants in the same processes, interleaved. The overhead is CPU
time of the whole process (gloo's threads included) above that of the same step without a group.
More ranks than cores show the scheduler: nothing here says that training becomes faster.
"""

import thread_count  # noqa: F401, I001 - before NumPy

import argparse
import itertools
import json
import statistics
import time

import numpy as np

from tito.usage import cores

WIDTHS = (784, 512, 512, 10)
BATCH = 64
SIZES = (4_000, 40_000, 400_000, 4_000_000, 16_000_000)  # bytes; every second one is predicted


def _steps() -> dict:
    """One training step of an MLP by each contestant, made in the process that runs it."""
    import torch

    import tinytorch
    from tinytorch.distributed import data_parallel

    torch.set_num_threads(1)
    tinytorch.set_backend("optimized")
    tinytorch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, WIDTHS[0]), np.float32)
    y = rng.integers(0, WIDTHS[-1], BATCH)

    def averaged(model):
        data_parallel(model)
        return model

    def step_of(library, wrap=None):
        nn = library.nn
        pairs = itertools.pairwise(WIDTHS)
        layers = [layer for a, b in pairs for layer in (nn.Linear(a, b), nn.ReLU())]
        model = nn.Sequential(*layers[:-1])
        if wrap is not None:
            model = wrap(model)
        optimizer = library.optim.SGD(model.parameters(), lr=0.01)
        tx, ty = library.from_numpy(x), library.from_numpy(y)

        def step() -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(tx), ty).backward()
            optimizer.step()

        return step

    return {
        "ours": step_of(tinytorch),
        "ours, data_parallel": step_of(tinytorch, averaged),
        "torch": step_of(torch),
        "torch, DDP": step_of(torch, torch.nn.parallel.DistributedDataParallel),
    }


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


def measure_links(repeats: int) -> dict[str, list[float]]:
    """Median seconds of an all-reduce of each of SIZES, by who does it."""
    import tinytorch
    from tinytorch.distributed import measure_all_reduce, ring_all_reduce

    tinytorch.set_backend("optimized")  # which adds what the ring receives
    tinytorch.set_num_threads(1)
    ways = {"gloo": None, "our ring": ring_all_reduce}
    return {name: measure_all_reduce(SIZES, repeats, way) for name, way in ways.items()}


def fit(times: dict[int, list[float]], processors: int) -> dict:
    """Fit one link to every second size at all numbers of ranks; what it predicts for the others.

    Args:
        times: of `SIZES`, by the number of ranks.
        processors: that the ranks shared.

    Where no link explains the times, as on a busy machine, it says that instead.
    """
    from tinytorch.distributed import fit_link
    from tinytorch.distributed.cost import turns

    rows = [(n, size, t) for n, ts in times.items() for size, t in zip(SIZES, ts, strict=True)]
    found: dict = {"seconds": {f"{size:,} B, {n} ranks": t for n, size, t in rows}}
    fitted = [row for row in rows if row[1] in SIZES[::2]]
    messages = [turns(n, processors) * 2 * (n - 1) for n, _, _ in fitted]
    sent = [count * size / n for count, (n, size, _) in zip(messages, fitted, strict=True)]
    try:
        link = fit_link(sent, messages, [t for _, _, t in fitted])
    except ValueError as error:
        return found | {"no link": str(error)}
    return found | {
        "latency_s": link.latency,
        "bytes_per_s": link.bandwidth,
        "predicted / measured": {
            f"{size:,} B, {n} ranks": link.ring_all_reduce(size, n, processors) / measured
            for n, size, measured in rows
            if size not in SIZES[::2]
        },
    }


def describe(name: str, link: dict) -> str:
    """A line about a link."""
    if "no link" in link:
        return f"{name}: {link['no link']}"
    shares = "; ".join(f"{n}: {r:.2f}" for n, r in link["predicted / measured"].items())
    return (
        f"{name}: {1e6 * link['latency_s']:.0f} us a message, "
        f"{link['bytes_per_s'] / 1e9:.2f} GB/s; predicted / measured {shares}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--link-ranks", type=int, nargs="+", default=[2], help="2 3 4: one fit")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true", help="for a machine")
    options = parser.parse_args()
    import distributed as this  # the ranks run functions of a module that has a name

    from tinytorch.distributed import launch

    steps = launch(this.measure_steps, options.ranks, options.rounds)[0]
    repeats = max(3, options.rounds // 3)
    times = {n: launch(this.measure_links, n, repeats)[0] for n in options.link_ranks}
    links = {
        name: fit({n: t[name] for n, t in times.items()}, cores())
        for name in times[options.link_ranks[0]]
    }
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
        print(describe(name, link))


if __name__ == "__main__":
    main()
