"""Runs a Python program as on a processor without some vector instructions.

    python tools/without.py avx512 benchmarks/kernels.py --only gemm
    python tools/without.py avx512 -m pytest tests/backends/optimized/gemm

Our kernels, NumPy with its OpenBLAS, and PyTorch with MKL, oneDNN and FBGEMM all do without them:
what is measured side by side is what a processor without them would show. Compiled kernels of both
kinds are kept, as the cache goes by the processor's features.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

# What LLVM, NumPy calls the instructions that go with a vector unit; and what is next below it.
PREFIXES = {"avx512": (("avx512", "avx10", "amx", "evex512"), ("AVX512", "X86_V4"))}
BELOW = {
    "AMD": {"NUMBA_CPU_NAME": "znver3", "OPENBLAS_CORETYPE": "Zen"},
    "Intel": {"NUMBA_CPU_NAME": "alderlake", "OPENBLAS_CORETYPE": "Haswell"},
}
LIBRARIES = {
    "ATEN_CPU_CAPABILITY": "avx2",  # PyTorch's own kernels
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2",  # PyTorch's products of integers
}


def environment(
    unit: str, features: Mapping[str, bool], of_numpy: Mapping[str, bool], core: str
) -> dict[str, str]:
    """The variables that hide a vector unit.

    Args:
        unit: a key of PREFIXES.
        features: LLVM's name of each instruction set -> whether the processor has it.
        of_numpy: the same for those that NumPy chooses among at run time.
        core: LLVM's name of the processor.

    Raises:
        ValueError: there is no such unit, or the processor has none to hide.

    Example:
        >>> features = {"avx2": True, "avx512f": True}
        >>> environment("avx512", features, {"X86_V4": True}, "znver4")["NUMBA_CPU_FEATURES"]
        '+avx2,-avx512f'
    """
    if unit not in PREFIXES:
        raise ValueError(f"{unit!r} cannot be hidden; what can is {', '.join(PREFIXES)}")
    of_llvm, numpys = PREFIXES[unit]
    if not features.get(f"{unit}f"):
        raise ValueError(f"the processor ({core}) has no {unit} to hide")
    kept = {name: has and not name.startswith(of_llvm) for name, has in features.items()}
    hidden = [name for name, has in of_numpy.items() if has and name.startswith(numpys)]
    return {
        "NUMBA_CPU_FEATURES": ",".join(f"{'+' if has else '-'}{n}" for n, has in kept.items()),
        "NPY_DISABLE_CPU_FEATURES": " ".join(hidden),
        **BELOW["AMD" if core.startswith("znver") else "Intel"],
        **LIBRARIES,
    }


def of_this_processor(unit: str) -> dict[str, str]:
    """`environment` for the processor at hand."""
    from llvmlite import binding
    from numpy._core import _multiarray_umath as numpy_core

    found = {n: numpy_core.__cpu_features__[n] for n in numpy_core.__cpu_dispatch__}
    features, core = binding.get_host_cpu_features(), binding.get_host_cpu_name()
    return environment(unit, features, found, core)


def main(arguments: list[str]) -> None:
    if len(arguments) < 2:
        sys.exit(f"usage: python tools/without.py {'|'.join(PREFIXES)} PROGRAM [ARGUMENT ...]")
    unit, *command = arguments
    try:
        variables = of_this_processor(unit)
    except ValueError as error:
        sys.exit(str(error))
    os.execve(sys.executable, [sys.executable, *command], {**os.environ, **variables})


if __name__ == "__main__":
    main(sys.argv[1:])
