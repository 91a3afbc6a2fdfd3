"""Values as small integers with a scale: affine and symmetric, for a tensor, a channel or a group.

    affine       code = clip(round(x / scale) + zero, low, high),   x is about (code - zero) * scale
    symmetric    the same with zero = 0 and codes from -(2^(b-1) - 1) to 2^(b-1) - 1

Source: B. Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference", 2018, section 2.1; for groups, T. Dettmers and L. Zettlemoyer,
"The case for 4-bit precision: k-bit inference scaling laws", 2023, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinytorch.backends.reference_quantized import unpacked
from tinytorch.compression.calibration import Calibration
from tinytorch.dtypes import Array
from tinytorch.shapes_quantized import BLOCK

GRANULARITIES = ("tensor", "channel", "group")
MOST_ELEMENTS = 1 << 20  # calibrated at a time: so that the float temporaries stay small


@dataclass(frozen=True)
class QParams:
    """Scale, zero point and range of one tensor's codes.

    Attributes:
        scale: float32, and zero_point: int32, both of shape (rows, groups): of a tensor with one
            scale (1, 1), of one with a scale for each channel (channels, 1).
        bits: of a code.
        symmetric: codes are signed and zero_point is 0; otherwise they are unsigned.
    """

    scale: Array
    zero_point: Array
    bits: int
    symmetric: bool

    @property
    def low(self) -> int:
        """The smallest code."""
        return -self.high if self.symmetric else 0

    @property
    def high(self) -> int:
        """The largest code."""
        return (1 << (self.bits - 1)) - 1 if self.symmetric else (1 << self.bits) - 1

    def grouped(self, x: Array) -> Array:
        """x as (rows, groups, values that share a scale).

        Raises:
            ValueError: the scales are those of other shapes.
        """
        rows, groups = self.scale.shape
        if (rows > 1 and rows != x.shape[0]) or x.size % (rows * groups):
            raise ValueError(f"values {x.shape} do not fit scales {self.scale.shape}")
        return x.reshape(rows, groups, x.size // (rows * groups))


def choose_qparams(
    x: Array,
    bits: int = 8,
    *,
    symmetric: bool = True,
    granularity: str = "channel",
    group_size: int = BLOCK,
    calibration: Calibration | None = None,
) -> QParams:
    """Scales and zero points for the values of x.

    Args:
        x: at least one value, all finite; the first dimension is that of the channels.
        bits: 2 to 8.
        symmetric: signed codes around zero; otherwise unsigned codes with a zero point.
        granularity: "tensor", "channel" or "group": what shares a scale.
        group_size: neighbouring values of a channel in a group; it divides them.
        calibration: how the range is chosen; by default the range of the values.

    Raises:
        ValueError: a value is NaN or infinite, the group size does not divide, or an argument is
            none of those above; the message names the values.

    >>> choose_qparams(np.array([[-1.0, 0.5], [0.0, 254.0]])).scale[1, 0]
    np.float32(2.0)
    """
    if not 2 <= bits <= 8:
        raise ValueError(f"bits {bits} must be 2 to 8")
    if granularity not in GRANULARITIES:
        raise ValueError(f"granularity {granularity!r} is none of {', '.join(GRANULARITIES)}")
    shape = _scales_of(x, granularity, group_size)
    rows = x.reshape(shape[0] * shape[1], x.size // (shape[0] * shape[1]))
    chosen = calibration or Calibration()
    step = max(1, MOST_ELEMENTS // rows.shape[1])
    parts = [
        chosen.bounds(rows[i : i + step].astype(np.float32), bits, symmetric)
        for i in range(0, len(rows), step)
    ]
    low, high = (np.concatenate(bounds).reshape(shape) for bounds in zip(*parts, strict=True))
    if symmetric:
        scale = high / np.float32(2 ** (bits - 1) - 1)
        return QParams(scale, np.zeros(shape, np.int32), bits, True)
    span = high.astype(np.float64) - low  # which may be twice the largest float32
    scale = np.maximum(span / (2**bits - 1), 1e-30).astype(np.float32)
    return QParams(scale, np.rint(-low / scale).astype(np.int32), bits, False)


def _scales_of(x: Array, granularity: str, group_size: int) -> tuple[int, int]:
    """How many rows and groups of values there are."""
    if not x.size:
        raise ValueError(f"there are no values to quantize: shape {x.shape}")
    if granularity == "tensor":
        return (1, 1)
    channels = x.shape[0] if x.ndim else 1
    if granularity == "channel":
        return (channels, 1)
    columns = x.size // channels
    if group_size < 1 or columns % group_size:
        raise ValueError(
            f"group_size {group_size} does not divide the {columns} values of a channel of shape "
            f"{x.shape}"
        )
    return (channels, columns // group_size)


def quantize(x: Array, qparams: QParams) -> Array:
    """The codes of x: int8 if symmetric, otherwise uint8; in its shape.

    Values outside the range get the nearest code.

    Raises:
        ValueError: a value is NaN.
    """
    if np.isnan(x).any():
        raise ValueError(f"NaN has no code; {int(np.isnan(x).sum())} of {x.size} values are NaN")
    scaled = np.rint(qparams.grouped(x) / qparams.scale[..., None])
    codes = np.clip(scaled + qparams.zero_point[..., None], qparams.low, qparams.high)
    stored: Array = codes.astype(np.int8 if qparams.symmetric else np.uint8)
    return stored.reshape(x.shape)


def dequantize(codes: Array, qparams: QParams) -> Array:
    """(codes - zero_point) * scale in float32, in the codes' shape."""
    shifted = qparams.grouped(codes).astype(np.float32) - qparams.zero_point[..., None]
    values: Array = (shifted * qparams.scale[..., None]).reshape(codes.shape)
    return values.astype(np.float32, copy=False)


def pack_int4(codes: Array) -> Array:
    """Codes -8 to 7 (rows, n) two in a byte (rows, n / 2), uint8; n is a multiple of 32.

    Byte j of a block of 32 codes has code j in its low half and code j + 16 in its high half, both
    in two's complement: 16 bytes become two vectors of neighbouring codes by a mask and a shift.

    Raises:
        ValueError: n is no multiple of 32, or a code does not fit.
    """
    if codes.ndim != 2 or codes.shape[1] % BLOCK:
        raise ValueError(f"codes {codes.shape} must be (rows, a multiple of {BLOCK})")
    if codes.size and not (codes.min() >= -8 and codes.max() <= 7):
        raise ValueError(f"codes from {codes.min()} to {codes.max()} do not fit into 4 bits")
    blocks = codes.astype(np.uint8).reshape(len(codes), codes.shape[1] // BLOCK, 2, BLOCK // 2)
    packed: Array = (blocks[:, :, 0] & 15) | (blocks[:, :, 1] << 4)
    return packed.reshape(len(codes), codes.shape[1] // 2)


def unpack_int4(packed: Array) -> Array:
    """The codes (rows, 2 n), int8, of bytes (rows, n): the inverse of `pack_int4`."""
    return unpacked(packed)
