"""Every architecture at hand, small, through everything that the bridge to PyTorch does.

    python benchmarks/zoo.py --sample 25 --seed 1
    python benchmarks/zoo.py --only 'transformers/*' --page docs/zoo.md

Each model runs in a process of its own with limits; results are lines of JSON in build/zoo.jsonl,
and the same command goes on where it was stopped. The same as `tito fx zoo`.
"""

import thread_count  # noqa: F401, I001 - before torch

import sys

from tinytorch.fx.zoo.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
