"""Positions of tokens: sines for the model to add, and rotations of queries and keys."""

from __future__ import annotations

import numpy as np

from tinytorch.functions.movement import cat
from tinytorch.tensor import Tensor


def angles(length: int, width: int, base: float = 10_000.0) -> np.ndarray:
    """(length, width / 2) in float64: position p turns by p / base^(2 i / width) at frequency i.

    Raises:
        ValueError: width is odd.
    """
    if width % 2:
        raise ValueError(f"positions need an even width, got {width}")
    return np.outer(np.arange(length), base ** (-np.arange(0, width, 2) / width))


def sinusoidal_positions(length: int, width: int, base: float = 10_000.0) -> Tensor:
    """(length, width): sines in the even columns, cosines in the odd ones; to add to embeddings.

    >>> sinusoidal_positions(2, 2).tolist()
    [[0.0, 1.0], [0.8414709568023682, 0.5403022766113281]]

    Source: A. Vaswani et al., "Attention is all you need", 2017, section 3.5.
    """
    turns = angles(length, width, base)
    return Tensor.from_numpy(
        np.stack([np.sin(turns), np.cos(turns)], -1).reshape(length, width).astype(np.float32)
    )


def rotary_table(length: int, width: int, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """Cosines and sines (length, width) for `rotate`."""
    turns = np.tile(angles(length, width, base), 2)
    cos, sin = np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)
    return Tensor.from_numpy(cos), Tensor.from_numpy(sin)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + width / 2]) by the angle of its position.

    The product of a query and a key, both turned, depends on the distance of their positions only.

    Args:
        x: (..., length, width)
        cos, sin: (length, width), rows of `rotary_table`, or what broadcasts so.

    Source: J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021,
    section 3.4; in halves instead of neighbours, as GPT-NeoX and Llama have it.
    """
    half = x.shape[-1] // 2
    turned = cat([-x[..., half:], x[..., :half]], -1)
    return x * cos + turned * sin
