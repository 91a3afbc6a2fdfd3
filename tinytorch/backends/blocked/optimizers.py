"""One step of an optimizer as one pass over the parameters.

Written with array operations, a step of Adam passes over memory a dozen times; the numbers it needs
for one parameter all fit in registers. Parameters and state are updated in place.

Sources: D. Kingma, J. Ba, "Adam", ICLR 2015, algorithm 1; I. Loshchilov, F. Hutter, "Decoupled
weight decay regularization", ICLR 2019; I. Sutskever et al., ICML 2013 (momentum as in PyTorch).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import from_dtype, types

from tinytorch.dtypes import Array
from tinytorch.jit import threads
from tinytorch.jit.entries import Entries, flat_type
from tinytorch.jit.library import JIT, kernel
from tinytorch.jit.parallel import shared


@kernel
def _sgd(p: Array, g: Array, lr: float, weight_decay: float) -> None:
    real = p.dtype.type
    rate, decay = real(lr), real(weight_decay)
    for i in range(p.size):
        p[i] -= rate * (g[i] + decay * p[i])


@kernel
def _momentum(
    p: Array,
    g: Array,
    buf: Array,
    lr: float,
    momentum: float,
    fresh: float,
    weight_decay: float,
    nesterov: bool,
) -> None:
    """A step with momentum in one pass: each element is read once and written once.

        g' = g + weight_decay p;  buf = momentum buf + fresh g'
        p -= lr buf, with nesterov p -= lr (g' + momentum buf)

    All is computed in the dtype of p.

    Args:
        p, buf: of one dimension; updated in place.
        g: of the same size.
    """
    real = p.dtype.type
    rate, kept, new, decay = real(lr), real(momentum), real(fresh), real(weight_decay)
    for i in range(p.size):
        gradient = g[i] + decay * p[i]
        velocity = kept * buf[i] + new * gradient
        buf[i] = velocity
        p[i] -= rate * (gradient + kept * velocity if nesterov else velocity)


@kernel
def _adam(
    p: Array,
    g: Array,
    m: Array,
    v: Array,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    l2: float,
    kept: float,
    scale1: float,
    scale2: float,
) -> None:
    """`kept` is what decoupled weight decay leaves of p; the scales correct the bias of m and v."""
    real = p.dtype.type
    old1, new1, old2, new2 = real(beta1), real(1 - beta1), real(beta2), real(1 - beta2)
    rate, root_scale, tiny = real(lr * scale1), real(scale2), real(eps)
    decay, rest = real(l2), real(kept)
    for i in range(p.size):
        gradient = g[i] + decay * p[i]
        first = old1 * m[i] + new1 * gradient
        second = old2 * v[i] + new2 * gradient * gradient
        m[i], v[i] = first, second
        p[i] = rest * p[i] - rate * first / (np.sqrt(second) * root_scale + tiny)


_run_sgd = shared(_sgd, "p[:], g[:], lr, weight_decay")
_run_momentum = shared(_momentum, "p[:], g[:], buf[:], lr, momentum, fresh, weight_decay, nesterov")
_run_adam = shared(_adam, "p[:], g[:], m[:], v[:], lr, beta1, beta2, eps, l2, kept, scale1, scale2")

ADAM_STEPS = 4  # elementary steps per parameter, for the decision about threads


def _make_entries(dtype: np.dtype[Any]) -> Entries:
    array, number = flat_type(from_dtype(dtype)), types.float64
    return Entries(
        sgd=(_sgd, *[array] * 2, *[number] * 2),
        momentum=(_momentum, *[array] * 3, *[number] * 4, types.boolean),
        adam=(_adam, *[array] * 4, *[number] * 8),
    )


_entries = {x: _make_entries(x) for x in map(np.dtype, (np.float32, np.float64)) if JIT}


def _run_directly(name: str, work: float, arrays: tuple[Array, ...], *numbers: float) -> bool:
    """Run a kernel on this thread, without numba's dispatch and views in one dimension.

    A small parameter has more of these than of arithmetic.

    Returns:
        False if nothing was done: there are threads for so much work, or an array is not like the
        first, or not in C order.
    """
    dtype = arrays[0].dtype
    entries = _entries.get(dtype)
    if entries is None or (work >= threads.SERIAL_BELOW and threads.threads_for(work) > 1):
        return False
    for x in arrays:
        if x.dtype is not dtype:
            return False
    try:
        getattr(entries, name)(*arrays, *numbers)
    except BufferError:
        return False
    return True


def _flat(x: Array) -> Array:
    """A one-dimensional view, for an update in place.

    Raises:
        ValueError: `x` is not contiguous; a copy would take the update and be lost.
    """
    flat = x.ravel()
    if flat.base is None:  # not a view; to ask `x.flags` takes longer
        raise ValueError(
            f"an optimizer updates parameters in place and needs them contiguous; one of shape "
            f"{x.shape} has strides {x.strides}: make it so with np.ascontiguousarray"
        )
    return flat


def sgd_step(
    p: Array,
    g: Array,
    buf: Array | None,
    *,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    first: bool,
) -> None:
    """p -= lr d, with d the gradient (with weight_decay p added) or its running sum `buf`.

    Args:
        p: parameters, updated in place.
        g: gradient, of the shape of p.
        buf: velocity, updated in place; None without momentum.
        lr, momentum, dampening, weight_decay, nesterov: as in PyTorch.
        first: this is the first step: buf starts as the gradient itself.
    """
    if buf is None:
        if not _run_directly("sgd", p.size, (p, g), lr, weight_decay):
            _run_sgd(p.size, _flat(p), g.ravel(), lr, weight_decay)
        return
    if first:
        buf[...] = 0
    numbers = (lr, momentum, 1.0 if first else 1.0 - dampening, weight_decay, nesterov)
    if not _run_directly("momentum", 2 * p.size, (p, g, buf), *numbers):
        _run_momentum(2 * p.size, _flat(p), g.ravel(), _flat(buf), *numbers)


def _sgd_together(ps: list[Array], gs: list[Array], *, lr: float, weight_decay: float) -> int:
    """`sgd_step` without momentum for columns of arrays, see `Update.together`."""
    entries, done = _entries.get(ps[0].dtype), 0
    if entries is None:
        return 0
    step, rate = entries.sgd, float(lr)
    most = threads.SERIAL_BELOW if threads.get_num_threads() > 1 else math.inf
    try:
        for p, g in zip(ps, gs, strict=True):
            if p.size >= most or not p.flags.carray:
                break
            step(p, g, rate, weight_decay)
            done += 1
    except BufferError:  # a gradient in another order
        pass
    return done


sgd_step.together = _sgd_together  # type: ignore[attr-defined]


def adam_step(
    p: Array,
    g: Array,
    m: Array,
    v: Array,
    step: Array,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
) -> None:
    """Adam, or AdamW if `decoupled`:  p -= lr mhat / (sqrt(vhat) + eps).

    Args:
        p: parameters, updated in place.
        g: gradient, of the shape of p.
        m, v: running means of the gradient and of its square, updated in place.
        step: how many steps there were, 0-d; this one is counted.
        weight_decay: added to the gradient (as L2), or, if decoupled, taken off the parameters.
    """
    t = int(step.item()) + 1
    step.fill(t)  # a tenth of the time of `step += 1`
    l2 = 0.0 if decoupled else weight_decay
    kept = 1.0 - lr * weight_decay if decoupled else 1.0
    work = ADAM_STEPS * p.size
    numbers = (
        lr, beta1, beta2, eps, l2, kept, 1.0 / (1.0 - beta1**t), 1.0 / math.sqrt(1.0 - beta2**t)
    )  # fmt: skip
    if not _run_directly("adam", work, (p, g, m, v), *numbers):
        _run_adam(work, _flat(p), g.ravel(), _flat(m), _flat(v), *numbers)
