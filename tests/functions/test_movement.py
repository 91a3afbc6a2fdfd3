from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st

import tinytorch
from tests.torch_compare import assert_like_torch
from tinytorch.errors import ShapeError

X = np.arange(24.0).reshape(2, 3, 4)

SAME_CALL = {
    "reshape": lambda x: x.reshape(6, 4),
    "reshape tuple": lambda x: x.reshape((4, -1)),
    "reshape of a transpose": lambda x: x.transpose(0, 2).reshape(-1),
    "view": lambda x: x.view(3, 8),
    "view_as": lambda x: x.view_as(x.reshape(24)),
    "permute": lambda x: x.permute(2, 0, 1),
    "permute negative": lambda x: x.permute((-1, 0, -2)),
    "transpose": lambda x: x.transpose(0, -1),
    "mT": lambda x: x.mT,
    "t": lambda x: x[0].t(),
    "t of a vector": lambda x: x[0, 0].t(),
    "expand": lambda x: x[:, :1].expand(2, 5, 4),
    "expand -1": lambda x: x[:, :1].expand(3, -1, 5, -1),
    "expand_as": lambda x: x[:1].expand_as(x),
    "broadcast_to": lambda x: x[0, 0].broadcast_to((3, 4)),
    "squeeze": lambda x: x[:1, :, :1].squeeze(),
    "squeeze dim": lambda x: x[:1, :, :1].squeeze(0),
    "squeeze wider dim": lambda x: x.squeeze(1),
    "squeeze dims": lambda x: x[:1, :, :1].squeeze((0, 2)),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "unsqueeze end": lambda x: x.unsqueeze(-1),
    "flatten": lambda x: x.flatten(),
    "flatten some": lambda x: x.flatten(1),
    "flatten middle": lambda x: x.flatten(0, 1),
    "unflatten": lambda x: x.unflatten(2, (2, -1)),
    "flip": lambda x: x.flip(0, 2),
    "flip tuple": lambda x: x.flip((1,)),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "split": lambda x: x.split(2, 1),
    "split sizes": lambda x: x.split([1, 3], 2),
    "chunk": lambda x: x.chunk(3, 2),
    "unbind": lambda x: x.unbind(1),
    "repeat": lambda x: x.repeat(2, 1, 3),
    "repeat new": lambda x: x.repeat(2, 1, 1, 1),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "unfold middle": lambda x: x.unfold(1, 2, 1),
    "roll": lambda x: x.roll(1, 2),
    "roll back": lambda x: x.roll(-5, 1),
    "iteration": lambda x: [row.sum() for row in x],
}


@pytest.mark.parametrize("call", SAME_CALL.values(), ids=SAME_CALL)
def test_methods(call):
    assert_like_torch(call, None, X)


@pytest.mark.parametrize("call", SAME_CALL.values(), ids=SAME_CALL)
def test_methods_on_noncontiguous_tensors(call):
    base = np.ascontiguousarray(X.transpose(2, 1, 0))
    try:
        call(torch.from_numpy(base).permute(2, 1, 0))
    except RuntimeError:  # a view that would need a copy
        with pytest.raises(ShapeError, match="without copying, as its elements are not in"):
            call(tinytorch.tensor(base).permute(2, 1, 0))
        return
    assert_like_torch(lambda x: call(x.permute(2, 1, 0)), None, base)


VIEWS = ["reshape", "permute", "transpose", "expand", "squeeze", "unsqueeze", "narrow", "view",
         "unfold", "mT", "flatten", "chunk"]  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory(name):
    x = tinytorch.tensor(X)
    out = SAME_CALL[name](x)
    for view in out if isinstance(out, tuple) else [out]:
        assert np.shares_memory(x.numpy(), view.numpy())


STEPS = {
    "every second row": lambda x: x[::2],
    "every second column": lambda x: x[..., ::2],
    "the first column": lambda x: x[..., :1],
    "a slice in the middle": lambda x: x[:, x.shape[1] // 2 :],
    "the last two turned": lambda x: x.transpose(-1, -2),
    "the first two turned": lambda x: x.transpose(0, 1),
    "the first": lambda x: x[:1],
}
SHAPES = {
    "flat": lambda x: x.reshape(-1),
    "flattened": lambda x: x.flatten(),
    "a matrix": lambda x: x.reshape(x.shape[0], -1),
    "columns": lambda x: x.reshape(-1, x.shape[-1]),
}


@pytest.mark.parametrize("backend", ["naive", "numpy", "blocked", "optimized"])
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=3),
    shape=st.sampled_from(sorted(SHAPES)),
    is_large=st.booleans(),
)
def test_a_write_reaches_what_was_reshaped_where_it_does_in_pytorch(
    backend, steps, shape, is_large
):
    sizes = (6, 8, 1024) if is_large and backend != "naive" else (4, 4, 4)
    bases = []
    for library in (torch, tinytorch):
        with tinytorch.using_backend(backend):
            base = view = library.zeros(*sizes)
            for step in steps:
                view = STEPS[step](view)
            flat = SHAPES[shape](view)
            flat += 1
        bases.append(base.numpy())
    np.testing.assert_array_equal(bases[1], bases[0])


def test_a_view_sees_writes():
    x = tinytorch.zeros(2, 3)
    row = x[1]
    x.fill_(5)
    assert row.tolist() == [5, 5, 5]
    row.zero_()
    assert x.tolist() == [[5, 5, 5], [0, 0, 0]]


def test_joining(rng):
    a, b, c = (rng.standard_normal((2, n)) for n in (3, 0, 2))
    ours, theirs = lambda *x: tinytorch.cat(x, 1), lambda *x: torch.cat(x, 1)
    assert_like_torch(ours, theirs, a, b, c)
    assert_like_torch(ours, theirs, a)
    assert_like_torch(lambda *x: tinytorch.cat(x), lambda *x: torch.cat(x), a, a.astype(np.float32))
    for dim in (0, 1, -1):
        assert_like_torch(lambda *x, d=dim: tinytorch.stack(x, d),
                          lambda *x, d=dim: torch.stack(x, d), a, a + 1)  # fmt: skip
    with pytest.raises(ValueError, match="cat needs at least one tensor"):
        tinytorch.cat([])
    with pytest.raises(ShapeError, match=r"cat: shapes \(2, 3\) and \(3, 3\) must agree in all"):
        tinytorch.cat([tinytorch.zeros(2, 3), tinytorch.zeros(3, 3)], 1)


@given(
    padding=st.lists(st.integers(0, 3), min_size=0, max_size=3).map(lambda p: p + p[::-1]),
    value=st.sampled_from([0, 1.5, -np.inf]),
)
def test_pad(padding, value):
    assert_like_torch(lambda x: tinytorch.pad(x, padding, value=value),
                      lambda x: F.pad(x, padding, value=value), X)  # fmt: skip


def test_zero_dimensions():
    x = np.array(2.0)
    for call in (
        lambda x: x.reshape(1, 1),
        lambda x: x.permute(()),
        lambda x: x.flatten(),
        lambda x: x.squeeze(),
        lambda x: x.squeeze(0),
        lambda x: x.unsqueeze(0),
        lambda x: x.expand(2, 3),
        lambda x: x.transpose(0, -1),
        lambda x: x.t(),
        lambda x: x.repeat(3),
        lambda x: x.flip(0),
    ):
        assert_like_torch(call, None, x)


def test_empty():
    x = np.zeros((2, 0, 3))
    for call in (
        lambda x: x.reshape(0, 7),
        lambda x: x.flatten(),
        lambda x: x.permute(2, 1, 0),
        lambda x: x.flip(1),
        lambda x: x.repeat(2, 3, 1),
        lambda x: x.chunk(2, 1),
        lambda x: x.split(1, 1),
        lambda x: x.roll(1, 1),
        lambda x: x.unbind(2),
    ):
        assert_like_torch(call, None, x)
    assert tinytorch.zeros(2, 0, 3).unbind(1) == ()


ERRORS = {
    "reshape: shape (2, 3, 4) has 24 elements, (5, 5) has 25": lambda x: x.reshape(5, 5),
    "24 elements do not fit into shape (-1, 7)": lambda x: x.reshape(-1, 7),
    "only one size may be -1, not two as in (-1, -1)": lambda x: x.reshape(-1, -1),
    "permute: dims (0, 0, 1) must name each of the 3 dimensions": lambda x: x.permute(0, 0, 1),
    "expand: shape (2, 3, 4) does not expand to (2, 5, 4)": lambda x: x.expand(2, 5, 4),
    "expand: -1 cannot stand for a new dimension": lambda x: x.expand(-1, 2, 3, 4),
    "t() is for at most 2 dimensions, not (2, 3, 4)": lambda x: x.t(),
    "flatten: start_dim 2 is after end_dim 0": lambda x: x.flatten(2, 0),
    "repeat: (2,) has fewer entries than shape (2, 3, 4)": lambda x: x.repeat(2),
    "unfold: a window of 9 is longer than 4": lambda x: x.unfold(2, 9, 1),
    "split: sizes [1, 1] add up to 2, not to 4": lambda x: x.split([1, 1], 2),
    "split: size must be at least 1, not 0": lambda x: x.split(0),
    "chunk: chunks must be at least 1, not 0": lambda x: x.chunk(0),
    "pad: (1,) is not (before, after) pairs": lambda x: tinytorch.pad(x, (1,)),
    ".mT needs at least two dimensions, not shape (4,)": lambda x: x[0, 0].mT,
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors(text):
    with pytest.raises(ValueError) as caught:
        ERRORS[text](tinytorch.tensor(X))
    assert text in str(caught.value)


def test_out_of_range():
    x = tinytorch.tensor(X)
    with pytest.raises(IndexError, match="narrow: 3 elements from 2 are not within size 4"):
        x.narrow(2, 2, 3)
    for call in (lambda: x.transpose(0, 3), lambda: x.unsqueeze(5), lambda: x.squeeze(-4),
                 lambda: x.flip(3), lambda: x.unbind(3)):  # fmt: skip
        with pytest.raises(IndexError, match="is out of range: a tensor of"):
            call()


def test_no_dimensions_are_none_where_elements_only_move() -> None:
    x = tinytorch.tensor([[[0.0, 1.0], [2.0, 3.0]]])
    assert tinytorch.flip(x, ()).tolist() == x.flip(()).tolist() == x.tolist()
    assert x.squeeze(()).shape == (1, 2, 2)


@pytest.mark.parametrize("other", ["float64", "float32", "int64", "bool"])
def test_an_empty_row_joins_a_matrix_with_its_dtype_only(other):
    """As in PyTorch: `cat([tensor([]), x])` is x, in the common dtype."""
    empty, x = np.zeros(0, other), np.ones((2, 3), np.int64)
    for arrays in ([empty, x], [x, empty]):
        found = tinytorch.cat([tinytorch.tensor(a) for a in arrays])
        expected = torch.cat([torch.tensor(a) for a in arrays]).numpy()
        assert found.numpy().dtype == expected.dtype
        np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize(("shape", "counts"), [((1, 4), (3, 1)), ((2, 3), (1, 1)), ((3,), (1, 1))])
def test_what_is_repeated_is_a_copy(shape, counts):
    x = tinytorch.ones(shape)
    repeated, tiled = x.repeat(counts), x.tile(counts)
    repeated[0] = 2
    x += 5
    assert set(x.reshape(-1).tolist()) == {6}
    assert repeated[0].max() == 2 and repeated.max() == 2 and tiled.max() == 1
    wide = tinytorch.ones(1).expand(4).repeat(2)
    wide[0] = 3
    assert wide.tolist() == [3] + [1] * 7


@pytest.mark.parametrize("shapes", [((), ()), ((), (2,)), ((2,), ())])
def test_cat_of_a_0d_tensor_says_what_to_use(shapes):
    with pytest.raises(tinytorch.ShapeError, match=r"cat: a 0-d tensor .*; use stack"):
        tinytorch.cat([tinytorch.zeros(shape) for shape in shapes])


@pytest.mark.parametrize("backend", ["numpy", "optimized", "naive"])
@pytest.mark.parametrize("join", [tinytorch.cat, tinytorch.stack, tinytorch.vstack])
def test_what_is_joined_is_in_row_major_order(backend, join):
    x = tinytorch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    with tinytorch.using_backend(backend):
        for _ in range(40):  # as a program of kernels, too
            out = join([x, x * 2])
            assert out.is_contiguous() and out.view(-1).shape == (48,)


@pytest.mark.parametrize("take", [lambda x: x.diagonal(), lambda x: x[:, 0], lambda x: x[0]])
def test_ravel_is_a_view_where_pytorchs_is(take):
    written = []
    for library in (tinytorch, torch):
        x = library.zeros(3, 3)
        take(x).ravel().fill_(1.0)
        written.append(x.tolist())
    assert written[0] == written[1]
