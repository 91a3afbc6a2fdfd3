"""Compile the kernel library, or load it from its cache, at once instead of at first use.

Kernels are compiled when first called; that is right for a script that uses three of them. A
benchmark or a service wants no pause later: `load_library` calls the kernels that models use most
on a few numbers. Numba compiles one kernel at a time, so a second process begins at the other end;
what it has compiled, this one finds in the cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.backends.blocked import batch_norm, optimizers
from tinytorch.backends.optimized.attention import attention
from tinytorch.backends.optimized.conv.conv2d import conv2d
from tinytorch.backends.optimized.conv.conv2d_input import conv2d_input
from tinytorch.backends.optimized.conv.conv2d_weight import conv2d_weight
from tinytorch.backends.optimized.elementwise import activations
from tinytorch.backends.optimized.elementwise.specialized import specialize
from tinytorch.backends.optimized.gemm.matmul import lazy_gemm, linear, matmul
from tinytorch.backends.optimized.pooling.maximum import max_pool2d, max_pool2d_backward
from tinytorch.backends.optimized.rows import (
    cross_entropy,
    embedding,
    layer_norm,
    reductions,
    small,
    softmax,
)
from tinytorch.collector import collector_paused
from tinytorch.dtypes import Array, meta_of_array
from tinytorch.jit import threads
from tinytorch.jit.compile_progress import progress
from tinytorch.jit.library import warm_up, warm_ups
from tinytorch.op import OPS

__all__ = ["load_library"]

X = np.ones((2, 4), np.float32)
ROW = np.ones(4, np.float32)
IMAGE = np.ones((1, 1, 4, 4), np.float32)
KERNEL = np.ones((1, 1, 3, 3), np.float32)
SMALL_IMAGES = np.ones((32, 4, 6, 6), np.float32)  # vectors go across images
SMALL_KERNELS = np.ones((4, 4, 3, 3), np.float32)
EPS = 1e-5


def load_library(report: Callable[[int, int], object] = lambda done, total: None) -> None:
    """Compile the kernels that models use most, or load them.

    Args:
        report: called after each family of kernels, with how many are done and how many there are.
    """
    helper = None
    try:
        with collector_paused():
            for i, function in enumerate(warm_ups(), 1):
                compiled = progress.compiled
                function()
                report(i, len(warm_ups()))
                if helper is None and progress.compiled > compiled and threads.cores() > 1:
                    helper = _start_helper()
    finally:
        if helper is not None:
            helper.terminate()
            helper.wait()


def help_to_load_library() -> None:
    """Compile the same kernels from the last to the first, in the second process."""
    with collector_paused():
        for function in reversed(warm_ups()):
            function()


def _start_helper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _HELP],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # if something is wrong, this process meets it too
    )


_HELP = f"from {__name__} import help_to_load_library; help_to_load_library()"


# What takes long is at both ends, for where the two processes meet, both compile the same.


@warm_up
def embeddings() -> None:
    """Embeddings come first, since they compile quickly: where this must be compiled, the helper is
    called."""
    embedding.scatter_add(X, np.zeros(2, np.int64), length=3)


@warm_up
def sums() -> None:
    """Sums of rows and of columns."""
    for dim in (0, 1):
        reductions.sum(X, dims=(dim,), keepdim=False)


@warm_up
def products() -> None:
    """Matrix products."""
    lazy_gemm(4).load_all()
    matmul(X, X.T)
    linear(X, X, ROW[:2])


@warm_up
def probabilities() -> None:
    """Softmax and cross entropy."""
    softmax.softmax_backward(X, softmax.softmax(X, dim=1), dim=1)
    of_small = small.along(ops.softmax.plan((meta_of_array(X),), {"dim": 1}))
    assert of_small is not None
    of_small(X)
    target, g = np.zeros(2, np.int64), np.ones((), np.float32)
    cross_entropy.cross_entropy(X, target)
    cross_entropy.cross_entropy_backward(g, X, target)


@warm_up
def norms() -> None:
    """Layer norm and batch norm."""
    layer_norm.layer_norm(X, ROW, ROW, eps=EPS)
    layer_norm.layer_norm_backward(X, X, ROW, eps=EPS)
    layer_norm.layer_norm_weight(X, X, eps=EPS)
    batch_norm.batch_norm(X, ROW, ROW, eps=EPS)
    batch_norm.batch_norm_backward(X, X, ROW, eps=EPS)
    batch_norm.batch_norm_weight(X, X, eps=EPS)
    batch_norm.running_statistics(X, np.zeros_like(ROW), np.ones_like(ROW), momentum=0.1)


@warm_up
def attentions() -> None:
    """Attention and its gradient."""
    options: dict[str, Any] = {"is_causal": True, "scale": 0.5, "dropout_p": 0.0}
    out = attention.scaled_dot_product_attention(X, X, X, **options)
    attention.scaled_dot_product_attention_backward(out, X, X, X, **options)


@warm_up
def images() -> None:
    """Pooling."""
    params: dict[str, Any] = {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0)}
    out = max_pool2d(IMAGE, **params, dilation=(1, 1))
    max_pool2d_backward(out, IMAGE, **params, dilation=(1, 1))


@warm_up
def steps() -> None:
    """Optimizers."""
    p = np.ones(4, np.float32)
    for buf in (None, p.copy()):
        optimizers.sgd_step(
            p, p, buf, lr=0.1, momentum=0.9, dampening=0.0, weight_decay=0.0, nesterov=False,
            first=True,
        )  # fmt: skip
    optimizers.adam_step(
        p, p, p.copy(), p.copy(), np.zeros(()), lr=0.1, beta1=0.9, beta2=0.999, eps=1e-8,
        weight_decay=0.0, decoupled=False,
    )  # fmt: skip


def _elementwise(name: str, *operands: Any) -> None:
    """An elementwise op on arrays and numbers, in float32."""
    scalar: Any = OPS[name].scalar
    shapes = tuple(x.shape if isinstance(x, np.ndarray) else None for x in operands)
    specialize(scalar, X.dtype, shapes)(*operands)


# one by one: here the two processes meet
for _name in ("add", "sub", "mul", "relu_backward"):
    warm_up(partial(_elementwise, _name, X, X))
for _name in ("add", "mul"):
    warm_up(partial(_elementwise, _name, X, ROW))
    warm_up(partial(_elementwise, _name, X, 2.0))
for _name in ("exp", "tanh", "sigmoid", "relu"):
    warm_up(partial(_elementwise, _name, X))


@warm_up
def gelus() -> None:
    """The activation of transformers."""
    activations.gelu_backward(X, activations.gelu(X, approximate="none"), approximate="none")


def _convolution_and_gradients(x: Array, w: Array, step: int) -> None:
    stride, bias, size = (step, step), w[:, 0, 0, 0], w.shape[2:]
    shared: dict[str, Any] = {"padding": (0, 0), "dilation": (1, 1), "groups": 1}
    g = conv2d(x, w, bias, stride=stride, **shared)
    conv2d_input(g, w, input_size=x.shape[2:], stride=stride, **shared)
    conv2d_weight(x, g, kernel_size=size, stride=stride, **shared)


@warm_up
def convolutions() -> None:
    """Convolution of an image, and its gradients."""
    _convolution_and_gradients(IMAGE, KERNEL, 1)


@warm_up
def strided_convolutions() -> None:
    """Convolutions with a stride above 1."""
    _convolution_and_gradients(IMAGE, KERNEL, 2)


@warm_up
def convolutions_of_small_images() -> None:
    """Convolutions of many small images at a time."""
    _convolution_and_gradients(SMALL_IMAGES, SMALL_KERNELS, 1)
