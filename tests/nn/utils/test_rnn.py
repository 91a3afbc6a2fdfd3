from __future__ import annotations

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch import nn
from tinytorch.nn.utils import rnn

THEIRS = torch.nn.utils.rnn


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("side", ["left", "right"])
def test_pad_sequence_equals_pytorch(agree, rng, batch_first, side):
    arrays = [rng.standard_normal((n, 2)) for n in (3, 1, 4)]
    agree(
        lambda *s: rnn.pad_sequence(s, batch_first, -1.0, side),
        lambda *s: THEIRS.pad_sequence(s, batch_first, -1.0, side),
        *arrays,
    )


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("lengths", [[4, 2, 1], [2, 4, 1], [1, 1, 1]])
def test_packing_equals_pytorch(agree, rng, batch_first, lengths):
    x = rng.standard_normal((3, 4, 2) if batch_first else (4, 3, 2))
    ours = rnn.pack_padded_sequence(
        tinytorch.tensor(x), tinytorch.tensor(lengths), batch_first, enforce_sorted=False
    )
    theirs = THEIRS.pack_padded_sequence(
        torch.tensor(x), torch.tensor(lengths), batch_first, enforce_sorted=False
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
    for options in ({}, {"batch_first": True, "padding_value": 7.0, "total_length": 6}):
        for a, b in zip(
            rnn.pad_packed_sequence(ours, **options),
            THEIRS.pad_packed_sequence(theirs, **options),
            strict=True,
        ):
            np.testing.assert_array_equal(a.numpy(), b)

    def there_and_back(tools):
        def call(x):
            packed = tools.pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
            return tools.pad_packed_sequence(packed._replace(data=packed.data * 2), batch_first)[0]

        return call

    agree(there_and_back(rnn), there_and_back(THEIRS), x)


def test_pack_sequence_and_back(rng):
    items = [tinytorch.tensor(rng.standard_normal((n, 2))) for n in (2, 4, 1)]
    packed = rnn.pack_sequence(items, enforce_sorted=False)
    assert packed.data.shape == (7, 2) and packed.batch_sizes.tolist() == [3, 2, 1, 1]
    for a, b in zip(rnn.unpack_sequence(packed), items, strict=True):
        assert a.tolist() == b.tolist()
    padded = rnn.pad_sequence(items)
    assert [len(s) for s in rnn.unpad_sequence(padded, [2, 4, 1])] == [2, 4, 1]
    assert packed.to("float32").data.dtype is tinytorch.float32 and packed.cpu() is packed
    assert nn.utils.rnn.PackedSequence is rnn.PackedSequence


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: rnn.pack_padded_sequence(x, [1, 2, 3]), "not sorted in decreasing order; pass"),
        (lambda x: rnn.pack_padded_sequence(x, [5, 2, 1]), "must be 3 numbers from 1 to 4"),
        (lambda x: rnn.pack_padded_sequence(x, [2, 0, 0]), "must be 3 numbers from 1 to 4"),
        (lambda x: rnn.pack_padded_sequence(x, [2, 1]), "must be 3 numbers from 1 to 4"),
        (lambda x: rnn.pad_sequence([]), "pad_sequence: 0 sequences"),
        (
            lambda x: rnn.pad_packed_sequence(rnn.pack_sequence([x]), total_length=3),
            "total_length 3 is below the longest, 4",
        ),
    ],
)
def test_errors(call, text):
    with pytest.raises(ValueError, match=text):
        call(tinytorch.ones(4, 3, 2))


def test_pad_sequence_of_shapes_that_differ():
    with pytest.raises(tinytorch.ShapeError, match=r"\(2, 3\), \(2, 4\)"):
        rnn.pad_sequence([tinytorch.ones(2, 3), tinytorch.ones(2, 4)])
