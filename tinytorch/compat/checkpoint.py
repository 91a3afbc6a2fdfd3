"""`torch.utils.checkpoint`."""

from __future__ import annotations

import functools
from typing import Any

from tinytorch import autograd


def checkpoint(
    function: Any,
    *args: Any,
    use_reentrant: Any = None,
    preserve_rng_state: bool = True,
    **options: Any,
) -> Any:
    """`autograd.checkpoint`, which computes again in backward what it does not store.

    Options that are none of PyTorch's are arguments of `function`.
    """
    known = {"context_fn", "determinism_check", "debug", "early_stop"}
    keywords = {name: value for name, value in options.items() if name not in known}
    if keywords:
        function = functools.partial(function, **keywords)
    return autograd.checkpoint(function, *args)


def checkpoint_sequential(functions: Any, segments: int, input: Any, **options: Any) -> Any:
    """A chain of modules, of which each of `segments` parts is checkpointed."""
    chain = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = -(-len(chain) // segments)
    for start in range(0, len(chain), size):
        input = checkpoint(_run(chain[start : start + size]), input)
    return input


def _run(layers: list[Any]) -> Any:
    def run(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x

    return run
