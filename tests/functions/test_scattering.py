"""Values put at positions: which of several wins, where gradients go, what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tinytorch
from tests.backends.loading import load
from tinytorch import tensor
from tinytorch.autograd import gradcheck, gradgradcheck
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.graph import trace

BACKENDS = ("naive", "numpy", "optimized")


@pytest.fixture(params=BACKENDS, autouse=True)
def _backend(request):
    with tinytorch.using_backend(request.param):
        load(request.param)
        yield


def test_of_several_values_for_one_place_the_last_wins_and_has_the_gradient():
    x = tinytorch.zeros(2, 3, requires_grad=True)
    src = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    out = x.scatter(1, tensor([[0, 2, 0], [1, 1, 1]]), src)
    assert out.tolist() == [[3.0, 0.0, 2.0], [0.0, 6.0, 0.0]]
    (out * tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).sum().backward()
    assert src.grad.tolist() == [[0.0, 3.0, 1.0], [0.0, 0.0, 5.0]]
    assert x.grad.tolist() == [[0.0, 2.0, 0.0], [4.0, 0.0, 6.0]]


SHAPES = {
    "alike": ((3, 4), (3, 4)), "one dimension": ((4,), (4,)), "numbers": ((), ()),
    "mask broadcasts": ((3, 4), (4,)), "a column": ((3, 4), (3, 1)),
    "x broadcasts": ((4,), (3, 4)), "empty": ((0, 3), (0, 3)),
}  # fmt: skip


@pytest.mark.parametrize("shape, of_mask", SHAPES.values(), ids=SHAPES)
def test_elements_where_a_mask_is_true(shape, of_mask, rng):
    x, mask = rng.standard_normal(shape), np.asarray(rng.random(of_mask) > 0.5)
    expected = torch.masked_select(torch.tensor(x), torch.tensor(mask)).numpy()
    turned = tensor(np.ascontiguousarray(mask.T)).T
    for a in (tensor(x), tensor(np.ascontiguousarray(np.asarray(x).T)).T):
        for chosen in (tensor(mask), turned):
            found = [a.masked_select(chosen)]
            if shape == of_mask != ():
                found.append(a[chosen])
            for result in found:
                np.testing.assert_array_equal(result.numpy(), expected)
    if shape == of_mask != ():
        chosen, of = tensor(mask), tinytorch.from_numpy(x).requires_grad_()
        gradcheck(lambda t: t[chosen] ** 2 + t.masked_select(chosen), (of,), order=2)


def test_a_mask_is_bool():
    with pytest.raises(DTypeError, match="the mask must be bool, not int64"):
        tensor([1.0, 2.0]).masked_select(tensor([1, 0]))


def test_added_values_all_have_gradients():
    x = tensor([1.0, 2.0], requires_grad=True)
    src = tensor([3.0, 4.0, 5.0], requires_grad=True)
    out = x.scatter_add(0, tensor([1, 0, 1]), src)
    assert out.tolist() == [5.0, 10.0]
    (out * tensor([2.0, 3.0])).sum().backward()
    assert src.grad.tolist() == [3.0, 2.0, 3.0]
    assert x.grad.tolist() == [2.0, 3.0]


def test_gradients_of_first_and_second_order():
    rng = np.random.default_rng(0)
    x, src = (tinytorch.from_numpy(rng.standard_normal((2, 3))).requires_grad_() for _ in range(2))
    index = tensor([[0, 1, 1], [1, 1, 0]])
    for reduce in (None, "add"):
        call = lambda x, s, reduce=reduce: x.scatter(0, index, s, reduce=reduce) ** 2  # noqa: E731
        gradcheck(call, (x, src), order=2)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool", "float16"])
def test_other_dtypes(dtype):
    x = tinytorch.zeros(3, dtype=dtype)
    out = x.scatter(0, tensor([2]), tinytorch.ones(1, dtype=dtype))
    assert (out.dtype.name, out.float().tolist()) == (dtype, [0.0, 0.0, 1.0])


def test_what_is_refused():
    x = tinytorch.zeros(2, 3)
    with pytest.raises(IndexError, match="3"):
        x.scatter(1, tensor([[3]]), tinytorch.ones(1, 1))
    with pytest.raises(ShapeError, match="smaller than the index"):
        x.scatter(1, tensor([[0, 1]]), tinytorch.ones(1, 1))
    with pytest.raises(ShapeError, match="as many dimensions"):
        x.scatter(1, tensor([0]), tinytorch.ones(1))
    with pytest.raises(DTypeError, match="storage"):
        x.half().scatter_add(1, tensor([[0]]), tinytorch.ones(1, 1).half())
    with pytest.raises(ShapeError, match=r"source \(2,\) must have the shape \(3,\)"):
        x.select_scatter(tinytorch.ones(2), 0, 1)
    with pytest.raises(ShapeError, match=r"source \(1, 3\) must have the shape \(2, 3\)"):
        x.slice_scatter(tinytorch.ones(1, 3), 0, 0, 2)
    with pytest.raises(ShapeError, match=r"source \(1, 2\) must have the shape \(1, 3\)"):
        x.index_copy(0, tensor([1]), tinytorch.ones(1, 2))
    with pytest.raises(IndexError, match=r"must be 1-d, not of shape \(1, 1\)"):
        x.index_fill(0, tensor([[1]]), 1.0)
    with pytest.raises(IndexError, match="not in -2 to 1"):
        x.select_scatter(tinytorch.ones(3), 0, 2)


def test_slices_and_rows_are_put_as_in_pytorch():
    rng = np.random.default_rng(0)
    array, part, row = (rng.standard_normal(s) for s in ((4, 5), (2, 5), (5,)))
    ours, theirs = tinytorch.from_numpy(array), torch.from_numpy(array)
    for call in (
        lambda x, f: x.slice_scatter(f(part), 0, 1, 3),
        lambda x, f: x.slice_scatter(f(part), 0, -2),
        lambda x, f: x.slice_scatter(f(part), 0, 0, 4, 2),
        lambda x, f: x.slice_scatter(f(part[:0]), 0, 3, 1),
        lambda x, f: x.select_scatter(f(row), 0, -1),
        lambda x, f: x.select_scatter(f(row[:4]), 1, 2),
        lambda x, f: x.index_copy(0, f(np.array([3, 0])), f(part)),
        lambda x, f: x.index_copy(1, f(np.array([1])), f(array[:, :1])),
        lambda x, f: x.index_put((f(np.array([-1, 0])),), f(part)),
        lambda x, f: x.index_put((f(np.array([2, 2])),), f(part), accumulate=True),
        lambda x, f: x.index_put((f(np.array([1])), f(np.array([4]))), f(row[:1])),
    ):
        found, expected = call(ours, tinytorch.from_numpy), call(theirs, torch.from_numpy)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)


@pytest.mark.slow_beyond(2)
def test_running_extremes_and_their_places():
    nan = float("nan")
    x = np.array([[1.0, 3.0, 3.0, nan, 5.0, nan], [2.0, 1.0, 0.0, -1.0, 7.0, 7.0]])
    for array in (x, x.T.copy().T, np.stack([x, -x]), x[:1] > 2):
        for dim in range(array.ndim):
            for name in ("cummax", "cummin"):
                found = getattr(tinytorch.from_numpy(array), name)(dim)
                expected = getattr(torch.from_numpy(array), name)(dim)
                np.testing.assert_array_equal(found.values.numpy(), expected.values.numpy())
                np.testing.assert_array_equal(found.indices.numpy(), expected.indices.numpy())


@pytest.mark.parametrize("name", ["index_add", "index_copy"])
@pytest.mark.parametrize("outside", [-1, 2, 2**40])
def test_slices_that_are_not_there_are_refused_as_by_pytorch(name, outside):
    for lib in (torch, tinytorch):
        x, index = lib.zeros(2, 3), lib.tensor([outside])
        with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
            getattr(x, name)(0, index, lib.ones(1, 3))


def test_index_add_along_each_dimension():
    rng = np.random.default_rng(0)
    x, index = rng.standard_normal((3, 4, 2)), np.array([1, 0, 1])
    for dim, alpha in ((0, 1), (1, 1), (1, 0.5), (2, 2), (-1, 1)):
        source = rng.standard_normal([3 if d == dim % 3 else n for d, n in enumerate(x.shape)])
        ours, theirs = (
            f(x).index_add(dim, f(index), f(source), alpha=alpha)
            for f in (tinytorch.from_numpy, torch.from_numpy)
        )
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12)
    with pytest.raises(ShapeError):
        tinytorch.from_numpy(x).index_add(1, tensor([0, 1]), tinytorch.ones(3, 3, 2).double())
    with pytest.raises(ShapeError):
        tinytorch.from_numpy(x).index_add(1, tensor([0, 1]), tinytorch.ones(2, 2, 2).double())


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_of_many_values_put_at_places_that_are_or_are_not_distinct(repeats, dim, rng):
    x, given = rng.standard_normal((128, 128)), rng.standard_normal((128, 128))
    given = given[:96] if dim == 0 else given[:, :96]
    places = rng.permutation(128)[:96]
    if repeats:
        places[5], places[80] = places[90], places[2]
    ours = [tensor(a, requires_grad=True) for a in (x, given)]
    out = ours[0].index_copy(dim, tensor(places), ours[1])
    weights = rng.standard_normal((128, 128))
    (out * tensor(weights)).sum().backward()
    expected, slices = x.copy(), np.moveaxis(np.zeros_like(given), dim, 0)
    np.moveaxis(expected, dim, 0)[places] = np.moveaxis(given, dim, 0)
    np.testing.assert_array_equal(out.detach().numpy(), expected)
    for i, place in enumerate(places):
        if place not in places[i + 1 :]:
            slices[i] = np.moveaxis(weights, dim, 0)[place]
    np.testing.assert_array_equal(ours[1].grad.numpy(), np.moveaxis(slices, 0, dim))


@pytest.mark.parametrize("shape", [(3, 5), (100, 120)])
def test_masked_scatter_and_its_gradients(shape, rng):
    x, source = rng.standard_normal(shape), rng.standard_normal(shape)
    mask, weights = rng.random(shape[1]) < 0.5, rng.standard_normal(shape)
    results = []
    for library in (tinytorch, torch):
        a, b = (library.tensor(v, requires_grad=True) for v in (x, source))
        out = a.masked_scatter(library.tensor(mask), b)
        (out * library.tensor(weights)).sum().backward()
        results.append([np.asarray(t.detach()) for t in (out, a.grad, b.grad)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ShapeError, match="positions, but 1 values"):
        tensor(x).masked_scatter(tensor(x == x), tensor(source[0, :1]))


MASKED = {"alike": (4, 6), "of one row": (6,), "of one column": (4, 1)}


@pytest.mark.parametrize("shape", MASKED.values(), ids=list(MASKED))
@pytest.mark.parametrize("needs", [False, True])
def test_masked_scatter_takes_any_layout_and_leaves_x(shape, needs, rng):
    x, source = rng.standard_normal((6, 4)).T, rng.standard_normal((5, 6))[:, ::-1]
    mask = rng.random(shape) < 0.5
    ours, theirs = tensor(x).detach(), torch.tensor(x.copy())
    before = ours.tolist()
    out = ours.requires_grad_(needs).masked_scatter(tensor(mask), tensor(source))
    expected = theirs.masked_scatter(torch.tensor(mask), torch.tensor(source.copy()))
    np.testing.assert_array_equal(out.detach().numpy(), expected.numpy())
    assert ours.tolist() == before and out.requires_grad == needs
    whole = tensor([1, 2, 3]).masked_scatter(tensor([True, False, True]), tensor([7.9, -8.2]))
    assert whole.tolist() == [7, 2, -8] and whole.dtype is tinytorch.int64


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_masked_scatter_with_another_mask_at_each_call(dtype, rng):
    x, source = tensor(rng.standard_normal((4, 6))), tensor(rng.standard_normal(30)).to(dtype)
    weights = rng.standard_normal((4, 6))
    for i in range(40):  # its program, too, holds for any number of true elements
        mask = rng.random((4, 6)) < i / 39
        a, b = x.clone().requires_grad_(), source.clone().requires_grad_()
        out = (a if i % 2 else a.T.contiguous().T).masked_scatter(tensor(mask), b)
        (out * tensor(weights)).sum().backward()
        expected, given = x.numpy().copy(), np.zeros(30, dtype)
        expected[mask] = source.numpy()[: mask.sum()]
        given[: mask.sum()] = weights[mask]
        np.testing.assert_array_equal(out.detach().numpy(), expected)
        np.testing.assert_array_equal(a.grad.numpy(), np.where(mask, 0, weights))
        np.testing.assert_array_equal(b.grad.numpy(), given)
    with pytest.raises(ShapeError, match="24 positions, but 23 values"):
        a.masked_scatter(tensor(np.ones((4, 6), bool)), b[:23])


def test_masked_scatter_has_second_order_gradients(rng):
    mask = tensor(rng.random((3, 4)) < 0.5)
    x, source = (tensor(rng.standard_normal((3, 4)), requires_grad=True) for _ in range(2))
    for _ in range(3):
        assert gradcheck(lambda x, s: x.masked_scatter(mask, s), [x, source])
        assert gradgradcheck(lambda x, s: (x * x).masked_scatter(mask, s * s), [x, source])


def test_masked_scatter_of_no_values():
    none = tinytorch.zeros(0)
    assert tensor([1.0, 2.0]).masked_scatter(tensor([False, False]), none).tolist() == [1.0, 2.0]
    assert none.masked_scatter(none.bool(), none).shape == (0,)
    with pytest.raises(ShapeError, match="1 positions, but 0 values"):
        tensor([1.0, 2.0]).masked_scatter(tensor([False, True]), none)


@pytest.mark.parametrize("number", [0.5, -0.5, math.nan, 0.0])
def test_a_traced_write_of_a_fraction_into_bools_is_true_as_in_eager(number):
    def written(x):
        y = x.clone()
        y[0] = number
        return y

    x, expected = torch.zeros(2, dtype=torch.bool), torch.zeros(2, dtype=torch.bool)
    expected[0] = number
    ours = tinytorch.tensor(x.numpy())
    assert written(ours).tolist() == expected.tolist()
    assert trace(written, ours)(ours).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_masks_are_bool(dtype):
    x, mask = tinytorch.zeros(2), tinytorch.tensor([1, 0]).to(dtype)
    for call in (
        lambda m: x.masked_fill(m, 1.0),
        lambda m: x.masked_fill_(m, 1.0),
        lambda m: x.masked_fill(m.numpy(), 1.0),
        lambda m: x.masked_scatter(m, tinytorch.ones(2)),
    ):
        with pytest.raises(tinytorch.DTypeError, match=f"mask must be bool, not {dtype}"):
            call(mask)
    assert x.tolist() == [0, 0]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_a_compiled_masked_scatter_has_as_many_values_as_places(count: int) -> None:
    x, source = tinytorch.arange(6).float(), tinytorch.arange(10.0, 13.0)
    compiled = tinytorch.compile(lambda x, source: x.masked_scatter(x < count, source))
    if count > 3:
        with pytest.raises(IndexError, match=r"index 3 is out of range|not in 0 \.\. 2"):
            compiled(x, source)
    else:
        expected = [10.0 + i if i < count else i for i in range(6)]
        assert compiled(x, source.double()).tolist() == expected
        assert compiled(x, source.double()).dtype is tinytorch.float32
    if count:
        with pytest.raises(IndexError, match=r"index 1 is out of range|not in 0 \.\. 0"):
            compiled(x, source[:0])
    else:
        assert compiled(x, source[:0]).tolist() == x.tolist()
