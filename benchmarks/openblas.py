"""NumPy in processes of its own, where OpenBLAS is told which CPU's kernels to use.

OpenBLAS chooses its kernels when it is loaded, so each choice needs a process. The wheel's own
choice is not always the fastest for a CPU; a fair comparison is with the best.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def core_types() -> tuple[str, ...]:
    """The core types whose kernels this processor can run: "SkylakeX" needs AVX-512.

    What is hidden from our kernels (tools/without.py) is hidden from these, too.
    """
    from tinytorch.jit.cpu import host_features

    features = host_features()
    if not features.get("avx2"):
        return ()
    return ("Haswell", "Zen", *(["SkylakeX"] if features.get("avx512f") else []))


def serve() -> None:
    """The worker: for each line with a product and a number of calls, say how long a call took."""
    import numpy as np
    import threadpoolctl

    loaded = [p for p in threadpoolctl.threadpool_info() if p["internal_api"] == "openblas"]
    print(json.dumps([p.get("architecture") for p in loaded]), flush=True)
    clock = {"cpu": time.thread_time, "wall": time.perf_counter}
    operands: dict[str, tuple[Any, Any]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        key = json.dumps(request["shapes"])
        if key not in operands:
            rng = np.random.default_rng(0)
            a, b = (
                np.moveaxis(rng.standard_normal(shape, dtype=np.float32), 0, -1)
                if transposed
                else rng.standard_normal(shape, dtype=np.float32)
                for shape, transposed in request["shapes"]
            )
            operands = {key: (a, b)}
        a, b = operands[key]
        now = clock[request["clock"]]
        np.matmul(a, b)
        start = now()
        for _ in range(request["calls"]):
            np.matmul(a, b)
        print((now() - start) / request["calls"], flush=True)


class OpenBlas:
    """A process whose NumPy uses the kernels of one core type."""

    def __init__(self, core_type: str) -> None:
        self.core_type = core_type
        self._process = subprocess.Popen(
            [sys.executable, "-c", "import openblas; openblas.serve()"],
            cwd=Path(__file__).parent,
            env={**os.environ, "OPENBLAS_CORETYPE": core_type},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.architecture = json.loads(self._read())
        self.pid = self._process.pid

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"the NumPy process with OPENBLAS_CORETYPE={self.core_type} ended with code "
                f"{self._process.wait()}: that core type is not one for this processor"
            )
        return line

    def seconds(self, shapes: Any, calls: int, clock: str) -> float:
        """Seconds for one product of operands ((shape, is stored transposed), ...)."""
        assert self._process.stdin is not None
        request = {"shapes": shapes, "calls": calls, "clock": clock}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
