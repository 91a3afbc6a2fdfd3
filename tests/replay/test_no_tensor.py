"""Lists, arrays, None in place of tensors: the argument is named, not a missing attribute."""

from __future__ import annotations

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.replay import replayed
from tinytorch.replay.function import HOT

ONES = tinytorch.ones(2, 3)
CASES = {
    "list": (lambda: F.cross_entropy(ONES, [0, 1]), "cross_entropy: 'target' .* not list"),
    "array": (
        lambda: F.cross_entropy(ONES, np.array([0, 1])),
        "cross_entropy: 'target' .* not numpy.ndarray",
    ),
    "first": (lambda: tinytorch.norm([1.0, 2.0]), "norm: 'x' must be a tensor, not list"),
    "by name": (lambda: F.mse_loss(input=3, target=ONES), "mse_loss: 'input' .* not int"),
    "beside an equal number": (
        lambda: F.group_norm(tinytorch.ones(2, 4), 2, 2),
        "group_norm: 'weight' must be a tensor, not int",
    ),
    "None": (lambda: F.cross_entropy(None, ONES), "cross_entropy: 'input' .* not NoneType"),
    "one of several": (
        lambda: tinytorch.cat([ONES, np.ones((2, 3), np.float32)]),
        "cat: 'tensors' must be tensors, not numpy.ndarray",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_no_tensor_is_named_in_a_compiled_function(case: str) -> None:
    call, message = CASES[case]
    with pytest.raises(TypeError, match=message):
        tinytorch.compile(call)()


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_no_tensor_is_named(case: str, backend: str) -> None:
    call, message = CASES[case]
    with tinytorch.using_backend(backend):
        for _ in range(HOT + 2):  # also when a program would be made
            with pytest.raises(TypeError, match=message):
                call()


def test_an_error_of_the_function_itself_stays_as_it_is() -> None:
    @replayed
    def wrong(x, of=None):  # type: ignore[no-untyped-def]
        return x.no_such_thing if of is None else of.no_such_thing

    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'no_such_thing'"):
        wrong(ONES)
    with pytest.raises(AttributeError, match="'object' object has no attribute"):
        _with_an_object_within(ONES)
    with pytest.raises(TypeError, match="'of' must be a tensor, not object"):
        wrong(ONES, object())


@replayed
def _with_an_object_within(x):  # type: ignore[no-untyped-def]
    return object().no_such_thing + x  # type: ignore[attr-defined]


class Scaled(tinytorch.nn.Module):
    def forward(self, x: tinytorch.Tensor, options) -> tinytorch.Tensor:  # type: ignore[no-untyped-def]
        return x.flatten() * options.scale


@pytest.mark.parametrize("wrong", [[[1.0, 2.0]], None, "a", 1.0])
@pytest.mark.parametrize("hooked", [False, True])
def test_a_layer_names_what_is_no_tensor_and_says_what_it_is_itself(wrong, hooked) -> None:  # type: ignore[no-untyped-def]
    nn = tinytorch.nn
    kind = type(wrong).__name__
    for layer in (nn.LSTM(2, 3), nn.BatchNorm1d(2), nn.Sequential(nn.Flatten())):
        if hooked:
            layer.register_forward_hook(lambda *_: None)
        with pytest.raises(TypeError, match=f"must be a tensor, not {kind}"):
            layer(wrong)
    with pytest.raises(TypeError, match=f"Scaled: 'x' must be a tensor, not {kind}"):
        Scaled()(wrong, None)


def test_what_a_layer_does_not_say_is_a_tensor_is_not_called_one() -> None:
    with pytest.raises(AttributeError, match="'object' object has no attribute 'scale'"):
        Scaled()(ONES, object())
