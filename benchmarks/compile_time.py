"""How long compiling a training step takes: with the kernel library loaded, and from the cache.

Three processes one after the other, on a cache folder of their own: the first compiles everything;
then what was generated is removed, and the second finds only the kernel library; the third finds
all. CPU time, so that other processes do not count.
"""

import thread_count  # noqa: F401, I001 - before NumPy

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from progress import progress

CASES = ("MLP, batch 32", "LeNet, batch 32", "char GPT, 12 x 64 tokens, AdamW")
GENERATED = ("library.loop_",)  # in the names of files of the cache


def child(case: str) -> dict[str, float]:
    """The times of one process."""
    start = time.process_time()
    import tinytorch

    tinytorch.set_backend("optimized")
    from compiled import TRAINING, Contest
    from training import training_step

    from tinytorch.collector import collector_paused
    from tinytorch.graph import PassManager, trace
    from tinytorch.graph.compiler import native
    from tinytorch.graph.compiler.native.build import write
    from tinytorch.graph.compiler.schedule import schedule_traced
    from tinytorch.jit import library

    imported = time.process_time()
    contest = Contest(TRAINING[case])
    model, (x, y) = contest.model(tinytorch), contest.batch(tinytorch)
    optimizer = getattr(tinytorch.optim, contest.case.optimizer)(model.parameters(), lr=0.01)
    step = training_step(tinytorch, model, optimizer)

    begin = time.process_time()
    traced = trace(step, x, y, decompose=None, keep_grads=False)
    passes = ("algebra", "layout", "fold", "cse", "dce", *native.PASSES)
    with collector_paused():  # as `tinytorch.compile` does
        graph, _ = PassManager(passes, rounds=2, trials=0).run(traced.graph)
        schedule = schedule_traced(traced.with_graph(graph), **native.ABILITIES)
    scheduled = time.process_time()
    for function in write(schedule, count=1)[0].functions.values():
        name = getattr(function, "symbol", None)
        if name is not None:
            library.exports[name].register()
    loaded = time.process_time()
    native.build(schedule)
    return {
        "import": imported - start,
        "trace and passes": scheduled - begin,
        "library": loaded - scheduled,
        "native code": time.process_time() - loaded,
    }


def measure(case: str) -> dict[str, dict[str, float]]:
    """Times of the three processes."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "TINYTORCH_CACHE_DIR": folder}
        for name in ("first", "library loaded", "from the cache"):
            if name == "library loaded":
                for path in Path(folder).rglob("*.bin"):
                    if any(part in path.name for part in GENERATED):
                        path.unlink()
            command = [sys.executable, __file__, "--child", case]
            with progress.during(f"{case}, {name}"):
                done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
            found[name] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child)))
        return
    results = {case: measure(case) for case in CASES}
    if options.json:
        print(json.dumps(results, indent=2))
        return
    from tinytorch.bench import format_table

    columns = ("import", "trace and passes", "library", "native code")  # PyTorch is imported too
    rows = [
        [f"{case}: {name}", *(f"{1000 * times[c]:.0f} ms" for c in columns)]
        for case, found in results.items()
        for name, times in found.items()
    ]
    print(format_table(["CPU time", *columns], rows))


if __name__ == "__main__":
    main()
