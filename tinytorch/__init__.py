"""TinyTorch: a deep-learning framework to learn from by building it.

    import tinytorch

    x = tinytorch.tensor([[1.0, 2.0]], requires_grad=True)
    y = (x @ x.T).sum()
    y.backward()

Subpackages load on first use: `tinytorch.nn`, `tinytorch.optim`, `tinytorch.data`,
`tinytorch.training`, `tinytorch.bench`.
"""

from __future__ import annotations

import importlib
from typing import Any

from tinytorch import autograd, backends, dispatch, ops, random
from tinytorch.autograd import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from tinytorch.backends import (
    ComputeBackend,
    get_backend,
    list_backends,
    register_backend,
    set_backend,
)
from tinytorch.creation import (
    arange,
    as_tensor,
    eye,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    tensor,
    zeros,
    zeros_like,
)
from tinytorch.dispatch import Mode, apply, using_backend
from tinytorch.dtypes import DType, float16, float32, float64, int32, int64
from tinytorch.dtypes import bool_ as bool
from tinytorch.errors import (
    AutogradError,
    BackendError,
    DataError,
    DTypeError,
    MissingExtraError,
    ShapeError,
    TinyTorchError,
)
from tinytorch.functions.elementwise import (
    abs,
    add,
    ceil,
    clip,
    cos,
    div,
    eq,
    erf,
    exp,
    expm1,
    floor,
    floor_divide,
    ge,
    gt,
    isfinite,
    isinf,
    isnan,
    le,
    log,
    log1p,
    log2,
    logical_and,
    logical_not,
    logical_or,
    lt,
    masked_fill,
    maximum,
    minimum,
    mul,
    ne,
    neg,
    pow,
    reciprocal,
    relu,
    remainder,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sqrt,
    square,
    sub,
    tanh,
    where,
)
from tinytorch.functions.elementwise import clip as clamp
from tinytorch.functions.indexing import (
    diagonal,
    gather,
    index_select,
    one_hot,
    scatter_add,
    tril,
    triu,
)
from tinytorch.functions.linalg import dot, einsum, matmul, outer
from tinytorch.functions.movement import (
    broadcast_to,
    cat,
    chunk,
    flatten,
    flip,
    narrow,
    pad,
    permute,
    repeat,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    transpose,
    unbind,
    unflatten,
    unsqueeze,
)
from tinytorch.functions.reductions import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    argsort,
    cumsum,
    log_softmax,
    logsumexp,
    max,
    mean,
    min,
    norm,
    prod,
    softmax,
    sort,
    std,
    sum,
    topk,
    var,
)
from tinytorch.random import (
    Generator,
    bernoulli,
    manual_seed,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    randperm,
)
from tinytorch.tensor import Tensor

__version__ = "0.1.0"

_LAZY_MODULES = ("bench", "data", "nn", "optim", "training")
_LAZY_NAMES = {"benchmark": "tinytorch.bench"}


def __getattr__(name: str) -> Any:
    """Load a subpackage, or a name of one, on first use: `import tinytorch` stays cheap."""
    if name in _LAZY_MODULES:
        return importlib.import_module(f"tinytorch.{name}")
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module(_LAZY_NAMES[name]), name)
    raise AttributeError(f"module 'tinytorch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY_MODULES, *_LAZY_NAMES])
