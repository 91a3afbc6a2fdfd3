"""The layers of einops: `Rearrange`, `Reduce` and `EinMix` as modules of TinyTorch.

    from tinytorch.compat.einops_layers import Rearrange

A program that runs under the name torch gets them from `einops.layers.torch`.
"""

from __future__ import annotations

from typing import Any

from einops.layers import RearrangeMixin, ReduceMixin
from einops.layers._einmix import _EinmixMixin

from tinytorch import nn
from tinytorch.functions import linalg
from tinytorch.random import rand


class Rearrange(RearrangeMixin, nn.Module):  # type: ignore[misc]
    """`einops.rearrange` as a layer.

    >>> import tinytorch
    >>> Rearrange("b c h w -> b (c h w)")(tinytorch.zeros(2, 3, 4, 4)).shape
    (2, 48)
    """

    def forward(self, x: Any) -> Any:
        """x by the pattern."""
        return self._apply_recipe(x)


class Reduce(ReduceMixin, nn.Module):  # type: ignore[misc]
    """`einops.reduce` as a layer."""

    def forward(self, x: Any) -> Any:
        """x by the pattern."""
        return self._apply_recipe(x)


class EinMix(_EinmixMixin, nn.Module):  # type: ignore[misc]
    """A linear layer over any axes: `EinMix("t b c -> t b out", weight_shape="c out", ...)`."""

    def _create_parameters(
        self, weight_shape: Any, weight_bound: float, bias_shape: Any, bias_bound: float
    ) -> None:
        def uniform(shape: Any, bound: float) -> nn.Parameter:
            return nn.Parameter((rand(tuple(shape)) * 2 - 1) * bound)

        self.weight = uniform(weight_shape, weight_bound)
        self.bias = None if bias_shape is None else uniform(bias_shape, bias_bound)

    def _create_rearrange_layers(
        self, before: str | None, before_lengths: Any, after: str | None, after_lengths: Any
    ) -> None:
        self.pre_rearrange = None if before is None else Rearrange(before, **before_lengths)
        self.post_rearrange = None if after is None else Rearrange(after, **after_lengths)

    def forward(self, x: Any) -> Any:
        """x times the weights along the axes that the pattern names."""
        if self.pre_rearrange is not None:
            x = self.pre_rearrange(x)
        out = linalg.einsum(self.einsum_pattern, x, self.weight)
        if self.bias is not None:
            out = out + self.bias
        return out if self.post_rearrange is None else self.post_rearrange(out)
