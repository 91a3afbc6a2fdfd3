"""How much more memory this process has once it holds a large model, in bytes: `memory.py int8`.

As the operating system counts it: resident memory. Nothing is computed with the model.
"""

import argparse
import gc
import os
from pathlib import Path

import tinytorch
from tinytorch import nn
from tinytorch.compression import SCHEMES, quantize_

WIDTH, LAYERS = 2048, 6


def resident() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def network(width: int, scheme: str) -> nn.Module:
    """Linear layers, of whose weights only those of the scheme are left."""
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(LAYERS)])
    if scheme != "float32":
        quantize_(model, scheme)
    gc.collect()
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scheme", choices=["float32", *SCHEMES])
    scheme = parser.parse_args().scheme
    tinytorch.set_backend("numpy")
    network(64, scheme)  # what the libraries load for it is there
    before = resident()
    model = network(WIDTH, scheme)
    print(resident() - before)
    del model


if __name__ == "__main__":
    main()
