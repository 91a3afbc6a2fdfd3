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

from tinytorch import (
    autograd as autograd,
    backends as backends,
    dispatch as dispatch,
    ops as ops,
    random as random,
)
from tinytorch.autograd import (
    enable_grad as enable_grad,
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
    eye as eye,
    from_dlpack as from_dlpack,
    from_numpy as from_numpy,
    full as full,
    full_like as full_like,
    linspace as linspace,
    ones as ones,
    ones_like as ones_like,
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
    bool_ as bool_,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    int32 as int32,
    int64 as int64,
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
from tinytorch.functions.elementwise import (
    abs as abs,
    add as add,
    ceil as ceil,
    clip as clip,
    cos as cos,
    div as div,
    eq as eq,
    erf as erf,
    exp as exp,
    expm1 as expm1,
    floor as floor,
    floor_divide as floor_divide,
    ge as ge,
    gt as gt,
    isfinite as isfinite,
    isinf as isinf,
    isnan as isnan,
    le as le,
    log as log,
    log1p as log1p,
    log2 as log2,
    logical_and as logical_and,
    logical_not as logical_not,
    logical_or as logical_or,
    lt as lt,
    masked_fill as masked_fill,
    maximum as maximum,
    minimum as minimum,
    mul as mul,
    ne as ne,
    neg as neg,
    pow as pow,
    reciprocal as reciprocal,
    relu as relu,
    remainder as remainder,
    round as round,
    rsqrt as rsqrt,
    sigmoid as sigmoid,
    sign as sign,
    sin as sin,
    sqrt as sqrt,
    square as square,
    sub as sub,
    tanh as tanh,
    where as where,
)
from tinytorch.functions.indexing import (
    diagonal as diagonal,
    gather as gather,
    index_select as index_select,
    one_hot as one_hot,
    scatter_add as scatter_add,
    tril as tril,
    triu as triu,
)
from tinytorch.functions.linalg import (
    dot as dot,
    einsum as einsum,
    matmul as matmul,
    outer as outer,
)
from tinytorch.functions.movement import (
    broadcast_to as broadcast_to,
    cat as cat,
    chunk as chunk,
    flatten as flatten,
    flip as flip,
    narrow as narrow,
    pad as pad,
    permute as permute,
    repeat as repeat,
    reshape as reshape,
    roll as roll,
    split as split,
    squeeze as squeeze,
    stack as stack,
    transpose as transpose,
    unbind as unbind,
    unflatten as unflatten,
    unsqueeze as unsqueeze,
)
from tinytorch.functions.reductions import (
    all as all,
    amax as amax,
    amin as amin,
    any as any,
    argmax as argmax,
    argmin as argmin,
    argsort as argsort,
    cumsum as cumsum,
    log_softmax as log_softmax,
    logsumexp as logsumexp,
    max as max,
    mean as mean,
    min as min,
    norm as norm,
    prod as prod,
    softmax as softmax,
    sort as sort,
    std as std,
    sum as sum,
    topk as topk,
    var as var,
)
from tinytorch.random import (
    Generator as Generator,
    bernoulli as bernoulli,
    manual_seed as manual_seed,
    rand as rand,
    rand_like as rand_like,
    randint as randint,
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

bool = bool_
clamp = clip

__version__ = "0.1.0"

_LAZY_MODULES = ("bench", "data", "graph", "nn", "optim", "training")
_LAZY_NAMES = {"benchmark": "tinytorch.bench", "compile": "tinytorch.graph.compiler"}


def __getattr__(name: str) -> Any:
    """Load a subpackage, or a name of one, on first use: `import tinytorch` stays cheap."""
    if name in _LAZY_MODULES:
        return importlib.import_module(f"tinytorch.{name}")
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module(_LAZY_NAMES[name]), name)
    raise AttributeError(f"module 'tinytorch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY_MODULES, *_LAZY_NAMES])
