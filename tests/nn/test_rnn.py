from __future__ import annotations

import numpy as np
import pytest
import torch

import tinytorch
from tests.nn.twins import assert_twins_agree, make_twins
from tinytorch import nn
from tinytorch.autograd import grad
from tinytorch.replay import programs_at_once

KINDS = ["RNN", "LSTM", "GRU"]
OPTIONS = [
    {},
    {"num_layers": 2, "bias": False, "batch_first": True},
    {"num_layers": 2, "bidirectional": True},
    {"bidirectional": True, "batch_first": True},
]


def states(rng, kind, count, hidden, batch=(3,), projection=0):
    h = rng.standard_normal((count, *batch, projection or hidden))
    return (h, rng.standard_normal((count, *batch, hidden))) if kind == "LSTM" else h


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS)
def test_equals_pytorch(rng, kind, options):
    ours, theirs = make_twins(kind, 2, 4, **options)
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    shape = (3, 5, 2) if options.get("batch_first") else (5, 3, 2)
    assert_twins_agree(ours, theirs, rng.standard_normal(shape))
    assert_twins_agree(ours, theirs, rng.standard_normal(shape), states(rng, kind, count, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_one_sequence_without_a_batch(rng, kind):
    ours, theirs = make_twins(kind, 2, 4, bidirectional=True)
    x = rng.standard_normal((5, 2))
    assert_twins_agree(ours, theirs, x)
    assert_twins_agree(ours, theirs, x, states(rng, kind, 2, 4, ()))


def test_relu_and_projections(rng):
    x = rng.standard_normal((5, 3, 2))
    assert_twins_agree(*make_twins("RNN", 2, 4, 2, "relu"), x)
    ours, theirs = make_twins("LSTM", 2, 4, 2, bidirectional=True, proj_size=3)
    assert_twins_agree(ours, theirs, x)
    assert_twins_agree(ours, theirs, x, states(rng, "LSTM", 4, 4, projection=3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sorted_lengths", [True, False])
def test_packed_sequences_equal_pytorch(rng, kind, sorted_lengths):
    lengths = [5, 3, 3, 1] if sorted_lengths else [1, 5, 3, 3]
    ours, theirs = make_twins(kind, 2, 4, 2, bidirectional=True)
    x, first = rng.standard_normal((5, 4, 2)), states(rng, kind, 4, 4, (4,))

    def through(layer, library):
        tools = library.utils.rnn

        class Packed(library.Module):
            def forward(self, x, hx):
                given = tools.pack_padded_sequence(x, lengths, enforce_sorted=sorted_lengths)
                out, last = layer(given, hx)
                padded, sizes = tools.pad_packed_sequence(out)
                assert sizes.tolist() == lengths
                return out.data, padded, last

        module = Packed()
        module.layer = layer
        return module

    assert_twins_agree(through(ours, nn), through(theirs, torch.nn), x, first)


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cells_equal_pytorch(rng, kind, bias):
    ours, theirs = make_twins(kind, 2, 4, bias)
    for batch in ((3,), ()):
        h = rng.standard_normal((*batch, 4))
        state = (h, rng.standard_normal((*batch, 4))) if kind == "LSTMCell" else h
        x = rng.standard_normal((*batch, 2))
        assert_twins_agree(ours, theirs, x)
        assert_twins_agree(ours, theirs, x, state)


def test_h_of_a_cell_depends_on_its_c_at_each_call(rng):
    """A program that gave both would have a gradient of each for the arguments alone."""
    with tinytorch.using_backend("optimized"), programs_at_once():
        ours, theirs = make_twins("LSTMCell", 2, 4)
        for _ in range(4):
            x, found = rng.standard_normal((3, 2)), []
            for cell, of in ((ours, tinytorch), (theirs, torch)):
                h, c = cell(of.tensor(x))
                c.register_hook(lambda g: g * 2)
                c.retain_grad()
                before = of.autograd.grad(h.sum(), [c], retain_graph=True)[0].tolist()
                with of.no_grad():
                    h.zero_()  # nor does a gradient read what it returns
                    c.zero_()
                h.sum().backward()
                found.append([before, c.grad.tolist(), cell.weight_ih.grad.tolist()])
                cell.weight_ih.grad = None
            for a, b in zip(*found, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12)


def test_relu_cell(rng):
    assert_twins_agree(*make_twins("RNNCell", 2, 4, True, "relu"), rng.standard_normal((3, 2)))


def test_dropout_between_layers_in_training_only():
    tinytorch.manual_seed(0)
    x = tinytorch.ones(4, 2, 3)
    layer = nn.LSTM(3, 50, 2, dropout=0.5)
    assert layer(x)[0].tolist() != layer(x)[0].tolist()
    layer.eval()
    assert layer(x)[0].tolist() == layer(x)[0].tolist()
    single = nn.GRU(3, 5)  # after the last layer nothing is dropped
    assert single(x)[0].tolist() == single(x)[0].tolist()


def test_second_derivatives(check_twice, rng):
    for kind in KINDS:
        layer = make_twins(kind, 2, 2, bidirectional=True)[0]
        check_twice(lambda x, f=layer: f(x)[0].sum() + (f(x)[0] ** 2).sum(), rng.random((2, 2, 2)))


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_second_derivatives_of_calls_that_are_replayed(rng, kind, backend, monkeypatch):
    """A program keeps sums of gates; a gradient of its gradient needs what they were made of."""
    monkeypatch.setattr("tinytorch.replay.function.HOT", 1)
    ours, theirs = make_twins(kind, 3, 4)
    values = rng.standard_normal((5, 2, 3))
    x = torch.tensor(values, requires_grad=True)
    (g,) = torch.autograd.grad((theirs(x)[0] ** 2).sum(), x, create_graph=True)
    expected = [g, *torch.autograd.grad((g**2).sum(), [x, *theirs.parameters()])]
    with tinytorch.using_backend(backend):
        for _ in range(4):
            x = tinytorch.tensor(values, requires_grad=True)
            (g,) = grad((ours(x)[0] ** 2).sum(), [x], create_graph=True)
            found = [g, *grad((g**2).sum(), [x, *ours.parameters()])]
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-7, 1e-9)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"proj_size": 2}])
def test_weights_by_layer_and_direction(options):
    ours, theirs = (
        library.LSTM(3, 4, 2, bidirectional=True, **options) for library in (nn, torch.nn)
    )
    assert ours._all_weights == theirs._all_weights
    shapes = [[tuple(w.shape) for w in weights] for weights in theirs.all_weights]
    assert [[w.shape for w in weights] for weights in ours.all_weights] == shapes
    assert ours.all_weights[1][0] is ours.weight_ih_l0_reverse


def test_initial_values_and_text():
    layer = nn.LSTM(3, 100, 2, batch_first=True, dropout=0.2)
    for parameter in layer.parameters():
        assert 0.09 < parameter.abs().max().item() <= 0.1
    assert repr(layer).partition("  #")[0] == (
        "LSTM(3, 100, num_layers=2, batch_first=True, dropout=0.2)"
    )
    assert repr(nn.GRUCell(2, 3, bias=False)).startswith("GRUCell(2, 3, bias=False)")
    layer.flatten_parameters()
    before = layer.weight_hh_l1.tolist()
    layer.reset_parameters()
    assert layer.weight_hh_l1.tolist() != before
    cell = nn.RNNCell(2, 3)
    cell.reset_parameters()
    assert cell.weight_ih.abs().max().item() <= 3**-0.5


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: nn.LSTM(3, 4)(x), "ShapeError", r"must be \(length, n, 3\), .*not \(5, 3, 2\)"),
        (lambda x: nn.GRU(2, 4)(x, tinytorch.ones(2, 3, 4)), "ShapeError", r"must be \(1, 3, 4\)"),
        (lambda x: nn.LSTM(2, 4, dropout=2), "ValueError", "dropout 2 from 0 to 1"),
        (lambda x: nn.RNN(2, 4, nonlinearity="elu"), "ValueError", "must be 'tanh' or 'relu'"),
        (lambda x: nn.RNNCell(2, 4, nonlinearity="elu"), "ValueError", "must be 'tanh' or 'relu'"),
        (lambda x: nn.GRUCell(3, 4)(x[0]), "ShapeError", r"must be \(n, 3\)"),
        (lambda x: nn.GRUCell(2, 4)(x[0], x[0]), "ShapeError", r"the state must be \(3, 4\)"),
    ],
)
def test_errors(call, error, text):
    kind = {"ShapeError": tinytorch.ShapeError, "ValueError": ValueError}[error]
    with pytest.raises(kind, match=text):
        call(tinytorch.ones(5, 3, 2))


def test_a_char_rnn_learns():
    tinytorch.manual_seed(0)
    table, layer, head = nn.Embedding(5, 8), nn.GRU(8, 16, batch_first=True), nn.Linear(16, 5)
    parameters = [*table.parameters(), *layer.parameters(), *head.parameters()]
    optimizer = tinytorch.optim.Adam(parameters, lr=0.03)
    x = tinytorch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3]])
    for _ in range(30):
        out, _ = layer(table(x[:, :-1]))
        loss = nn.functional.cross_entropy(head(out).reshape(-1, 5), x[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
