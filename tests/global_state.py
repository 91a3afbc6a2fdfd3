"""What a test could leave behind for those after it: settings of the process and of libraries."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Any

import numpy as np

import tinytorch
from tinytorch import formatting
from tinytorch.op import OPS
from tinytorch.state import STATE

OF_LIBRARIES = (  # variables that are set by what a test only uses
    b"PYTEST_CURRENT_TEST",
    b"HF_HUB_OFFLINE",  # tinytorch.fx downloads nothing
    b"TORCHINDUCTOR_CACHE_DIR",  # PyTorch's compiler
    b"KMP_DUPLICATE_LIB_OK",  # scikit-learn, as the next
    b"KMP_INIT_AT_FORK",
)
UNKNOWN = None  # of a library that was not imported


def read() -> dict[str, Any]:
    """The settings now, by name. It takes some microseconds, since every test asks twice."""
    variables = os.environ._data.copy()  # type: ignore[attr-defined]  # decoding takes longer
    for name in OF_LIBRARIES:
        variables.pop(name, None)
    threads = sys.modules.get("tinytorch.jit.threads")
    torch = sys.modules.get("torch")
    return {
        "os.environ": variables,
        "sys.path": sys.path[:],
        "the working directory": os.getcwd(),
        "the handler of SIGINT": signal.getsignal(signal.SIGINT),
        "the handler of SIGALRM": signal.getsignal(signal.SIGALRM),
        "whether the garbage collector is on": gc.isenabled(),
        "what NumPy does on errors": np.geterr(),
        "tinytorch.get_backend()": tinytorch.get_backend(),
        "tinytorch's modes": STATE.get(),
        "tinytorch.set_printoptions": formatting.options.copy(),
        "the ops of the table": len(OPS),
        "tinytorch.get_num_threads()": threads.get_num_threads() if threads else UNKNOWN,
        "torch.get_num_threads()": torch.get_num_threads() if torch else UNKNOWN,
        "torch.get_default_dtype()": torch.get_default_dtype() if torch else UNKNOWN,
        "torch.is_grad_enabled()": torch.is_grad_enabled() if torch else UNKNOWN,
    }


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """A line for each setting that is no longer as it was."""
    return [
        f"{name}: {_part(was, after[name])} before, {_part(after[name], was)} now"
        for name, was in before.items()
        if was is not UNKNOWN and was != after[name]
    ]


def _part(value: Any, other: Any) -> Any:
    """Of a dictionary the items that the other has not."""
    if not isinstance(value, dict):
        return value
    return {k: v for k, v in value.items() if k not in other or other[k] != v}
