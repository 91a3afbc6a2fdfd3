"""The records of int64 that symbols get: the name of each word, for the caller and for the kernel.

The compiler passes `code.record(PoolRecord(...))`, where an array stands for its address; a kernel
reads `PoolRecord(*words(address, POOL_WORDS))`. Strides and steps are in bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Word = Any  # an int, or an array that stays where it is


class ConvRecord(NamedTuple):
    """The record of `conv2d_by_...`: a sum over taps.

    The tables are those of a walk of `optimized.conv.plan`.
    """

    images: Word
    channels: Word
    height: Word
    width: Word
    out_channels: Word
    out_height: Word
    out_width: Word
    groups: Word
    in_place: Word  # the image needs no padding, and is read where it is
    packed: Word  # bytes of packed weights, at the start of the scratch
    room: Word  # bytes of scratch after them, for images with their padding
    zeroed: Word  # how many of these must be zero
    table: Word  # of taps
    taps: Word
    walk: Word  # `phases` or `stores`
    walk_rows: Word
    walk_columns: Word
    geometry: Word
    geometry_size: Word
    is_gradient: Word  # to the input: the weights are those of the forward convolution
    group_channels: Word
    area: Word  # taps of a channel


class ConvWeightRecord(NamedTuple):
    """The record of `conv2d_weight_by_...`: the gradient to the weights."""

    images: Word
    channels: Word
    height: Word
    width: Word
    out_channels: Word
    out_height: Word
    out_width: Word
    groups: Word
    kernel_height: Word
    kernel_width: Word
    sums: Word  # bytes of sums, at the start of the scratch
    room: Word  # bytes of scratch after them, for an image with its padding
    zeroed: Word  # how many of these must be zero
    runs: Word  # the table of runs of products
    runs_size: Word
    vectors: Word
    geometry: Word  # a `ProductsGeometry`


class ConvDotsRecord(NamedTuple):
    """The record of `conv2d_weight_by_dots`, beside a `ConvWeightRecord`: positions as vectors."""

    table: Word  # of taps
    taps: Word
    geometry: Word
    geometry_size: Word
    length: Word  # positions, with the gaps between rows
    together: Word  # images in one product
    room: Word  # bytes of scratch; all must be zero


class BatchRecord(NamedTuple):
    """The record of `gemm_batch`: outer x inner products of (m, k) and (k, n) matrices."""

    outer: Word
    inner: Word
    m: Word
    n: Word
    k: Word
    a_row: Word  # strides
    a_column: Word
    b_row: Word
    b_column: Word
    c_row: Word
    a_outer: Word  # steps from product to product; 0 where an operand repeats
    a_inner: Word
    b_outer: Word
    b_inner: Word
    c_outer: Word
    c_inner: Word
    is_far: Word  # not 0: the operands come from beyond L2


class PoolRecord(NamedTuple):
    """The record of pooling: planes (images times channels) and their windows."""

    planes: Word
    height: Word
    width: Word
    out_height: Word
    out_width: Word
    kernel_height: Word
    kernel_width: Word
    stride_height: Word
    stride_width: Word
    padding_height: Word
    padding_width: Word
    dilation_height: Word = 1
    dilation_width: Word = 1


class AttentionRecord(NamedTuple):
    """Attention of query (batch, heads * group, queries, e), key (batch, heads, keys, e) and value
    (batch, heads, keys, v), whose rows have no gaps; see `optimized.attention.loops.Sizes`.

    `out` is the result, or in the backward the gradient of the query; `upper`, `dk` and `dv` are
    the gradients of the result, the key and the value. All have strides of their own.
    """

    batch: Word
    heads: Word  # of the keys
    group: Word  # query heads for each of them
    queries: Word
    keys: Word
    e: Word
    v: Word
    is_causal: Word
    mask: Word  # NO_MASK, BOOL_MASK or FLOAT_MASK
    block: Word
    pitch: Word
    q_batch: Word  # strides
    q_head: Word
    q_row: Word
    k_batch: Word
    k_head: Word
    k_row: Word
    v_batch: Word
    v_head: Word
    v_row: Word
    out_batch: Word
    out_head: Word
    out_row: Word
    upper_batch: Word = 0
    upper_head: Word = 0
    upper_row: Word = 0
    dk_batch: Word = 0
    dk_head: Word = 0
    dk_row: Word = 0
    dv_batch: Word = 0
    dv_head: Word = 0
    dv_row: Word = 0
    mask_batch: Word = 0
    mask_head: Word = 0
    mask_row: Word = 0
    mask_column: Word = 0


class QuantizedRecord(NamedTuple):
    """Of `quantized_linear_...`: x (m, k) with n rows of codes."""

    m: Word
    n: Word
    k: Word
    stored: Word  # bytes of a row of codes
    groups: Word  # scales of a row
    biases: Word  # n, or 0 for none
    words: Word  # of 16 bits, for a row of x in the scratch
    largest: Word  # see `rounding.Rounding`
    is_rounded: Word  # x is used as its codes say it, and not as it is
    is_static: Word  # by a range that is given


ATTENTION_WORDS = len(AttentionRecord._fields)
CONV_WORDS = len(ConvRecord._fields)
CONV_WEIGHT_WORDS = len(ConvWeightRecord._fields)
CONV_DOTS_WORDS = len(ConvDotsRecord._fields)
BATCH_WORDS = len(BatchRecord._fields)
POOL_WORDS = len(PoolRecord._fields)
QUANTIZED_WORDS = len(QuantizedRecord._fields)
