"""How to draw inputs and parameters for attention and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.testing.source import Sample, Source, samples


def _attention(s: Source) -> tuple[list[Any], tuple[int, ...], dict[str, Any]]:
    """Query, key, value and perhaps mask and seed; the shape of the result; parameters."""
    lengths = (1, 2, 3) if s.smooth else (0, 1, 2, 5, 18, 35, 67)
    length, size, e, v = s.pick(lengths), s.pick(lengths), s.extent(1), s.extent(1)
    front, groups = s.pick([(), (2,), (2, 1), (1, 2), (0,)][: 3 if s.smooth else 5]), s.pick((1, 2))
    heads = (*front[:-1], front[-1] * groups) if front else ()
    inputs = [
        s.normal((*lead, *rest))
        for lead, rest in ((heads, (length, e)), (front, (size, e)), (front, (size, v)))
    ]
    dropped = s.flag()
    mask = _attention_mask(s, (*heads, length, size))
    if mask is not None or dropped:
        inputs.append(True if mask is None else mask)
    if dropped:
        inputs.append(np.array(s.integer(0, 99)))
    params = {"is_causal": s.flag(), "scale": s.pick((0.5, 0.7)), "dropout_p": 0.25 * dropped}
    return inputs, (*heads, length, v), params


def _attention_mask(s: Source, scores: tuple[int, ...]) -> Any:
    """Of bool, of floats, of floats and -inf; with rows that see nothing; or none."""
    kind = s.pick(("none", "bool", "float", "-inf"))
    if kind == "none":
        return None
    lead = s.integer(0, len(scores) - 2)
    shape = tuple(n if s.random.random() < 0.7 else 1 for n in scores[lead:])
    keep = s.rng.random(shape) < 0.6
    if kind == "bool":
        return keep
    added = s.normal(shape)
    return added if kind == "float" or s.smooth else np.where(keep, added, -np.inf).astype(s.dtype)


@samples("scaled_dot_product_attention")
def _forward(s: Source) -> Sample:
    inputs, _, params = _attention(s)
    return Sample(tuple(inputs), params)


@samples("scaled_dot_product_attention_backward")
def _backward(s: Source) -> Sample:
    inputs, out, params = _attention(s)
    return Sample((s.normal(out), *inputs), params)
