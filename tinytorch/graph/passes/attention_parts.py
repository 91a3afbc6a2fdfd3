"""What attention is made of where it is written out: the nodes that its patterns find."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tinytorch.graph.semantics import AnyNode

#: Filled in for a score these leave nothing of its weight, beside another score: e^-5000 is 0 for
#: scores of up to 5000. Added to scores of up to 32, all are equal in float32.
HIDES_SOME, HIDES_ALL = -1e4, -1e9


@dataclass
class Gradients:
    """The nodes of the gradients that a traced backward computes; None for those it does not.

    Attributes:
        g: the gradient of the result.
        readers: the nodes that read it.
        query, keys, values: products that are the gradients of what `WrittenOut` names so.
        key: that of the keys before they were transposed, in place of `keys`.
    """

    g: AnyNode | None = None
    readers: list[AnyNode] = field(default_factory=list)
    query: AnyNode | None = None
    keys: AnyNode | None = None
    key: AnyNode | None = None
    values: AnyNode | None = None


@dataclass
class WrittenOut:
    """dropout(softmax(query @ keys * scale, masked)) @ values, and the node of the result.

    Attributes:
        last, query, keys, values: (..., l, v), (..., l, e), (..., e, s), (..., s, v): keys are
            transposed.
        softmax: the node of the weights.
        front: the sizes in front of (l, s), as the mask has them.
        scale: what multiplies the scores.
        mask: bool, of what takes part, or floats that are added; None for none.
        fill: what becomes of the scores that do not take part; None if the mask is added.
        hides: the mask is true for what does not take part.
        is_causal: in place of a mask, query i sees the keys 0 to i.
        seed, dropout_p: of the random numbers below which a weight is dropped.
        kept: what dropout multiplies the weights with.
        backward: the gradients, where they are in the graph.
    """

    last: AnyNode
    query: AnyNode
    keys: AnyNode
    values: AnyNode
    softmax: AnyNode | None = None
    front: tuple[Any, ...] = ()
    scale: float = 1.0
    mask: AnyNode | None = None
    fill: float | None = None
    hides: bool = False
    is_causal: bool = False
    seed: AnyNode | None = None
    dropout_p: float = 0.0
    kept: AnyNode | None = None
    backward: Gradients | None = None
    chain: list[AnyNode] = field(default_factory=list)  # from the weights back to the scores
