"""Reductions of x (outer, reduced, inner) to (outer, inner); with inner = 1, of rows."""

from tinytorch.backends.optimized.rows import reductions
from tinytorch.backends.optimized.symbols.table import declare_kernel

for _name, (_rows, _columns) in reductions.KERNELS.items():
    declare_kernel(f"{_name}_rows", _rows, "outer reduced", "x[outer,reduced] out[outer]")
    declare_kernel(
        f"{_name}_columns", _columns,
        "outer reduced inner", "x[outer,reduced,inner] out[outer,inner]",
    )  # fmt: skip
