"""Plant faults in a copy of the package, one at a time; the tests must fail on each.

    python tools/mutation_check.py            all faults
    python tools/mutation_check.py tanh       those whose name contains a word

Exits 1 if the tests pass in spite of a fault, or fail without one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["tests/test_gradients.py", "tests/autograd", "tests/functions/test_reductions.py"]
AT_ONCE = 2  # trees, each with a process of its own


@dataclass(frozen=True)
class Fault:
    name: str
    file: str
    old: str
    new: str


FAULTS = [
    Fault(
        "a sign in the sigmoid gradient",
        "gradients.py",
        'gradient("sigmoid", a=lambda g, out: g * (out * (1.0 - out)))',
        'gradient("sigmoid", a=lambda g, out: -g * (out * (1.0 - out)))',
    ),
    Fault(
        "the second gradient of matmul off by 1 %",
        "gradients.py",
        "b=lambda g, a, b_shape: sum_to(apply(ops.matmul, a.mT, g), b_shape)",
        "b=lambda g, a, b_shape: sum_to(apply(ops.matmul, a.mT, g), b_shape) * 1.01",
    ),
    Fault(
        "ties of max not shared",
        "gradients.py",
        "share = chosen / apply(ops.sum, chosen, dims=dims, keepdim=True)",
        "share = chosen",
    ),
    Fault(
        "un-broadcasting by mean",
        "functions/reductions.py",
        "return movement.reshape(apply(ops.sum, x, dims=dims, keepdim=False), shape)",
        "return movement.reshape(mean(x, dims), shape)",
    ),
    Fault(
        "the gradient of the second branch of where dropped",
        "gradients.py",
        "b=lambda g, condition: where(condition, 0.0, g)",
        "b=lambda g, condition: _zeros(g)",
    ),
    Fault(
        "a scatter-add that overwrites",
        "backends/reference_indexing.py",
        "    np.add.at(out, index, a)\n",
        "    out[index] = a\n",
    ),
    Fault(
        "a permute gradient not inverted",
        "gradients.py",
        'gradient("permute", a=lambda g, dims: permute(g, _invert(dims)))',
        'gradient("permute", a=lambda g, dims: permute(g, dims))',
    ),
    Fault(
        "only the second derivative of tanh wrong",
        "gradients.py",
        'gradient("tanh", a=lambda g, out: g * (1.0 - out * out))',
        'gradient("tanh", a=lambda g, out: g * (1.0 - out * out.detach()))',
    ),
]


def run_tests(tree: Path) -> subprocess.CompletedProcess[str]:
    """The tests on the package in `tree`: `python -m` puts it before the installed one."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *TESTS], cwd=tree, capture_output=True, text=True, timeout=3600, check=False
    )


def copy_tree(tree: Path) -> Path:
    """What the tests need of the repository."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("tinytorch", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tree)
    return tree


def plant(tree: Path, fault: Fault) -> Path:
    """Write the fault into the copy; the text to replace must be there exactly once."""
    path = tree / "tinytorch" / fault.file
    source = path.read_text()
    if source.count(fault.old) != 1:
        raise ValueError(
            f"{fault.name}: {fault.file} has {source.count(fault.old)} times\n{fault.old}\n"
            f"Bring tools/mutation_check.py up to date."
        )
    path.write_text(source.replace(fault.old, fault.new))
    return path


def check(tree: Path, fault: Fault) -> bool:
    """Whether the tests fail on the fault."""
    path = plant(tree, fault)
    started = time.perf_counter()
    result = run_tests(tree)
    shutil.copy(ROOT / "tinytorch" / fault.file, path)
    failures = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
    caught = result.returncode != 0 and bool(failures)  # a run that breaks off is no catch
    how = failures[0].split(" - ")[0] if failures else result.stdout[-500:] + result.stderr[-500:]
    seconds = time.perf_counter() - started
    print(
        f"{'caught' if caught else 'MISSED'} {seconds:5.0f} s  {fault.name}\n    {how}", flush=True
    )
    return caught


def passes(tree: Path) -> bool:
    """Whether the tests pass without a fault."""
    healthy = run_tests(tree)
    if healthy.returncode != 0:
        print(healthy.stdout[-3000:], healthy.stderr[-3000:])
        print("the tests fail without any fault")
    return healthy.returncode == 0


def main(words: list[str]) -> int:
    faults = [f for f in FAULTS if all(word in f.name for word in words)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        free: SimpleQueue[Path] = SimpleQueue()
        for number in range(AT_ONCE):
            free.put(copy_tree(Path(folder, str(number))))

        def run(fault: Fault | None) -> bool:
            tree = free.get()
            try:
                return passes(tree) if fault is None else check(tree, fault)
            finally:
                free.put(tree)

        healthy, *caught = pool.map(run, [None, *faults])
    print(f"{sum(caught)} of {len(faults)} faults caught")
    return 0 if healthy and all(caught) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
