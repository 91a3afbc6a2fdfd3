"""TinyTorch: a deep-learning framework to learn from by building it.

    import tinytorch

    x = tinytorch.tensor([[1.0, 2.0]], requires_grad=True)
    y = (x @ x.T).sum()
    y.backward()

Subpackages load on first use: `tinytorch.nn`, `tinytorch.optim`, `tinytorch.data`,
`tinytorch.text`, `tinytorch.training`, `tinytorch.bench`.
"""

from __future__ import annotations

import importlib
import math
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING, Any

from tinytorch import (
    absent as _absent,
    autograd as autograd,
    backends as backends,
    dispatch as dispatch,
    ops as ops,
    random as random,
)
from tinytorch.autograd import (
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    is_grad_enabled as is_grad_enabled,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
)
from tinytorch.backends import (
    ComputeBackend as ComputeBackend,
    get_backend as get_backend,
    get_num_threads as get_num_threads,
    list_backends as list_backends,
    register_backend as register_backend,
    set_backend as set_backend,
    set_num_threads as set_num_threads,
)
from tinytorch.creation import (
    arange as arange,
    as_tensor as as_tensor,
    empty as empty,
    empty_like as empty_like,
    eye as eye,
    from_dlpack as from_dlpack,
    from_numpy as from_numpy,
    full as full,
    full_like as full_like,
    linspace as linspace,
    logspace as logspace,
    ones as ones,
    ones_like as ones_like,
    range as range,
    tensor as tensor,
    zeros as zeros,
    zeros_like as zeros_like,
)
from tinytorch.dispatch import (
    Mode as Mode,
    apply as apply,
)
from tinytorch.dtypes import (
    DType as DType,
    bfloat16 as bfloat16,
    bool_ as bool_,
    finfo as finfo,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    iinfo as iinfo,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    uint8 as uint8,
)
from tinytorch.errors import (
    AutogradError as AutogradError,
    BackendError as BackendError,
    DataError as DataError,
    DTypeError as DTypeError,
    MissingExtraError as MissingExtraError,
    ShapeError as ShapeError,
    TinyTorchError as TinyTorchError,
)
from tinytorch.functions.publish import FUNCTIONS as _FUNCTIONS
from tinytorch.random import (
    Generator as Generator,
    bernoulli as bernoulli,
    manual_seed as manual_seed,
    multinomial as multinomial,
    normal as normal,
    poisson as poisson,
    rand as rand,
    rand_like as rand_like,
    randint as randint,
    randint_like as randint_like,
    randn as randn,
    randn_like as randn_like,
    randperm as randperm,
)
from tinytorch.state import (
    using_backend as using_backend,
)
from tinytorch.tensor import (
    Tensor as Tensor,
)

if TYPE_CHECKING:  # their types
    from tinytorch.functions.arrangement import *  # noqa: F403
    from tinytorch.functions.bitwise import *  # noqa: F403
    from tinytorch.functions.diagonals import *  # noqa: F403
    from tinytorch.functions.elementwise import *  # noqa: F403
    from tinytorch.functions.indexing import *  # noqa: F403
    from tinytorch.functions.linalg import *  # noqa: F403
    from tinytorch.functions.mathematics import *  # noqa: F403
    from tinytorch.functions.movement import *  # noqa: F403
    from tinytorch.functions.ordering import *  # noqa: F403
    from tinytorch.functions.reductions import *  # noqa: F403
    from tinytorch.functions.scans import *  # noqa: F403
    from tinytorch.functions.scattering import *  # noqa: F403
globals().update(_FUNCTIONS)  # sum, matmul, ...: what `tinytorch/functions` publishes

bool = bool_
long, short, double, half = int64, int16, float64, float16
pi, e, inf, nan = math.pi, math.e, math.inf, math.nan
Size: type = tuple
globals().update({"float": float32, "int": int32})  # PyTorch's names of dtypes

__version__ = "0.1.0"

_absent.install_hooks()

_LAZY_MODULES = (
    *("bench", "compression", "data", "distributions", "func", "graph", "nn", "optim"),
    *("serialization", "text", "training"),
)
_LAZY_NAMES = {
    "benchmark": "tinytorch.bench",
    "compile": "tinytorch.graph.compiler",
    "load": "tinytorch.serialization",
    "save": "tinytorch.serialization",
}


def __getattr__(name: str) -> Any:
    """Load a subpackage, or a name of one, on first use: `import tinytorch` stays cheap."""
    if name in _LAZY_MODULES:
        return importlib.import_module(f"tinytorch.{name}")
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module(_LAZY_NAMES[name]), name)
    found = _absent.name_of("torch", name)
    if isinstance(found, _ModuleType):  # as an import leaves it: `linalg` is not looked for again
        globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY_MODULES, *_LAZY_NAMES])
