"""Every architecture at hand, small, through everything that the bridge to PyTorch does.

    python benchmarks/zoo.py --sample 25 --seed 1
    python benchmarks/zoo.py --only 'transformers/*' --page docs/zoo.md

It is `tito fx zoo`, with one thread of BLAS.
"""

import thread_count  # noqa: F401, I001 - before torch

import sys

from tito.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["fx", "zoo"]
    main()
