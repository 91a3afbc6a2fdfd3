"""How tensors print, as text and in f-strings."""

from __future__ import annotations

import tinytorch


def test_a_number_formats_as_one() -> None:
    assert f"{tinytorch.tensor(1.5):.4f} {tinytorch.tensor(1.5)} {tinytorch.tensor([1.5])}" == (
        "1.5000 1.5 tensor([1.5])"
    )
    assert (tinytorch.tensor([1.0]) == None) is False  # noqa: E711


def test_print_options() -> None:
    x = tinytorch.tensor([1.23456])
    tinytorch.set_printoptions(precision=2)
    try:
        assert repr(x) == "tensor([1.23])"
    finally:
        tinytorch.set_printoptions(profile="default")
    assert repr(x) == "tensor([1.2346])"


def test_bfloat16_prints_its_numbers() -> None:
    x = tinytorch.tensor([1.0, -2.5], dtype="bfloat16")
    assert repr(x) == "tensor([ 1. , -2.5], dtype=bfloat16)"
    assert x.tolist() == [1.0, -2.5] and x.float().tolist() == [1.0, -2.5]
