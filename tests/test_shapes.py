"""What the shape rules say: what was asked, the shapes, what would fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tinytorch import ops, shapes
from tinytorch.dispatch import apply
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.shapes_conv import window_positions
from tinytorch.tensor import Tensor

CONV = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
POOL = {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}


def zeros(*sizes):
    return Tensor(np.zeros(sizes, np.float32))


def labels(*sizes):
    return Tensor(np.zeros(sizes, np.int64))


CASES = [
    (ops.add, [zeros(2, 3), zeros(4, 3)], {},
     "add: shapes (2, 3) and (4, 3) do not broadcast: counted from the end, dimension -2 is 2 in "
     "one and 4 in the other; sizes must be equal or 1"),
    (ops.matmul, [zeros(2, 3), zeros(4, 5)], {},
     "matmul: shapes (2, 3) and (4, 5) do not fit: the first has 3 columns, the second 4 rows"),
    (ops.matmul, [zeros(3), zeros(3, 2)], {},
     "matmul: shapes (3,) and (3, 2) must have two dimensions or more"),
    (ops.linear, [zeros(2, 3), zeros(4, 5)], {},
     "linear: input (2, 3) and weight (4, 5) do not fit: the input's last dimension must be the "
     "weight's second, 5"),
    (ops.linear, [zeros(2, 3), zeros(3)], {}, "(weight must be 2-d)"),
    (ops.linear, [zeros(2, 3), zeros(4, 3), zeros(3)], {},
     "linear: bias (3,) must have shape (4,)"),
    (ops.linear_weight, [zeros(2, 3), zeros(4, 5)], {},
     "linear_weight: gradient (2, 3) and input (4, 5) must agree but in the last dimension"),
    (ops.cross_entropy, [zeros(2, 3), labels(3)], {},
     "cross_entropy: logits (2, 3) and labels (3,) do not fit: they must be (n, classes) and (n,)"),
    (ops.cross_entropy, [zeros(0, 3), labels(0)], {}, "with n and classes at least 1"),
    (ops.cross_entropy_backward, [zeros(), zeros(2, 3), labels(3)], {},
     "cross_entropy_backward: logits (2, 3) and labels (3,) do not fit"),
    (ops.layer_norm, [zeros(2, 3), zeros(2), zeros(3)], {"eps": 1e-5},
     "layer_norm: input (2, 3) needs weight and bias of shape (3,), not (2,) and (3,)"),
    (ops.layer_norm_backward, [zeros(2, 3), zeros(2, 4), zeros(4)], {"eps": 1e-5},
     "layer_norm_backward: shapes (2, 3) and (2, 4) must be equal"),
    (ops.batch_norm, [zeros(3), zeros(3), zeros(3)], {"eps": 1e-5},
     "batch_norm: shape (3,) has no dimension 1"),
    (ops.group_norm, [zeros(2, 3), zeros(3), zeros(3)], {"eps": 1e-5, "groups": 2},
     "group_norm: 3 channels do not make 2 groups"),
    (ops.group_norm_weight, [zeros(2, 3), zeros(2, 3)], {"eps": 1e-5, "groups": 0},
     "group_norm_weight: 3 channels do not make 0 groups"),
    (ops.softmax_backward, [zeros(2, 3), zeros(3, 2)], {"dim": 1},
     "softmax_backward: shapes (2, 3) and (3, 2) must be equal"),
    (ops.take, [zeros(), labels(2)], {}, "take: a 0-d tensor has no rows to take"),
    (ops.scatter_add, [zeros(2, 3), labels(4)], {"length": 5},
     "scatter_add: values (2, 3) must begin with the index's shape (4,)"),
    (ops.conv2d, [zeros(3, 8, 8), zeros(4, 3, 3, 3)], CONV,
     "conv2d: the input must be (n, channels, height, width), not (3, 8, 8)"),
    (ops.conv2d, [zeros(1, 3, 8, 8), zeros(4, 2, 3, 3)], CONV,
     "conv2d: input (1, 3, 8, 8) and weight (4, 2, 3, 3) do not fit with groups=1: the weight must "
     "be (out_channels, in_channels / groups, height, width), with out_channels a multiple of"),
    (ops.conv2d, [zeros(1, 4, 8, 8), zeros(3, 2, 3, 3)], {**CONV, "groups": 2}, "with groups=2"),
    (ops.conv2d, [zeros(1, 3, 8, 8), zeros(4, 3, 3, 3), zeros(3)], CONV,
     "conv2d: bias (3,) must have shape (4,)"),
    (ops.conv2d, [zeros(1, 3, 2, 8), zeros(4, 3, 3, 3)], CONV,
     "conv2d: a window of (3, 3) (dilation (1, 1)) does not fit into (2, 8) with padding (0, 0)"),
    (ops.conv2d, [zeros(1, 3, 8, 8), zeros(4, 3, 3, 3)], {**CONV, "stride": (0, 1)},
     "conv2d: stride must be at least 1, not (0, 1)"),
    (ops.conv2d, [zeros(1, 3, 8, 8), zeros(4, 3, 3, 3)], {**CONV, "padding": (-1, 0)},
     "conv2d: padding cannot be negative: (-1, 0)"),
    (ops.conv2d_input, [zeros(1, 4, 5, 5), zeros(4, 3, 3, 3)], {**CONV, "input_size": (8, 8)},
     "conv2d_input: gradient (1, 4, 5, 5) is not what input (1, 3, 8, 8) and weight"),
    (ops.conv2d_weight, [zeros(1, 3, 8, 8), zeros(1, 4, 5, 5)], {**CONV, "kernel_size": (3, 3)},
     "conv2d_weight: gradient (1, 4, 5, 5) is not what input (1, 3, 8, 8) and weight (4, 3, 3, 3)"),
    (ops.max_pool2d, [zeros(1, 1, 4, 4)], {**POOL, "padding": (2, 2)},
     "max_pool2d: padding (2, 2) must be at most half the window (2, 2)"),
    (ops.max_pool2d, [zeros(1, 1, 1, 4)], {**POOL, "padding": (1, 1), "dilation": (2, 1)},
     "max_pool2d: a window of (2, 2) lies wholly in the padding of input (1, 1, 1, 4)"),
    (ops.max_pool2d_backward, [zeros(1, 1, 3, 3), zeros(1, 1, 4, 4)], POOL,
     "max_pool2d_backward: gradient (1, 1, 3, 3) is not what pooling (1, 1, 4, 4) gives"),
    (ops.max_pool2d_select, [zeros(1, 1, 3, 3), zeros(1, 1, 4, 4)], POOL,
     "max_pool2d_select: values (1, 1, 3, 3) must have the shape of the input (1, 1, 4, 4)"),
    (ops.unfold, [zeros(3)], {"size": 4, "step": 1}, "unfold: a window of 4 is longer than 3"),
]  # fmt: skip


@pytest.mark.parametrize("op, inputs, params, text", CASES, ids=[c[3][:40] for c in CASES])
def test_text(op, inputs, params, text):
    with pytest.raises(ShapeError) as caught:
        apply(op, *inputs, **params)
    assert text in str(caught.value)


def test_number_and_dtype_of_inputs():
    with pytest.raises(TypeError, match="mul takes 2 inputs, not 1"):
        apply(ops.mul, zeros(2))
    with pytest.raises(DTypeError, match="take: an index must be of integers, not float32"):
        apply(ops.take, zeros(3), zeros(2))
    with pytest.raises(DTypeError, match="cross_entropy takes floating-point tensors, not int64"):
        apply(ops.cross_entropy, labels(2, 3), labels(2))
    with pytest.raises(DTypeError, match="softmax takes floating-point tensors, not int64; use x"):
        labels(2, 3).softmax(1)


sizes = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@given(st.lists(sizes, min_size=1, max_size=3))
def test_broadcast_like_numpy(many):
    try:
        wanted = np.broadcast_shapes(*many)
    except ValueError:
        with pytest.raises(ShapeError, match="do not broadcast"):
            shapes.broadcast("add", many)
        return
    assert shapes.broadcast("add", many) == wanted


@given(
    extent=st.integers(0, 12), kernel=st.integers(1, 4), stride=st.integers(1, 3),
    padding=st.integers(0, 3), dilation=st.integers(1, 3),
)  # fmt: skip
def test_window_positions_by_counting(extent, kernel, stride, padding, dilation):
    last = extent + 2 * padding - dilation * (kernel - 1) - 1  # where the last window may start
    count = len(range(0, last + 1, stride))
    assert max(0, window_positions(extent, kernel, stride, padding, dilation)) == count
