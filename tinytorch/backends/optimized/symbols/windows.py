"""Pooling of planes (images times channels), with gradients.

`plan` is the address of a record of int64: planes, height, width, output height and width, and
kernel size, stride, padding and dilation as pairs.
"""

from __future__ import annotations

from typing import Any

from tinytorch.backends.optimized.pooling.average import avg_pool, avg_pool_backward
from tinytorch.backends.optimized.pooling.maximum import (
    max_pool,
    max_pool_backward,
    max_pool_select,
)
from tinytorch.backends.optimized.pooling.pairs import max_pool_2x2, max_pool_backward_2x2
from tinytorch.backends.optimized.symbols.table import REALS, declare
from tinytorch.jit.views import view, words


def _declare(real: Any) -> None:
    @declare("max_pool2d_2x2", real, "plan x out")
    def max_pool2d_2x2(plan: int, x: int, out: int) -> None:
        n, h, w, oh, ow = words(plan, 5)
        max_pool_2x2(view(real, x, (n, h, w)), view(real, out, (n, oh, ow)))

    @declare("max_pool2d_backward_2x2", real, "plan g x out")
    def max_pool2d_backward_2x2(plan: int, g: int, x: int, out: int) -> None:
        n, h, w, oh, ow = words(plan, 5)
        shape = (n, h, w)
        max_pool_backward_2x2(
            view(real, g, (n, oh, ow)), view(real, x, shape), view(real, out, shape)
        )

    @declare("max_pool2d", real, "plan x out")
    def max_pool2d(plan: int, x: int, out: int) -> None:
        n, h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw = words(plan, 13)
        images, result = view(real, x, (n, h, w)), view(real, out, (n, oh, ow))
        max_pool(images, result, (kh, kw), (sh, sw), (ph, pw), (dh, dw))

    @declare("max_pool2d_backward", real, "plan g x out")
    def max_pool2d_backward(plan: int, g: int, x: int, out: int) -> None:
        n, h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw = words(plan, 13)
        upper, images = view(real, g, (n, oh, ow)), view(real, x, (n, h, w))
        result = view(real, out, (n, h, w))
        max_pool_backward(upper, images, result, (kh, kw), (sh, sw), (ph, pw), (dh, dw))

    @declare("max_pool2d_select", real, "plan v x out")
    def max_pool2d_select(plan: int, v: int, x: int, out: int) -> None:
        n, h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw = words(plan, 13)
        values, images = view(real, v, (n, h, w)), view(real, x, (n, h, w))
        result = view(real, out, (n, oh, ow))
        max_pool_select(values, images, result, (kh, kw), (sh, sw), (ph, pw), (dh, dw))

    @declare("avg_pool2d", real, "plan x out")
    def avg_pool2d(plan: int, x: int, out: int) -> None:
        n, h, w, oh, ow, kh, kw, sh, sw, ph, pw = words(plan, 11)
        images, result = view(real, x, (n, h, w)), view(real, out, (n, oh, ow))
        avg_pool(images, result, (kh, kw), (sh, sw), (ph, pw))

    @declare("avg_pool2d_backward", real, "plan g out")
    def avg_pool2d_backward(plan: int, g: int, out: int) -> None:
        n, h, w, oh, ow, kh, kw, sh, sw, ph, pw = words(plan, 11)
        upper, result = view(real, g, (n, oh, ow)), view(real, out, (n, h, w))
        avg_pool_backward(upper, result, (kh, kw), (sh, sw), (ph, pw))


for _real in REALS:
    _declare(_real)
