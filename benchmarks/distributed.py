"""What averaging gradients costs a step, beside PyTorch's DDP, and how well a link's model fits.

Every rank measures itself, all contestants in the same processes, interleaved. The overhead is CPU
time of the whole process (gloo's threads included) above that of the same step without a group.
A link is latency and bandwidth, one for all numbers of ranks, fitted to every second size; it
predicts the others: all-reduces, and whole steps by what averaging adds to them. All of these are
the least times of several launches: a scheduler only adds to what a link takes. More ranks than
cores show the scheduler: nothing here says that training becomes faster.
"""

import thread_count  # noqa: F401, I001 - before NumPy

import argparse
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import ranks
from progress import progress

from tito.usage import cores

LAUNCHES = 6  # of each number of ranks, in turn: how processes are placed lasts as long as they do


class Measured(NamedTuple):
    """A time to explain.

    Attributes:
        ranks: how many.
        nbytes: of what is averaged.
        seconds: of the averaging.
        alone: of the step without it; an all-reduce alone has none.
    """

    ranks: int
    nbytes: int
    seconds: float
    alone: float = 0.0

    def __str__(self) -> str:
        return f"{self.nbytes:,} B, {self.ranks} ranks"


def fit(rows: Sequence[Measured], processors: int) -> dict:
    """Fit one link to every second size at all numbers of ranks; what it predicts for the others.

    Args:
        rows: of one number of ranks after another, the sizes of each in the same order.
        processors: that the ranks shared.

    Where no link explains the times, as on a busy machine, it says that instead.
    """
    from tinytorch.distributed import fit_link
    from tinytorch.distributed.cost import turns

    sizes = list(dict.fromkeys(row.nbytes for row in rows))
    fitted = [row for row in rows if row.nbytes in sizes[::2]]
    messages = [turns(row.ranks, processors) * 2 * (row.ranks - 1) for row in fitted]
    sent = [count * row.nbytes / row.ranks for count, row in zip(messages, fitted, strict=True)]
    found: dict = {"seconds": {str(row): row.alone + row.seconds for row in rows}}
    try:
        link = fit_link(sent, messages, [row.seconds for row in fitted])
    except ValueError as error:
        return found | {"no link": str(error)}
    return found | {
        "latency_s": link.latency,
        "bytes_per_s": link.bandwidth,
        "predicted / measured": {
            str(row): (row.alone + link.ring_all_reduce(row.nbytes, row.ranks, processors))
            / (row.alone + row.seconds)
            for row in rows
            if row.nbytes not in sizes[::2]
        },
    }


def least(times: Sequence[Any]) -> Any:
    """The least of numbers, or of each number of the same nested lists."""
    if isinstance(times[0], (list, tuple)):
        return [least(each) for each in zip(*times, strict=True)]
    return min(times)


def measure_links(link_ranks: Sequence[int], repeats: int) -> dict[str, list[Measured]]:
    """The least times of all-reduces by who does them, and of steps, on each number of ranks."""
    from tinytorch.distributed import launch

    rows: dict[str, list[Measured]] = {}
    launched: dict[int, list] = {n: [] for n in link_ranks}
    for _ in range(LAUNCHES):
        for n in link_ranks:
            with progress.during(f"messages and steps of {n} ranks"):
                launched[n].append(launch(ranks.measure_links, n, repeats)[0])
    for n, every in launched.items():
        for name in every[0]:
            times = least([times[name] for times in every])
            if name == "a step":
                sizes = [ranks.gradient_bytes(hidden) for hidden in ranks.STEPS]
                found = [Measured(n, s, b - a, a) for s, (a, b) in zip(sizes, times, strict=True)]
            else:
                found = [Measured(n, s, t) for s, t in zip(ranks.SIZES, times, strict=True)]
            rows.setdefault(name, []).extend(found)
    return rows


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
    from tinytorch.distributed import launch

    with progress.during(f"the overhead on {options.ranks} ranks"):
        steps = launch(ranks.measure_overhead, options.ranks, options.rounds)[0]
    measured = measure_links(options.link_ranks, max(3, options.rounds // 4))
    links = {name: fit(rows, cores()) for name, rows in measured.items()}
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
