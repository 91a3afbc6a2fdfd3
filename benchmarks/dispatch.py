"""What dispatch costs: a recorded op on a small tensor beside PyTorch's, and `import tinytorch`.

The checks of shapes and dtypes are on, and the result remembers its history, as in PyTorch.
"""

import thread_count  # noqa: F401, I001 - before NumPy

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

import torch
from runner import ROUNDS, Case, Result, as_json, measure

import tinytorch
from tinytorch.backends.load import load_backend
from tinytorch.bench import format_seconds, format_table

MOST_OF_TORCH = 1.0  # a recorded op, ours / PyTorch
MOST_OF_NUMPY = 1.3  # import, ours / NumPy
SIZES = (1, 32, 1024)
IMPORT_PROBE = (
    "import time; start = time.process_time(); import {}; print(time.process_time() - start)"
)


def recorded_ops(backend: str, rounds: int) -> list[Result]:
    """Ours and PyTorch's time for elementwise ops on tensors that need a gradient."""
    torch.set_num_threads(1)
    results = []
    with tinytorch.using_backend(load_backend(backend)):
        for size in SIZES:
            x, y = (tinytorch.ones(size, requires_grad=True) for _ in range(2))
            tx, ty = (torch.ones(size, requires_grad=True) for _ in range(2))
            pairs = {
                "add": (lambda x=x, y=y: x + y, lambda x=tx, y=ty: x + y),
                "mul": (lambda x=x, y=y: x * y, lambda x=tx, y=ty: x * y),
                "mul by a number": (lambda x=x: x * 2.0, lambda x=tx: x * 2.0),
                "relu": (lambda x=x: x.relu(), lambda x=tx: x.relu()),
                "exp": (lambda x=x: x.exp(), lambda x=tx: x.exp()),
            }
            for name, (ours, theirs) in pairs.items():
                case = Case("dispatch", f"{name}, {size}", {"ours": ours, "torch": theirs})
                results.append(measure(case, clock="cpu", rounds=rounds))
    return results


def of_torch(result: Result) -> float:
    """Ours / PyTorch: less is better."""
    return 1 / result.ratios["torch"]


def imports(rounds: int) -> dict:
    """CPU seconds of `import tinytorch` and `import numpy`, in fresh processes, interleaved.

    Both are imported from bytecode, as a user does from the second time on: it is kept in a folder
    of its own, and the first round, which fills that folder, does not count.
    """
    samples: dict[str, list[float]] = {"tinytorch": [], "numpy": []}
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for each in range(rounds + 1):
            for name, seconds in samples.items():
                command = [sys.executable, "-c", IMPORT_PROBE.format(name)]
                probe = subprocess.run(
                    command, env=environment, capture_output=True, text=True, check=True
                )
                if each:
                    seconds.append(float(probe.stdout))
    pairs = zip(samples["tinytorch"], samples["numpy"], strict=True)
    return {
        "tinytorch_s": statistics.median(samples["tinytorch"]),
        "numpy_s": statistics.median(samples["numpy"]),
        "ratio": statistics.median(a / b for a, b in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="optimized", help="a name, or FILE.py:CLASS")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--check", action="store_true", help="exit with 1 above the limits")
    options = parser.parse_args()
    ops = recorded_ops(options.backend, options.rounds)
    importing = imports(options.rounds)
    worst = max(map(of_torch, ops))
    if options.json:
        print(as_json(ops, backend=options.backend, imports=importing, worst_of_torch=worst))
    else:
        print(f"a recorded op on the {options.backend} backend, CPU time of one thread\n")
        print(op_table(ops))
        print(f"\nworst {worst:.2f} of PyTorch's time, at most {MOST_OF_TORCH}")
        print(
            f"\nimport tinytorch {format_seconds(importing['tinytorch_s'])}, "
            f"import numpy {format_seconds(importing['numpy_s'])}: "
            f"ratio {importing['ratio']:.2f}, at most {MOST_OF_NUMPY}"
        )
    too_slow = worst > MOST_OF_TORCH or importing["ratio"] > MOST_OF_NUMPY
    sys.exit(1 if options.check and too_slow else 0)


def op_table(ops: list[Result]) -> str:
    """A row per op and size; "!" marks one that other processes disturbed."""
    rows = [
        [
            result.name + (" !" if result.disturbed else ""),
            format_seconds(result.seconds["ours"]),
            format_seconds(result.seconds["torch"]),
            f"{of_torch(result):.2f}",
        ]
        for result in ops
    ]
    return format_table(["op, size", "ours", "PyTorch", "ours/PyTorch"], rows)


if __name__ == "__main__":
    main()
