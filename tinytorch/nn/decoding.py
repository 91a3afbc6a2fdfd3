"""A step of generation as compiled code: the next tokens of a sequence, behind a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd import no_grad
from tinytorch.nn.gpt import GPT
from tinytorch.nn.kv_cache import CacheAt, KVCache
from tinytorch.tensor import Tensor


class DecodeStep:
    """The logits behind new tokens, by code that is compiled once for all positions.

        cache = model.make_cache(1, 200)
        step = DecodeStep(model, cache, tinytorch.compile)
        model(prompt, cache)                    # fills the cache, in one pass
        logits = step(tokens)                   # (1, 1) to (1, 1, vocab_size)

    Where the model runs op by op, dispatch takes as long for a token as a quantized weight does to
    be read. The cache is written in place, one slice a layer, and only what is written of it is
    read.

    Args:
        model: in evaluation mode.
        cache: of the model.
        compile: `tinytorch.compile`, or with other options a function like it.
    """

    def __init__(self, model: GPT, cache: KVCache, compile: Callable[..., Any]) -> None:
        self.model, self.cache = model, cache
        self._transform = compile(self._logits)

    def __call__(self, tokens: Tensor) -> Tensor:
        """Tokens (batch, count) to logits (batch, count, vocab_size).

        Raises:
            ShapeError: the cache or the model's context has no room for them.
            IndexError: a token is outside of the vocabulary.
        """
        with no_grad():
            x = self.model.embed(tokens, self.cache)
            logits: Tensor = self._transform(x, Tensor.from_numpy(np.array(self.cache.used)))
        self.cache.advance(tokens.shape[1])
        return logits

    def _logits(self, x: Tensor, position: Tensor) -> Tensor:
        return self.model.transform(x, CacheAt(self.cache, position))
