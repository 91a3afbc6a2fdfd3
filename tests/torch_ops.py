"""Each op of the table as a PyTorch function, called with the same arguments."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from tinytorch.fx.convert.torch_ops import quantized_linear, uniform
from tinytorch.op import OPS
from tinytorch.testing.source import TWINS


def pytorchs_own_samples() -> list[Any]:
    """PyTorch's database of operators with samples of their inputs.

    Importing it forbids the whole process to set flags such as `cudnn.allow_tf32`, and adds what
    setuptools brings along to the path: that is undone.
    Each sample looks for a `unittest.TestCase` in the source of all callers, to note itself there:
    four fifths of the time, and there is none here.
    """
    path = sys.path[:]
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db

    sys.path[:] = path

    assert common_utils.extract_test_fn() is None
    common_utils.extract_test_fn = lambda: None

    module = torch.backends.flags_frozen.__globals__  # `torch.backends` itself is an object
    module["__allow_nonbracketed_mutation_flag"] = True
    assert not torch.backends.flags_frozen()
    return list(op_db)


TORCH_DTYPES = {
    "bool": torch.bool,
    "uint8": torch.uint8,
    "int8": torch.int8,
    "int16": torch.int16,
    "bfloat16": torch.bfloat16,
    "int32": torch.int32,
    "int64": torch.int64,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}


def _range(bound: Any) -> Any:
    return torch.tensor(range(*bound), dtype=torch.int64)  # torch slices have no negative steps


def _slice(a: Any, bounds: Any) -> Any:
    for dim, bound in enumerate(bounds):
        a = a.index_select(dim, _range(bound))
    return a


def _unslice(a: Any, shape: Any, bounds: Any) -> Any:
    for dim, bound in enumerate(bounds):
        out = a.new_zeros((*a.shape[:dim], shape[dim], *a.shape[dim + 1 :]))
        a = out.index_add(dim, _range(bound), a)
    return a


def _fold(a: Any, length: int, step: int) -> Any:
    out = a.new_zeros((*a.shape[:-2], length))
    for i in range(a.shape[-2]):
        out = out.index_add(-1, torch.arange(a.shape[-1]) + i * step, a[..., i, :])
    return out


def _sum(a: Any, dims: Any, keepdim: bool) -> Any:
    # PyTorch reads an empty tuple of dimensions as all of them
    return torch.sum(a, dims, keepdim) if dims else a.clone()


def _extremum(function: Callable[..., Any]) -> Callable[..., Any]:
    """`max()` or `min()` of each group: where that is NaN, the NaN share the gradient. With `amax`
    of PyTorch the gradient of the whole group is then 0 / 0."""

    def reduced(a: Any, dims: Any, keepdim: bool) -> Any:
        shape = [n for i, n in enumerate(a.shape) if i not in dims]
        order = [i for i in range(a.ndim) if i not in dims] + list(dims)
        groups = a.permute(order).reshape(math.prod(shape), math.prod(a.shape[d] for d in dims))
        flat = torch.stack([function(g) for g in groups]) if len(groups) else a.new_zeros(0)
        kept = [1 if i in dims else n for i, n in enumerate(a.shape)]
        return (flat + a.sum() * 0 if not len(groups) else flat).reshape(kept if keepdim else shape)

    return reduced


def _scatter_add(a: Any, index: Any, length: int) -> Any:
    rest = a.shape[index.ndim :]
    rows = a.reshape(index.numel(), *rest)
    return a.new_zeros((length, *rest)).index_add(0, index.reshape(-1), rows)


def vjp(function: Callable[..., Any], x: Any, g: Any) -> Any:
    """The gradient of `function` at `x`, itself differentiable."""
    x = x if x.requires_grad else x.detach().requires_grad_()
    return torch.autograd.grad(function(x), x, g, create_graph=True)[0]


def _max_pool(x: Any, **p: Any) -> Any:
    return F.max_pool2d(x, **p)


def _select(v: Any, x: Any, **p: Any) -> Any:
    out, places = F.max_pool2d(x.detach(), **p, return_indices=True)
    return v.flatten(2).gather(2, places.flatten(2)).view(out.shape)


def _max_pool_backward(g: Any, x: Any, **p: Any) -> Any:
    _, places = F.max_pool2d(x.detach(), **p, return_indices=True)
    out = g.new_zeros((*x.shape[:2], x.shape[2] * x.shape[3]))
    return out.scatter_add(2, places.flatten(2), g.flatten(2)).view(x.shape)


def _avg_pool_backward(g: Any, input_size: Any, **p: Any) -> Any:
    x = torch.zeros((*g.shape[:2], *input_size), dtype=g.dtype)
    return vjp(lambda x: F.avg_pool2d(x, **p), x, g)


def _conv_input(g: Any, w: Any, input_size: Any, **p: Any) -> Any:
    shape = (g.shape[0], w.shape[1] * p["groups"], *input_size)
    return torch.nn.grad.conv2d_input(shape, w, g, **p)


def _conv_weight(x: Any, g: Any, kernel_size: Any, **p: Any) -> Any:
    shape = (g.shape[1], x.shape[1] // p["groups"], *kernel_size)
    return torch.nn.grad.conv2d_weight(x, shape, g, **p)


def _layer_norm(x: Any, w: Any, b: Any, eps: float) -> Any:
    return F.layer_norm(x, x.shape[-1:], w, b, eps)


def _batch_norm(x: Any, w: Any, b: Any, eps: float) -> Any:
    return F.batch_norm(x, None, None, w, b, training=True, eps=eps)


def _group_norm(x: Any, w: Any, b: Any, eps: float, groups: int) -> Any:
    return F.group_norm(x, groups, w, b, eps)


def _norm_backward(norm: Callable[..., Any]) -> Callable[..., Any]:
    return lambda g, x, w, **of: vjp(lambda x: norm(x, w, torch.zeros_like(w), **of), x, g)


def _norm_weight(norm: Callable[..., Any], dim: int) -> Callable[..., Any]:
    def weight(g: Any, x: Any, **of: Any) -> Any:
        w = torch.ones(x.shape[dim], dtype=x.dtype)
        return vjp(lambda w: norm(x, w, torch.zeros_like(w), **of), w, g)

    return weight


def _attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    seed: Any = None,
    *,
    is_causal: bool,
    scale: float,
    dropout_p: float,
) -> Any:
    """PyTorch's own where it can; its dropout draws other numbers, so that is written out."""
    shape, groups = (*q.shape[:-1], k.shape[-2]), 1
    if q.ndim > 2 and q.shape[-3] != k.shape[-3]:
        groups = q.shape[-3] // k.shape[-3]
        k, v = (x.repeat_interleave(groups, -3) for x in (k, v))
    mask = torch.ones((), dtype=torch.bool) if mask is None else mask
    earlier = torch.ones(shape[-2:], dtype=torch.bool)
    earlier = earlier.tril() if is_causal else earlier
    is_bool = mask.dtype is torch.bool
    mask = (mask & earlier if is_bool else torch.where(earlier, mask, -math.inf)).expand(shape)
    if not dropout_p:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)
    scores = q @ k.mT * scale
    scores = torch.where(mask, scores, -math.inf) if is_bool else scores + mask
    hidden = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.where(hidden, 0.0, torch.softmax(torch.where(hidden, 0.0, scores), -1))
    drawn = uniform(seed, shape=shape, dtype=str(q.dtype).removeprefix("torch."))
    return (weights * (drawn >= dropout_p) / (1 - dropout_p)) @ v


def _attention_backward(g: Any, *inputs: Any, **params: Any) -> Any:
    three = [x if x.requires_grad else x.detach().requires_grad_() for x in inputs[:3]]
    out = _attention(*three, *inputs[3:], **params)
    gradients = torch.autograd.grad(out, three, g, create_graph=True)
    return torch.cat([x.flatten() for x in gradients])


def torch_twin(name: str) -> Callable[..., Any] | None:
    """The op of this name in PyTorch: by the table below; by `torch=` of its samples; of an
    elementwise op PyTorch's function of the same name. None: nobody says it."""
    if name in TORCH:
        return TORCH[name]
    if name in TWINS:
        return partial(TWINS[name], torch)
    return getattr(torch, name, None) if OPS[name].kind == "elementwise" else None


TORCH: dict[str, Callable[..., Any]] = {
    "relu_backward": lambda g, y: torch.where(y <= 0, 0.0, g),
    # torch.floor_divide has no gradient
    "floor_divide": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    # in PyTorch the bounds cannot be larger than x
    "clip": lambda *xs: torch.clamp(*torch.broadcast_tensors(*xs)),
    "sum": _sum,
    "amax": _extremum(torch.max),
    "amin": _extremum(torch.min),
    "argmax": torch.argmax,
    "argmin": torch.argmin,
    "argsort": lambda a, dim, descending: torch.argsort(
        a, dim=dim, descending=descending, stable=True
    ),
    "cumsum": torch.cumsum,
    "reshape": lambda a, shape: a.reshape(shape),
    "permute": lambda a, dims: a.permute(dims),
    "expand": lambda a, shape: a.expand(shape),
    "slice": _slice,
    "unslice": _unslice,
    "unfold": lambda a, size, step: a.unfold(-1, size, step),
    "fold": _fold,
    "cat": lambda *a, dim: torch.cat(a, dim),
    "detach": lambda a: a.detach(),
    "copy": lambda a: a.clone(),
    "cast": lambda a, dtype: a.to(TORCH_DTYPES[dtype.name]),
    "take": lambda a, index: a[index],
    "scatter_add": _scatter_add,
    "matmul": torch.matmul,
    "conv2d": F.conv2d,
    "conv2d_input": _conv_input,
    "conv2d_weight": _conv_weight,
    "max_pool2d": _max_pool,
    "max_pool2d_backward": _max_pool_backward,
    "max_pool2d_select": _select,
    "avg_pool2d": F.avg_pool2d,
    "avg_pool2d_backward": _avg_pool_backward,
    "full": lambda shape, value, dtype: torch.full(shape, value, dtype=TORCH_DTYPES[dtype.name]),
    "linear": F.linear,
    "linear_weight": lambda g, x: torch.einsum("...o,...i->oi", g, x),
    "softmax": F.softmax,
    "log_softmax": F.log_softmax,
    "softmax_backward": lambda g, y, dim: y * (g - (g * y).sum(dim, keepdim=True)),
    "log_softmax_backward": lambda g, y, dim: g - y.exp() * g.sum(dim, keepdim=True),
    "cross_entropy": F.cross_entropy,
    "cross_entropy_backward": lambda g, x, t: vjp(lambda x: F.cross_entropy(x, t), x, g),
    "gelu": F.gelu,
    "gelu_backward": lambda g, x, approximate: vjp(
        lambda x: F.gelu(x, approximate=approximate), x, g
    ),
    "layer_norm": _layer_norm,
    "layer_norm_backward": _norm_backward(_layer_norm),
    "layer_norm_weight": _norm_weight(_layer_norm, -1),
    "batch_norm": _batch_norm,
    "batch_norm_backward": _norm_backward(_batch_norm),
    "batch_norm_weight": _norm_weight(_batch_norm, 1),
    "group_norm": _group_norm,
    "group_norm_backward": _norm_backward(_group_norm),
    "group_norm_weight": _norm_weight(_group_norm, 1),
    "scaled_dot_product_attention": _attention,
    "quantized_linear": quantized_linear,
    "dynamic_update_slice": lambda a, update, start, dim: a.index_copy(
        dim, start + torch.arange(update.shape[dim]), update
    ),
    "scaled_dot_product_attention_backward": _attention_backward,
}
