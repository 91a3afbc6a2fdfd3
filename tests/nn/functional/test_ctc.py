from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from hypothesis import given, settings, strategies as st

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.fx.convert.to_torch import to_torch
from tinytorch.graph import trace
from tinytorch.state import using_backend

BACKENDS = ["naive", "numpy", "optimized"]


@st.composite
def batches(draw):
    """Scores, targets with repeated labels, and lengths, some of which have no alignment."""
    times, n, classes = draw(st.integers(1, 9)), draw(st.integers(1, 4)), draw(st.integers(2, 4))
    longest, blank = draw(st.integers(0, 5)), draw(st.integers(0, classes - 1))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    labels = np.array([c for c in range(classes) if c != blank])
    targets = rng.choice(labels, (n, longest))
    spans, sizes = rng.integers(1, times + 1, n), rng.integers(0, longest + 1, n)
    if draw(st.booleans()):  # PyTorch reads them one after the other
        targets = np.concatenate([row[:k] for row, k in zip(targets, sizes, strict=True)])
    return rng.standard_normal((times, n, classes)), targets, spans, sizes, blank


@pytest.mark.slow
@given(
    batch=batches(),
    backend=st.sampled_from(BACKENDS),
    dtype=st.sampled_from(["float32", "float64"]),
    reduction=st.sampled_from(["none", "mean", "sum"]),
    zero_infinity=st.booleans(),
    as_tuples=st.booleans(),
)
@settings(max_examples=100)
def test_equals_pytorch(batch, backend, dtype, reduction, zero_infinity, as_tuples):
    scores, targets, *lengths, blank = batch

    def run(library, functions):
        x = library.tensor(scores.astype(dtype)).requires_grad_()
        sizes = [tuple(v.tolist()) if as_tuples else library.tensor(v) for v in lengths]
        loss = functions.ctc_loss(
            functions.log_softmax(x, 2), library.tensor(targets), *sizes, blank, reduction,
            zero_infinity,
        )  # fmt: skip
        loss.sum().backward()
        return loss.detach().numpy(), x.grad.numpy()

    with using_backend(backend):
        ours = run(tinytorch, F)
    tolerance = 1e-4 if dtype == "float32" else 1e-9
    for a, b in zip(ours, run(torch, TF), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, tolerance, tolerance)


@pytest.mark.parametrize("backend", BACKENDS)
def test_is_the_sum_over_all_alignments(backend, rng):
    x = rng.standard_normal((5, 3))
    target = (1, 1, 2)
    total = 0.0
    for path in itertools.product(range(3), repeat=5):
        if tuple(k for k, _ in itertools.groupby(path) if k) == target:
            total += math.exp(sum(x[t, k] for t, k in enumerate(path)))
    with using_backend(backend):
        loss = F.ctc_loss(tinytorch.tensor(x), tinytorch.tensor(target), 5, 3, reduction="none")
    assert loss.item() == pytest.approx(-math.log(total))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("target", [[], [1], [2, 2]])
def test_inputs_without_a_batch_and_without_times(backend, target):
    x = tinytorch.log_softmax(tinytorch.tensor([[1.0, 2.0, 3.0]] * 4), 1)
    labels, size = tinytorch.tensor(target, dtype="int64"), len(target)
    with using_backend(backend):
        one = F.ctc_loss(x, labels, 4, size)
        assert one.shape == ()
        batch = F.ctc_loss(x.unsqueeze(1), labels.unsqueeze(0), (4,), [size])
        assert one.item() == pytest.approx(batch.item())
        nothing = F.ctc_loss(x, labels, tinytorch.tensor(0), tinytorch.tensor(size)).item()
        assert nothing == (math.inf if target else 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_classes_that_never_come(backend):
    never = tinytorch.tensor([[[0.0, -math.inf]], [[-math.inf, 0.0]]], requires_grad=True)
    with using_backend(backend):
        loss = F.ctc_loss(never, tinytorch.tensor([[1]]), (2,), (1,), reduction="sum")
        loss.backward()
    assert loss.item() == 0
    np.testing.assert_array_equal(never.grad.numpy()[:, 0], [[-1, 0], [0, -1]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_is_not_lost(backend):
    x = np.zeros((3, 2, 2))
    x[1, 0, 0] = x[2, 1, 1] = math.nan
    with using_backend(backend):
        args = tinytorch.tensor([[1], [1]]), (3, 2), (1, 1)  # the second ends before its NaN
        loss = F.ctc_loss(tinytorch.tensor(x), *args, reduction="none")
    assert np.isnan(loss.numpy()).tolist() == [True, False]


def test_derivatives(check_twice, rng):
    targets = tinytorch.tensor([[1, 1, 2], [2, 0, 0], [3, 3, 3]])
    check_twice(
        lambda x: F.ctc_loss(x, targets, (6, 4, 5), (3, 1, 0), reduction="none") ** 2,
        rng.standard_normal((6, 3, 4)),
    )


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_calls_in_a_row_see_their_own_lengths(backend, rng):
    """A function that is called often runs as a program; with other values it gives others."""
    for flat in (False, True):
        for _ in range(60):
            scores, (a, b) = rng.standard_normal((6, 2, 4)), rng.integers(0, 4, 2)
            targets, spans = rng.integers(1, 4, (2, 3)), rng.integers(4, 7, 2)
            if flat:
                targets = np.concatenate([targets[0, :a], targets[1, :b]])
            sizes = np.array([a, b])
            with using_backend(backend):
                args = map(tinytorch.tensor, (scores, targets, spans, sizes))
                ours = F.ctc_loss(*args, reduction="sum", zero_infinity=True).item()
            theirs = TF.ctc_loss(
                *map(torch.tensor, (scores, targets, spans, sizes)),
                reduction="sum", zero_infinity=True,
            )  # fmt: skip
            assert ours == pytest.approx(theirs.item())


def test_arrays_of_any_layout(rng):
    x = rng.standard_normal((3, 4, 5))
    targets = rng.integers(1, 4, (5, 3))
    raw = np.frombuffer(b"x" + np.ascontiguousarray(x.transpose(2, 0, 1)).tobytes(), "f8", 60, 1)
    layouts = [x.transpose(2, 0, 1), np.ascontiguousarray(x.transpose(2, 0, 1)[::-1])[::-1]]
    losses, gradients = [], []
    for scores in (*layouts, raw.reshape(5, 3, 4)):
        given = tinytorch.from_numpy(scores).requires_grad_()
        with using_backend("optimized"):
            labels = tinytorch.from_numpy(targets.T)[:, ::2]
            out = F.ctc_loss(given, labels, (5, 4, 3), (2, 1, 3), reduction="sum")
            out.backward()
        losses.append(out.item())
        gradients.append(given.grad.numpy())
    assert losses[0] == losses[1] == losses[2]
    np.testing.assert_array_equal(gradients[0], gradients[1])
    np.testing.assert_array_equal(gradients[0], gradients[2])


def test_a_trace_becomes_pytorchs_own():
    x = tinytorch.log_softmax(tinytorch.arange(24.0).reshape(4, 2, 3).sin(), 2)
    args = x, tinytorch.tensor([[1, 2], [2, 2]]), tinytorch.tensor([4, 3]), tinytorch.tensor([2, 1])
    module = to_torch(trace(lambda *given: F.ctc_loss(*given), *args, decompose=None))
    assert "ctc_loss" in module.code
    given = [torch.from_numpy(a.numpy()) for a in args]
    assert module(*given)[0].item() == pytest.approx(F.ctc_loss(*args).item())


X, Y = tinytorch.zeros(4, 2, 3), tinytorch.tensor([[1, 2], [1, 1]])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: F.ctc_loss(X, Y, (4, 5), (1, 1)),
            IndexError,
            r"log_probs \(4, 2, 3\) and targets \(2, 2\) need input_lengths of 0 to 4, not \[4, 5",
        ),
        (
            lambda: F.ctc_loss(X, Y, (4, 4), (-1, 1)),
            IndexError,
            r"need target_lengths of 0 to 2, not \[-1, 1\]",
        ),
        (
            lambda: F.ctc_loss(X, Y, (4, 4), (-(2**63), 1)),
            IndexError,
            r"need target_lengths of 0 to 2, not \[-9223372036854775808, 1\]",
        ),
        (
            lambda: F.ctc_loss(X, Y + 1, (4, 4), (2, 2)),
            IndexError,
            r"label 3 is out of range: log_probs \(4, 2, 3\) have the classes 0 to 2",
        ),
        (
            lambda: F.ctc_loss(X, Y, (4,), (2, 2)),
            ShapeError,
            r"log_probs \(4, 2, 3\), targets \(2, 2\), input_lengths \(1,\) and target_lengths "
            r"\(2,\) must be \(time, n, classes\), \(n, longest\), \(n,\) and \(n,\)",
        ),
        (
            lambda: F.ctc_loss(X, Y, (4, 4), (2, 2), blank=3),
            ShapeError,
            r"blank must be one of the classes 0 to 2 of log_probs \(4, 2, 3\), not 3",
        ),
        (
            lambda: F.ctc_loss(X, tinytorch.tensor([1, 2]), (4, 4), (2, 2)),
            ShapeError,
            r"targets \(2,\) hold fewer labels than \[2, 2\]",
        ),
        (lambda: F.ctc_loss(X, Y, (4.0, 4.0), (2, 2)), DTypeError, "an index must be of integers"),
        (lambda: F.ctc_loss(X, Y, (4, 4), (2, 2), reduction="all"), ValueError, "not 'all'"),
    ],
)
def test_errors(backend, call, error, text):
    with using_backend(backend), pytest.raises(error, match=text):
        call()


def test_gradients_check_what_they_are_given():
    for name in BACKENDS:
        with using_backend(name), pytest.raises(IndexError, match=r"of 0 to 4, not \[4, 9\]"):
            tinytorch.apply(
                tinytorch.ops.ctc_loss_backward, tinytorch.ones(2), X, Y,
                tinytorch.tensor([4, 9]), tinytorch.tensor([1, 1]), blank=0, zero_infinity=False,
            )  # fmt: skip


def test_what_lies_behind_a_target_does_not_matter():
    far = tinytorch.tensor([[1, -7], [1, 99]])
    expected = F.ctc_loss(X, Y, (4, 4), (1, 1)).item()
    for name in BACKENDS:
        with using_backend(name):
            assert F.ctc_loss(X, far, (4, 4), (1, 1)).item() == pytest.approx(expected)
