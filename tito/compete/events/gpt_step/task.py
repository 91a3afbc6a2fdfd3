"""A training step of a small GPT: the entry's kernels under it, NumPy's for what it does not have.

Right is what gives the loss and the gradient of every weight. The network: tokens and positions,
blocks of causal attention and a two-layer perceptron, each behind a layer norm and added to what
came in; the embedding is the output layer too. Source: A. Radford et al., "Language models are
unsupervised multitask learners", 2019 (GPT-2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tito.compete.event import Array, Problem
from tito.compete.steps import Torch, run_step, step_reference

__all__ = ["Torch", "call", "make", "reference"]

TOKENS, LONGEST, WIDTH, HEADS, BLOCKS = 96, 192, 96, 4, 2
BLOCK = [  # two norms, query key value, projection, perceptron
    (WIDTH,), (WIDTH,), (3 * WIDTH, WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,),
    (WIDTH,), (WIDTH,), (4 * WIDTH, WIDTH), (4 * WIDTH,), (WIDTH, 4 * WIDTH), (WIDTH,),
]  # fmt: skip
SHAPES = [(TOKENS, WIDTH), (LONGEST, WIDTH), *(BLOCK * BLOCKS), (WIDTH,), (WIDTH,)]
NORMS = (0, 6)  # where in a block the weights of norms are
PRODUCTS = BLOCKS * 12 * WIDTH * WIDTH + TOKENS * WIDTH  # multiplications of a token, forward
TOLERANCE = 2e-5  # of the largest gradient of a tensor


def make(draw: np.random.Generator, case: dict[str, Any]) -> Problem:
    """Lines of tokens, the token that follows each, and weights as after a few steps."""
    n, length = (int(draw.integers(*case[k], endpoint=True)) for k in ("batch", "length"))
    line = draw.integers(0, TOKENS, (n, length + 1))
    outputs: list[tuple[tuple[int, ...], Any]] = [((), "f4"), *((s, "f4") for s in SHAPES)]
    pairs = length * (length + 1) / 2
    forward = 2.0 * n * (length * PRODUCTS + 2 * BLOCKS * pairs * WIDTH)
    weights = [_weight(draw, i, shape) for i, shape in enumerate(SHAPES)]
    inputs = [np.ascontiguousarray(a) for a in (line[:, :-1], line[:, 1:])]
    return Problem([*inputs, *weights], outputs, flops=3 * forward)


def _weight(draw: np.random.Generator, index: int, shape: tuple[int, ...]) -> Array:
    found = draw.standard_normal(shape).astype(np.float32)
    if len(shape) == 2:
        return found if index < 2 else found / np.float32(np.sqrt(shape[1]))
    is_norm = index == len(SHAPES) - 2 or (index - 2) % len(BLOCK) in NORMS
    return np.float32(is_norm) + np.float32(0.1) * found


def call(entry: Any, inputs: Sequence[Array], parameters: dict[str, Any]) -> list[Array]:
    """Loss and gradients, computed on the entry's kernels."""
    return run_step(_step, entry, inputs)


def _step(from_array: Any, functional: Any, inputs: Sequence[Array]) -> list[Array]:
    """Written once for TinyTorch and PyTorch, which have the same names."""
    tokens, following, *given = (from_array(np.array(a)) for a in inputs)
    weights = [w.requires_grad_() for w in given]
    embedding, positions, *rest = weights
    x = functional.embedding(tokens, embedding) + positions[: tokens.shape[1]]
    for i in range(BLOCKS):
        x = _block(functional, x, rest[i * len(BLOCK) : (i + 1) * len(BLOCK)])
    x = functional.layer_norm(x, (WIDTH,), *rest[-2:])
    logits = functional.linear(x, embedding)
    loss = functional.cross_entropy(logits.reshape(-1, TOKENS), following.reshape(-1))
    loss.backward()
    return [loss.detach().numpy(), *(w.grad.numpy() for w in weights)]


def _block(functional: Any, x: Any, weights: Sequence[Any]) -> Any:
    norm_1, bias_1, w_qkv, b_qkv, w_out, b_out, norm_2, bias_2, w_up, b_up, w_down, b_down = weights
    n, length = x.shape[:2]
    qkv = functional.linear(functional.layer_norm(x, (WIDTH,), norm_1, bias_1), w_qkv, b_qkv)
    heads = qkv.reshape(n, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
    q, k, v = heads[0], heads[1], heads[2]
    seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + functional.linear(seen.transpose(1, 2).reshape(n, length, WIDTH), w_out, b_out)
    up = functional.gelu(
        functional.linear(functional.layer_norm(x, (WIDTH,), norm_2, bias_2), w_up, b_up)
    )
    return x + functional.linear(up, w_down, b_down)


def reference(inputs: Sequence[Array], parameters: dict[str, Any]) -> list[tuple[Array, Array]]:
    """In float64 on the NumPy backend; a share of the largest of each tensor may be off."""
    return step_reference(_step, inputs, TOLERANCE)
