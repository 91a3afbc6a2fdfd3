"""Where a NaN comes from."""

from __future__ import annotations

import math

import pytest

import tinytorch
from tinytorch import Tensor, nn
from tinytorch.training.loop import samples_in, shares
from tinytorch.training.nonfinite import blame, first_nonfinite, is_finite


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sqrt()


def model_of_parts() -> nn.Module:
    return nn.Sequential(nn.Identity(), nn.Sequential(nn.Identity(), Root()), nn.Identity())


def test_the_innermost_module_is_named_and_hooks_are_removed() -> None:
    model, x = model_of_parts(), tinytorch.tensor([-1.0])
    assert first_nonfinite(model, lambda: model(x)) == "1.1"
    assert first_nonfinite(model, lambda: model(-x)) is None
    assert first_nonfinite(Root(), lambda: None) is None
    alone = Root()
    assert first_nonfinite(alone, lambda: alone(x)) == ""
    with pytest.raises(KeyError):
        first_nonfinite(model, lambda: dict[str, Tensor]()["none"])
    before = first_nonfinite(model_of_parts(), lambda: model(x))
    assert before is None  # no hook is left on the first model


def test_blame() -> None:
    model, bad = model_of_parts(), tinytorch.tensor([-1.0])
    run = lambda: model(bad)  # noqa: E731
    assert blame(model, (bad, bad), run) == ", first in the result of 1.1 (Root),"
    assert blame(model, (-bad, bad), lambda: model(-bad)) == ""
    nan = tinytorch.tensor([math.nan])
    assert blame(model, {"x": nan}, run) == ", as the batch itself has NaN or infinity in it,"
    alone = Root()
    assert "first in the result of the model (Root)," in blame(alone, [bad], lambda: alone(bad))


def test_finite_and_sizes() -> None:
    one = tinytorch.ones(3, 2)
    assert is_finite([one, (one, "text", 3)]) and is_finite(one > 0)
    assert not is_finite((one, [one * math.inf]))
    assert [samples_in(b) for b in (one, [one], {"x": (one,)}, 3, "abc", one.sum(), [])] == [
        *[3] * 3,
        *[1] * 4,
    ]
    assert shares([[one], [one[:1]]]) == [0.75, 0.25]
