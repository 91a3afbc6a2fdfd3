"""ONNX's products: convolution, matrix multiplication, einsum, attention."""

from __future__ import annotations

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.functions import linalg, movement as m
from tinytorch.nn import functional as F
from tinytorch.onnx.operators.registry import operator, refuse
from tinytorch.onnx.operators.windows import pad_spatial, place_windows
from tinytorch.tensor import Tensor

Ints = tuple[int, ...]

operator("MatMul")(linalg.matmul)


@operator("Einsum")
def einsum(*tensors: Tensor, equation: str) -> Tensor:
    return linalg.einsum(equation, *tensors)


@operator("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """alpha * A @ B + beta * C"""
    a = m.t(a) if transA else a
    if transB and alpha == beta == 1 and c is not None and c.shape == b.shape[:1]:
        return F.linear(a, b, c)
    product = linalg.matmul(a, m.t(b) if transB else b)
    product = product if alpha == 1 else (product * alpha).to(a.dtype)
    if c is None:
        return product
    return product + (c if beta == 1 else (c * beta).to(c.dtype))


@operator("Conv")
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel_shape: Ints | None = None,
    strides: Ints | None = None,
    pads: Ints | None = None,
    dilations: Ints | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
) -> Tensor:
    kernel = weight.shape[2:]
    w = place_windows(x.shape[2:], kernel, strides, pads, dilations, auto_pad)
    x, padding = (x, w.before) if w.is_symmetric else (pad_spatial(x, w), (0,) * len(kernel))
    if len(kernel) == 1:
        return F.conv1d(x, weight, bias, w.stride[0], padding[0], w.dilation[0], group)
    if len(kernel) != 2:
        raise refuse(f"Conv over {len(kernel)} dimensions")
    return F.conv2d(x, weight, bias, w.stride, padding, w.dilation, group)


@operator("ConvTranspose")
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel_shape: Ints | None = None,
    strides: Ints | None = None,
    pads: Ints | None = None,
    dilations: Ints | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
) -> Tensor:
    """The gradient of a convolution for its input: every element of x spreads the kernel."""
    rank = x.ndim - 2
    if rank == 1:  # an image one pixel high
        lift = {"strides": strides, "dilations": dilations}
        options = {key: (1, *value) for key, value in lift.items() if value}
        if pads:
            options["pads"] = (0, pads[0], 0, pads[1])
        if output_padding:
            options["output_padding"] = (0, *output_padding)
        if output_shape:
            options["output_shape"] = (1, *output_shape)
        image = conv_transpose(
            m.unsqueeze(x, 2), m.unsqueeze(weight, 2), bias, group=group, auto_pad=auto_pad,
            **options,
        )  # fmt: skip
        return m.squeeze(image, 2)
    if rank != 2:
        raise refuse(f"ConvTranspose over {rank} dimensions")
    stride, dilation, extra = strides or (1, 1), dilations or (1, 1), output_padding or (0, 0)
    reach = [dilation[i] * (weight.shape[2 + i] - 1) + 1 for i in (0, 1)]
    # all that the kernels reach, of which the paddings are cut off
    full = [(x.shape[2 + i] - 1) * stride[i] + reach[i] + extra[i] for i in (0, 1)]
    before, after = list((pads or (0,) * 4)[:2]), list((pads or (0,) * 4)[2:])
    for i in (0, 1):
        if output_shape or auto_pad.startswith("SAME"):
            wanted = output_shape[-2 + i] if output_shape else x.shape[2 + i] * stride[i]
            total = max(full[i] - wanted, 0)
            small, large = total // 2, total - total // 2
            lower = auto_pad == "SAME_LOWER" if output_shape is None else auto_pad != "SAME_UPPER"
            before[i], after[i] = (large, small) if lower else (small, large)
            full[i] = wanted + total
    spread = apply(
        ops.conv2d_input, x, weight, input_size=tuple(full), stride=tuple(stride), padding=(0, 0),
        dilation=tuple(dilation), groups=group,
    )  # fmt: skip
    for i in (0, 1):
        spread = m.narrow(spread, 2 + i, before[i], full[i] - before[i] - after[i])
    return spread if bias is None else spread + m.reshape(bias, (-1, 1, 1))


@operator("Attention", since=23)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *cache: Tensor | None,
    is_causal: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
) -> Tensor:
    """Of (batch, heads, length, width); or (batch, length, heads * width), where the numbers of
    heads are given."""
    if softcap or any(part is not None for part in cache):
        raise refuse("Attention with a softcap, or with past keys and values")
    is_flat = query.ndim == 3
    if is_flat:
        counts = (q_num_heads, kv_num_heads, kv_num_heads)
        query, key, value = (
            m.transpose(m.reshape(x, (*x.shape[:2], count, -1)), 1, 2)
            for x, count in zip((query, key, value), counts, strict=True)
        )
    # The op takes a mask and is_causal together, which PyTorch's function does not.
    out = apply(
        ops.scaled_dot_product_attention, query, key, value, *(() if mask is None else (mask,)),
        is_causal=bool(is_causal), dropout_p=0.0,
        scale=float(max(query.shape[-1], 1) ** -0.5 if scale is None else scale),
    )  # fmt: skip
    return m.reshape(m.transpose(out, 1, 2), (*out.shape[:1], out.shape[2], -1)) if is_flat else out
