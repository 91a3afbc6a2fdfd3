"""What the third module's functions do inside the package."""

import math

import tinytorch
from tinytorch.nn import functional as F
from tito.checks import check, close


def test_activations_run_over_whole_tensors() -> None:
    """relu and sigmoid run over whole tensors, through your loop"""
    x = tinytorch.tensor([[-1000.0, 0.0], [2.0, 1000.0]])
    close(x.relu().tolist(), [[0.0, 0.0], [2.0, 1000.0]])
    close(x.sigmoid().tolist(), [[0.0, 0.5], [1 / (1 + math.exp(-2)), 1.0]])


def test_smooth_activations_agree_far_out() -> None:
    """leaky_relu, elu, softplus and gelu are all x for a large x"""
    x = tinytorch.tensor([30.0, 1000.0])
    for function in (F.leaky_relu, F.elu, F.softplus, F.gelu):
        close(function(x).tolist(), [30.0, 1000.0])


def test_what_is_made_of_others_holds_far_out() -> None:
    """logsigmoid, mish and celu overflow nowhere"""
    x = tinytorch.tensor([-1000.0, 0.0, 1000.0])
    close(F.logsigmoid(x).tolist(), [-1000.0, -math.log(2), 0.0])
    close(F.mish(x).tolist(), [0.0, 0.0, 1000.0])
    close(F.celu(x, 0.5).tolist(), [-0.5, 0.0, 1000.0])


def test_scores_become_probabilities() -> None:
    """softmax and log_softmax agree, for scores of any size"""
    scores = tinytorch.tensor([[3.0, 1.0, -2.0], [1000.0, 0.0, 999.0]])
    close(scores.softmax(1).sum(1).tolist(), [1.0, 1.0])
    close(scores.log_softmax(1).exp().tolist(), scores.softmax(1).tolist())
    check(scores.log_softmax(1).amin().item() < -999, "log_softmax took the logarithm of 0")
