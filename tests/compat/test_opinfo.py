"""PyTorch's operators on PyTorch's own samples (OpInfo): values, dtypes and first gradients agree.

An operator that does not is in the table below, with the reason; one that does is taken out of it.
"""

from __future__ import annotations

import pytest
import torch

import tinytorch
from tests.compat import opinfo

DRAWS = "it draws other random numbers than PyTorch; tested by their distribution"
RANDOM = (
    *("bernoulli", "multinomial", "normal", "normal.in_place", "normal.number_mean", "rand_like"),
    *("randint", "randint_like", "randn", "randn_like", "nn.functional.alpha_dropout"),
    *("nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d"),
    *("nn.functional.rrelu", "nn.functional.scaled_dot_product_attention"),
)
EXCEPTIONS = {
    **dict.fromkeys(RANDOM, DRAWS),
    "zero_": "the entry writes into a leaf, by a function `zero_` that is a method here",
    "gather": "an empty index of other dimensions than the tensor's is refused",
    "nn.functional.batch_norm": "an input of one dimension is refused",
    "nn.functional.multi_margin_loss": "scores need a dimension of classes",
    "nn.functional.ctc_loss": "PyTorch gives the derivative for the scores before log_softmax",
    "nn.functional.normalize": "norms of negative order are refused",
    "nn.functional.triplet_margin_with_distance_loss": "the sample's distance is PyTorch's own",
    "linalg.matrix_norm": "the nuclear norm needs singular values, which are NumPy's",
    "linalg.matrix_power": "a negative power needs an inverse, which is NumPy's",
    "norm.nuc": "the nuclear norm needs singular values, which are NumPy's",
    "tensordot": "dimensions that are summed must be of one size; PyTorch lets 1 repeat",
}

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _numpy_backend():
    torch.manual_seed(0)
    with tinytorch.using_backend("numpy"):
        yield


@pytest.mark.slow(seconds=100)
def test_operators_agree_on_pytorchs_samples() -> None:
    """All in one test: each takes a hundredth of a second, and a test more than that."""
    wrong = {}
    for name in sorted(opinfo.operators().keys() - EXCEPTIONS.keys()):
        try:
            opinfo.check(name)
        except Exception as error:
            wrong[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in sorted(wrong.items()))


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_an_exception_is_still_one(name: str) -> None:
    assert name in opinfo.operators(), f"PyTorch has no {name}: take it out of EXCEPTIONS"
    with pytest.raises(Exception):  # noqa: B017
        opinfo.check(name)
        pytest.fail(f"{name} agrees with PyTorch now: take it out of EXCEPTIONS")


def test_no_operator_is_lost() -> None:
    assert len(opinfo.operators()) >= 380
