"""What makes a model faster: fewer bits, removed channels, low rank; and what does not: zeros.

Each group has one layer or model whole, as the others are compared with it: a ratio above 1 says
how many times longer the other takes than ours. For what `tinytorch.compression` makes, ours is the
smaller one, and the column "float32" or "whole" is what it was made from.
"""

from thread_count import THREADS  # noqa: I001 - before NumPy

import argparse
import copy
import itertools
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from runner import ROUNDS, Case, as_json, highest_peak, measure, report

import tinytorch
from tinytorch import nn
from tinytorch.bench.peak import memory_bandwidth
from tinytorch.compression import (
    low_rank_,
    prune_channels_,
    prune_magnitude_,
    quantize_,
)

WIDTH = 2048
BATCHES = (128, 256, 512)  # of a product; decode has 1
SPARSITIES = (0.5, 0.8, 0.9)
HOLD = Path(__file__).parents[1] / "milestones" / "07_2020_small_and_fast" / "memory.py"


def runs(model: nn.Module, x: tinytorch.Tensor) -> Callable[[], object]:
    """A call of a model without history."""
    model.eval()

    def forward() -> object:
        with tinytorch.no_grad():
            return model(x)

    return forward


def layer(width: int = WIDTH) -> nn.Module:
    """One square linear layer, in a container so that it can be exchanged."""
    return nn.Sequential(nn.Linear(width, width, bias=False))


def network(channels: int) -> nn.Module:
    """Four convolutions with batch norms, and a linear layer."""
    sizes = [3, channels, channels, 2 * channels, 2 * channels]
    blocks: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        blocks += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], 10))


def weight_bytes(model: nn.Module) -> int:
    """What parameters and buffers have in memory: sizes of the arrays that are alive."""
    tensors = (*model.parameters(), *model.buffers())
    return sum(t.detach().numpy().nbytes for t in tensors)


def torch_dynamic(width: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """PyTorch's dynamic int8 of the same layer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.nn.Sequential(torch.nn.Linear(width, width, bias=False)).eval()
        result: Callable[[torch.Tensor], torch.Tensor] = torch.ao.quantization.quantize_dynamic(
            model, {torch.nn.Linear}, dtype=torch.qint8
        )
    return result


def quantized(width: int, batches: tuple[int, ...]) -> Iterator[Case]:
    """Products in 8 bits beside float32 and PyTorch's, and a vector in 8 and 4."""
    whole, theirs = layer(width), torch_dynamic(width)
    for rows in (1, *batches):
        x = tinytorch.randn(rows, width)
        y = torch.tensor(x.numpy())
        schemes = ("int8", "int4") if rows == 1 else ("int8_dynamic", "int8_static")
        for scheme in schemes:
            model = quantize_(
                copy.deepcopy(whole), scheme, data=[x] if scheme == "int8_static" else None
            )

            def peer(y: torch.Tensor = y) -> object:
                with torch.no_grad():
                    return theirs(y)

            yield Case(
                f"quantized linear layer of {width}", f"{scheme}, M = {rows}",
                {"ours": runs(model, x), "float32": runs(whole, x), "torch int8": peer},
                flops=2 * rows * width**2, nbytes=weight_bytes(model),
            )  # fmt: skip


def smaller(width: int, channels: int, size: int) -> Iterator[Case]:
    """Half of the channels, an eighth of the rank, and zeros that stay where they are."""
    whole = network(channels)
    x = tinytorch.randn(4, 3, size, size)
    half = copy.deepcopy(whole)
    prune_channels_(half, x, amount=0.5)
    yield Case(
        "removed or zero", f"half of {channels} to {2 * channels} channels",
        {"ours": runs(half, x), "whole": runs(whole, x)}, nbytes=weight_bytes(half),
    )  # fmt: skip
    dense = layer(width)
    for rows in (1, 64):
        x = tinytorch.randn(rows, width)
        thin = copy.deepcopy(dense)
        low_rank_(thin, ranks={"0": width // 8})
        yield Case(
            "removed or zero", f"rank n / 8, M = {rows}",
            {"ours": runs(thin, x), "whole": runs(dense, x)},
            flops=rows * width**2 // 2, nbytes=weight_bytes(thin),
        )  # fmt: skip
        for amount in SPARSITIES:
            zeros = copy.deepcopy(dense)
            prune_magnitude_(zeros, amount)
            yield Case(
                "removed or zero", f"{amount:.0%} zeros, M = {rows}",
                {"ours": runs(zeros, x), "whole": runs(dense, x), **csr(zeros, x)},
                flops=2 * rows * width**2, nbytes=weight_bytes(zeros),
            )  # fmt: skip


def csr(model: nn.Module, x: tinytorch.Tensor) -> dict[str, Callable[[], object]]:
    """SciPy's product of the same zeros in compressed rows, where it is installed."""
    try:
        from scipy import sparse
    except ImportError:
        return {}
    weight = next(model.parameters()).detach().numpy()
    rows, columns = sparse.csr_matrix(weight), np.ascontiguousarray(x.numpy().T)
    return {"scipy csr": lambda: rows @ columns}


def resident() -> dict[str, float]:
    """What a large model adds to the memory of a process, as a part of what it adds in float32.

    The operating system's figure, each of a process of its own that only holds the model.
    """
    if not Path("/proc/self/statm").exists():
        return {}
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "262144"}  # freed pieces are given back
    added = {}
    for scheme in ("float32", "int8", "int4"):
        command = [sys.executable, str(HOLD), scheme]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        added[scheme] = int(done.stdout)
    return {scheme: nbytes / added["float32"] for scheme, nbytes in added.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="more than one: wall clock")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--small", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    tinytorch.set_num_threads(THREADS)
    tinytorch.set_backend("optimized")
    tinytorch.manual_seed(0)
    clock = "cpu" if THREADS == 1 else "wall"
    bandwidth = memory_bandwidth()
    width, channels, size = (128, 8, 8) if options.small else (WIDTH, 32, 32)
    batches = (16,) if options.small else BATCHES
    cases = (*quantized(width, batches), *smaller(width, channels, size))
    results = [measure(case, clock=clock, rounds=options.rounds) for case in cases]
    memory = resident()
    if options.json:
        facts = {"threads": THREADS, "clock": clock, "bandwidth": bandwidth}
        facts["peak_flops"] = highest_peak(results)
        facts["resident"] = memory
        print(as_json(results, **facts))
    else:
        report(results, bandwidth=bandwidth, cores=THREADS)
        print("memory of a process that holds a model, of float32's, as the system sees it:")
        print("  ".join(f"{scheme} {share:.2f}" for scheme, share in memory.items()))


if __name__ == "__main__":
    main()
