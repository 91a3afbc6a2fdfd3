"""The roofline picture: how near each kernel comes to what the core and the memory allow.

A kernel that does I floating-point operations per byte cannot run faster than the lower of the
peak and I times the bandwidth.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52 (2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from runner import Result


def draw(results: Sequence[Result], path: Path, *, peak: float, bandwidth: float) -> None:
    """Write the picture of all results that have both flops and bytes.

    Args:
        path: where to; the suffix says the format.
        peak: floating-point operations per second.
        bandwidth: bytes per second from main memory. Data that stays in a cache may be above.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 6))
    intensity = np.logspace(-2, 3, 200)
    roof = np.minimum(peak, intensity * bandwidth) / 1e9
    axes.loglog(intensity, roof, color="black", label="roof: peak, and main memory")
    marked = [r for r in results if r.flops and r.nbytes]
    for group in dict.fromkeys(r.group for r in marked):
        points = [r for r in marked if r.group == group]
        x = [r.flops / r.nbytes for r in points if r.flops and r.nbytes]
        y = [r.flops / r.seconds["ours"] / 1e9 for r in points if r.flops]
        axes.loglog(x, y, "o", markersize=5, label=group)
    axes.set_xlabel("floating-point operations per byte")
    axes.set_ylabel("Gflop/s")
    axes.set_title("Kernels of the optimized backend, one core, float32")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
