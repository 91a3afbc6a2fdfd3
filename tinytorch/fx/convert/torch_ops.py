"""Ops of the table in PyTorch: what `to_torch` makes nodes of.

Elementwise ops are not here, but for those of which PyTorch has a better one than their definition
says: the others are described by `tinytorch.scalar` in the words of `torch_vocabulary.py`.

A function takes torch tensors of the dtypes that the op's rule asks for (numbers as they are) and
the op's parameters (dtypes by name); it runs on any device, under autograd, and through
`torch.compile`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch.nn.grad
from torch import Tensor

from tinytorch.fx.convert.exchange import TORCH_DTYPES

Pair = tuple[int, int]
Dims = tuple[int, ...]

conv_grad: Any = torch.nn.grad  # it comes without types


# -- reductions and scans --------------------------------------------------------------------------


def sum_(a: Tensor, *, dims: Dims, keepdim: bool) -> Tensor:
    return torch.sum(a, dims, keepdim) if dims else a  # PyTorch takes no dims for all


def amax(a: Tensor, *, dims: Dims, keepdim: bool) -> Tensor:
    return torch.amax(a, dims, keepdim) if dims else a


def amin(a: Tensor, *, dims: Dims, keepdim: bool) -> Tensor:
    return torch.amin(a, dims, keepdim) if dims else a


def argmax(a: Tensor, *, dim: int, keepdim: bool) -> Tensor:
    return torch.argmax(_numbers(a), dim, keepdim)


def argmin(a: Tensor, *, dim: int, keepdim: bool) -> Tensor:
    return torch.argmin(_numbers(a), dim, keepdim)


def _numbers(a: Tensor) -> Tensor:
    return a.to(torch.uint8) if a.dtype is torch.bool else a


def argsort(a: Tensor, *, dim: int, descending: bool) -> Tensor:
    return torch.argsort(a, dim=dim, descending=descending, stable=True)


def cumsum(a: Tensor, *, dim: int) -> Tensor:
    return torch.cumsum(a, dim)


# -- movement --------------------------------------------------------------------------------------


def reshape(a: Tensor, *, shape: Dims) -> Tensor:
    return torch.reshape(a, shape)


def permute(a: Tensor, *, dims: Dims) -> Tensor:
    return torch.permute(a, dims)


def expand(a: Tensor, *, shape: Dims) -> Tensor:
    return a.expand(shape)


def slice_(a: Tensor, *, bounds: tuple[tuple[int, int, int], ...]) -> Tensor:
    for dim, (start, stop, step) in enumerate(bounds):
        count = len(range(start, stop, step))
        if step < 0:  # PyTorch has no negative steps: the same elements, from the other end
            a = a[(slice(None),) * dim + (slice(start + (count - 1) * step, start + 1, -step),)]
            a = torch.flip(a, (dim,))
        else:
            a = a[(slice(None),) * dim + (slice(start, max(stop, start), step),)]
    return a


def _indices(shape: Dims, bounds: tuple[tuple[int, int, int], ...], like: Tensor) -> Tensor:
    """Where `slice` with these bounds takes its elements, in the flattened tensor."""
    indices = torch.zeros((), dtype=torch.int64, device=like.device)
    for extent, (start, stop, step) in zip(shape, bounds, strict=True):
        count = len(range(start, stop, step))
        along = start + step * torch.arange(count, device=like.device)
        indices = indices.unsqueeze(-1) * extent + along
    return indices


def unslice(a: Tensor, *, shape: Dims, bounds: tuple[tuple[int, int, int], ...]) -> Tensor:
    zeros = a.new_zeros(math.prod(shape))
    indices = _indices(shape, bounds, a).reshape(-1)
    return zeros.index_put((indices,), a.reshape(-1)).reshape(shape)


def unfold(a: Tensor, *, size: int, step: int) -> Tensor:
    return a.unfold(-1, size, step)


def fold(a: Tensor, *, length: int, step: int) -> Tensor:
    count, size = a.shape[-2:]
    starts = torch.arange(count, device=a.device).unsqueeze(-1) * step
    indices = (starts + torch.arange(size, device=a.device)).reshape(-1)
    flat = a.reshape(*a.shape[:-2], count * size)
    return a.new_zeros((*a.shape[:-2], length)).index_add(-1, indices, flat)


def cat(*tensors: Tensor, dim: int) -> Tensor:
    return torch.cat(tensors, dim)


def copy(a: Tensor) -> Tensor:
    return torch.clone(a, memory_format=torch.contiguous_format)


def cast(a: Tensor, *, dtype: str) -> Tensor:
    return a.to(TORCH_DTYPES[dtype])


# -- indexing --------------------------------------------------------------------------------------


def take(a: Tensor, index: Tensor) -> Tensor:
    return a[index]


def scatter_add(a: Tensor, index: Tensor, *, length: int) -> Tensor:
    rest = a.shape[index.ndim :]
    rows = a.reshape(index.numel(), *rest)
    zeros = a.new_zeros((length, *rest))
    return zeros.index_put((index.reshape(-1),), rows, accumulate=True)


def dynamic_update_slice(a: Tensor, update: Tensor, start: Tensor, *, dim: int) -> Tensor:
    places = start + torch.arange(update.shape[dim], device=a.device)
    return a.index_copy(dim, places, update)


# -- convolution and pooling -----------------------------------------------------------------------


def conv2d(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Tensor:
    return F.conv2d(x, w, b, stride, padding, dilation, groups)


def conv2d_input(
    grad: Tensor,
    w: Tensor,
    *,
    input_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Tensor:
    size = (grad.shape[0], w.shape[1] * groups, *input_size)
    return conv_grad.conv2d_input(size, w, grad, stride, padding, dilation, groups)


def conv2d_weight(
    x: Tensor,
    grad: Tensor,
    *,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Tensor:
    size = (grad.shape[1], x.shape[1] // groups, *kernel_size)
    return conv_grad.conv2d_weight(x, size, grad, stride, padding, dilation, groups)


def max_pool2d(x: Tensor, *, kernel_size: Pair, **windows: Any) -> Tensor:
    return F.max_pool2d(x, kernel_size, **windows)


def _indices_of_maxima(x: Tensor, kernel_size: Pair, windows: dict[str, Any]) -> Tensor:
    """(n, c, positions): in each image, the largest element of each window."""
    _, indices = F.max_pool2d(x, kernel_size, **windows, return_indices=True)
    return indices.flatten(2)


def max_pool2d_backward(grad: Tensor, x: Tensor, *, kernel_size: Pair, **windows: Any) -> Tensor:
    indices = _indices_of_maxima(x, kernel_size, windows)
    zeros = grad.new_zeros(x.shape).flatten(2)
    return zeros.scatter_add(2, indices, grad.flatten(2)).reshape(x.shape)


def max_pool2d_select(values: Tensor, x: Tensor, *, kernel_size: Pair, **windows: Any) -> Tensor:
    _, indices = F.max_pool2d(x, kernel_size, **windows, return_indices=True)
    return values.flatten(2).gather(2, indices.flatten(2)).reshape(indices.shape)


def avg_pool2d(x: Tensor, *, kernel_size: Pair, stride: Pair, padding: Pair) -> Tensor:
    return F.avg_pool2d(x, kernel_size, stride, padding)


def avg_pool2d_backward(
    grad: Tensor, *, kernel_size: Pair, stride: Pair, padding: Pair, input_size: Pair
) -> Tensor:
    channels = grad.shape[1]
    share = grad.new_full((channels, 1, *kernel_size), 1 / math.prod(kernel_size))
    size = (grad.shape[0], channels, *input_size)
    return conv_grad.conv2d_input(size, share, grad, stride, padding, groups=channels)


# -- creation: the result's device is chosen when the graph is made --------------------------------


def full(*, shape: Dims, value: Any, dtype: str, device: str = "cpu") -> Tensor:
    kind = TORCH_DTYPES[dtype]
    return torch.full(shape, value, dtype=kind, device=device)


def arange(*, start: float, stop: float, step: float, dtype: str, device: str = "cpu") -> Tensor:
    kind = TORCH_DTYPES[dtype]
    if (stop - start) * step <= 0:  # PyTorch refuses an empty range that runs backwards
        return torch.empty(0, dtype=kind, device=device)
    return torch.arange(start, stop, step, dtype=kind, device=device)


def _shifted(z: Tensor, count: int) -> Tensor:
    """z >> count without its sign: PyTorch's shift of int64 brings copies of the sign in."""
    return (z >> count) & ((1 << (64 - count)) - 1)


def _as_signed(constant: int) -> int:
    return constant - (1 << 64) if constant >= 1 << 63 else constant


def uniform(seed: Tensor, *, shape: Dims, dtype: str, device: str = "cpu") -> Tensor:
    """The same bits as every other backend: SplitMix64, in int64 that wraps around."""
    kind = TORCH_DTYPES[dtype]
    z = torch.arange(1, math.prod(shape) + 1, dtype=torch.int64, device=device)
    z = z * _as_signed(0x9E3779B97F4A7C15) + seed
    z = (z ^ _shifted(z, 30)) * _as_signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _as_signed(0x94D049BB133111EB)
    z = z ^ _shifted(z, 31)
    bits = 53 if kind is torch.float64 else 24
    return (_shifted(z, 64 - bits).to(kind) * 2.0**-bits).reshape(shape)


# -- fused -----------------------------------------------------------------------------------------


def softmax(x: Tensor, *, dim: int) -> Tensor:
    return torch.softmax(x, dim)


def log_softmax(x: Tensor, *, dim: int) -> Tensor:
    return torch.log_softmax(x, dim)


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    *,
    blank: int,
    zero_infinity: bool,
) -> Tensor:
    """PyTorch's; its gradient is that for the scores before `log_softmax`, which comes to the same
    for them."""
    return F.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, "none", zero_infinity
    )


def gelu(x: Tensor, *, approximate: str) -> Tensor:
    return F.gelu(x, approximate=approximate)


def layer_norm(x: Tensor, w: Tensor, b: Tensor, *, eps: float) -> Tensor:
    return F.layer_norm(x, w.shape, w, b, eps)


def group_norm(x: Tensor, w: Tensor, b: Tensor, *, groups: int, eps: float) -> Tensor:
    return F.group_norm(x, groups, w, b, eps)


def quantized_linear(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    range_: Tensor | None = None,
    *,
    bits: int,
    group_size: int,
    activation: str,
) -> Tensor:
    """The quantized product computed in floats, with the same rounding; gradients pass it
    unchanged."""
    rounded, given = x, x.detach()
    if activation == "dynamic":
        high, low = (y.amax(-1, keepdim=True).clamp_min(0) for y in (given, -given))
        step = (high / 127 + low / 127).clamp_min(1e-30)
        rounded = torch.round(given * (1 / step)) * step
    elif range_ is not None:
        codes = torch.clamp(torch.round(given * (1 / range_[0])) + range_[1], 0, 255)
        rounded = (codes - range_[1]) * range_[0]
    if bits == 4:  # two's complement; halves of bytes are 16 codes apart
        rows, size = weight.shape
        nibbles = torch.stack([weight & 15, weight >> 4], -1).reshape(rows, size // 16, 16, 2)
        weight = (nibbles.transpose(-1, -2).reshape(rows, 2 * size) ^ 8).to(x.dtype) - 8
    rows, stored = weight.shape
    values = weight.to(x.dtype).reshape(*scale.shape, stored // scale.shape[1])
    values = (values * scale[..., None]).reshape(rows, stored)[:, : x.shape[-1]]
    return F.linear(x if rounded is x else x + (rounded - x).detach(), values, bias)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | bool | None = None,
    seed: Tensor | int | None = None,
    *,
    is_causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """PyTorch's own; with dropout, whose numbers are ours, it is written out."""
    length, size = query.shape[-2], key.shape[-2]
    added = mask if isinstance(mask, Tensor) else None
    if is_causal and (added is not None or dropout_p):
        earlier = torch.ones(length, size, dtype=torch.bool, device=query.device).tril()
        if added is None or added.dtype is torch.bool:
            added = earlier if added is None else added & earlier
        else:
            added = torch.where(earlier, added, -math.inf)
    grouped = query.ndim > 2 and query.shape[-3] != key.shape[-3]
    if not dropout_p:
        return F.scaled_dot_product_attention(
            query, key, value, added, 0.0, is_causal and added is None, scale=scale,
            enable_gqa=grouped,
        )  # fmt: skip
    if grouped:
        times = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(times, -3) for x in (key, value))
    scores = query @ key.mT * scale
    if added is not None and added.dtype is torch.bool:
        scores = scores.masked_fill(~added, -math.inf)
    elif added is not None:
        scores = scores + added
    hidden = (scores == -math.inf).all(-1, keepdim=True)  # softmax would be NaN there
    weights = torch.softmax(scores.masked_fill(hidden, 0.0), -1).masked_fill(hidden, 0.0)
    assert isinstance(seed, Tensor)
    kind = "float64" if query.dtype is torch.float64 else "float32"
    drawn = uniform(seed, shape=tuple(weights.shape), dtype=kind, device=str(query.device))
    return (weights * ((drawn >= dropout_p) / (1 - dropout_p)).to(query.dtype)) @ value


TORCH_OPS: dict[str, Callable[..., Any]] = {
    "relu": torch.relu, "sigmoid": torch.sigmoid, "sum": sum_,
    "amax": amax, "amin": amin, "argmax": argmax, "argmin": argmin, "argsort": argsort,
    "cumsum": cumsum, "reshape": reshape, "permute": permute, "expand": expand, "slice": slice_,
    "unslice": unslice, "unfold": unfold, "fold": fold, "cat": cat, "detach": torch.detach,
    "copy": copy, "cast": cast, "take": take, "scatter_add": scatter_add, "matmul": torch.matmul,
    "conv2d": conv2d, "conv2d_input": conv2d_input, "conv2d_weight": conv2d_weight,
    "max_pool2d": max_pool2d, "max_pool2d_backward": max_pool2d_backward,
    "max_pool2d_select": max_pool2d_select, "avg_pool2d": avg_pool2d,
    "avg_pool2d_backward": avg_pool2d_backward, "full": full, "arange": arange,
    "uniform": uniform, "linear": F.linear, "softmax": softmax, "log_softmax": log_softmax,
    "cross_entropy": cross_entropy, "ctc_loss": ctc_loss, "gelu": gelu, "layer_norm": layer_norm,
    "group_norm": group_norm,
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "quantized_linear": quantized_linear, "dynamic_update_slice": dynamic_update_slice,
}  # fmt: skip
CREATING = frozenset({"full", "arange", "uniform"})  # they are told their device
