"""Import this before NumPy, PyTorch or TinyTorch: as many threads as `--threads` says, else one."""

import os
import sys


def _wanted() -> int:
    arguments = sys.argv[1:]
    for i, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name == "--threads":
            return int(value or arguments[i + 1])
    return 1


THREADS = _wanted()
for variable in (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
):
    os.environ[variable] = str(THREADS)
