"""An index that was in range while a function was traced, and is not when its graph is run."""

from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.graph import trace
from tinytorch.graph.index_bounds import bound_of, check_index
from tinytorch.op import OPS

INDEXED = {
    "take": (lambda x, i: apply(ops.take, x, i), (3,)),
    "scatter_add": (lambda x, i: apply(ops.scatter_add, x, i, length=5), (5,)),
    "gather": (lambda x, i: apply(ops.gather, x, i, dim=0), (2, 4)),
    "scatter": (lambda x, i: apply(ops.scatter, x, i, x[:2] * 2.0, dim=0, reduce="add"), (2, 4)),
    "cross_entropy": (lambda x, i: apply(ops.cross_entropy, x, i), (5,)),
    "cross_entropy_backward": (
        lambda x, i: apply(ops.cross_entropy_backward, x.sum(), x, i),
        (5,),
    ),
}
EXTENTS = {"cross_entropy": 4, "cross_entropy_backward": 4}


def test_every_op_with_an_index_has_a_bound():
    names = {name for name, op in OPS.items() if {"index", "target"} & set(op.inputs)}
    assert names == set(INDEXED)
    x, index = tinytorch.zeros(5, 3), tinytorch.zeros(7, dtype=tinytorch.int64)
    assert bound_of("add", [index, index], {}) is None
    assert bound_of("take", [x, index], {}) == (1, 5)
    assert bound_of("gather", [x, x.long()], {"dim": 1}) == (1, 3)


@pytest.mark.parametrize("mode", ["auto", "python", "interpret"])
@pytest.mark.parametrize("backend", ["naive", "numpy", "optimized"])
@pytest.mark.parametrize("name", [name for name in INDEXED if name != "cross_entropy_backward"])
def test_a_compiled_function_looks_at_its_index(name, backend, mode):
    function, shape = INDEXED[name]
    extent = EXTENTS.get(name, 5)
    compiled = tinytorch.compile(function, backend=backend, mode=mode)
    x, good = tinytorch.randn(5, 4), tinytorch.zeros(shape, dtype=tinytorch.int64)
    with tinytorch.using_backend(backend):
        np.testing.assert_allclose(compiled(x, good).numpy(), function(x, good).numpy(), rtol=1e-5)
    for wrong in (extent, -1, 10**6, -(10**6)):
        bad = good.clone()
        bad[-1] = wrong
        with pytest.raises(IndexError, match=r"out of range|is not in 0 \.\."):
            compiled(x, bad)
    last = good + (extent - 1)
    assert compiled(x, last).shape == compiled(x, good).shape


@pytest.mark.parametrize("backend", ["naive", "optimized"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, i, j: x[i, j],
        lambda x, i, j: x[j - 1, i],  # negative ones count from the end
        lambda x, i, j: x.index_put((i, j), tinytorch.ones(2)),
        lambda x, i, j: x.gather(1, tinytorch.stack([i, j])),
        lambda x, i, j: x.scatter(1, tinytorch.stack([i, j]), x[:2, :2]),
    ],
)
def test_what_is_outside_does_not_become_the_place_of_something_else(function, backend):
    compiled = tinytorch.compile(function, backend=backend)
    x, i, j = tinytorch.randn(5, 4), tinytorch.tensor([0, 2]), tinytorch.tensor([3, 0])
    assert compiled(x, i, j).tolist() == function(x, i, j).tolist()
    for wrong in (4, 5, 9, 10**6, -10, -(10**6)):
        bad = tinytorch.tensor([wrong, 0])
        for pair in ((i, bad), (bad, j), (bad, bad)):
            try:
                expected = function(x, *pair).tolist()
            except IndexError:
                with pytest.raises(IndexError, match=r"out of range|is not in 0 \.\."):
                    compiled(x, *pair)
            else:
                assert compiled(x, *pair).tolist() == expected


@pytest.mark.parametrize("mode", ["auto", "python"])
@pytest.mark.parametrize("backend", ["naive", "optimized"])
def test_one_hot_of_no_class_is_not_zeros(backend, mode):
    one_hot = tinytorch.nn.functional.one_hot
    compiled = tinytorch.compile(lambda i: one_hot(i, 3), backend=backend, mode=mode)
    good = tinytorch.tensor([2, 0, 1])
    assert compiled(good).tolist() == one_hot(good, 3).tolist()
    for wrong in (3, -1, 10**6):
        with pytest.raises(IndexError, match=r"out of range|is not in 0 \.\."):
            compiled(tinytorch.tensor([2, 0, wrong]))


def test_a_graph_that_is_run_looks_at_its_index():
    x = tinytorch.randn(5, 4)
    traced = trace(lambda x, i: x.index_select(0, i), x, tinytorch.tensor([0, 4]))
    with pytest.raises(IndexError, match="index 5 is out of range: there are 5"):
        tinytorch.graph.Interpreter(traced.graph).run(x, tinytorch.tensor([0, 5]))


def test_the_gradient_of_a_compiled_function_looks_at_it():
    step = tinytorch.compile(lambda x, i: x.clone().index_add_(0, i, x[:2]).sum(), mode="python")
    x = tinytorch.randn(3, 4, requires_grad=True)
    step(x, tinytorch.tensor([0, 2])).backward()
    with pytest.raises(IndexError, match="out of range"):
        step(x, tinytorch.tensor([0, 3]))


def test_check_index():
    check_index(np.array([0, 4, 2]), 5)
    check_index(np.array([], np.int64), 0)
    with pytest.raises(IndexError, match="index -2 is out of range: there are 5"):
        check_index(np.array([0, -2, 7]), 5)
