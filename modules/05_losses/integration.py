"""What the fifth module's losses do inside the package."""

import math

import tinytorch
from tinytorch import nn, ops
from tinytorch.dispatch import apply
from tinytorch.errors import ShapeError
from tinytorch.nn import functional as F
from tito.checks import close, equal, raises


def test_losses_become_one_number() -> None:
    """every loss knows its reductions, and refuses shapes that would broadcast"""
    x, target = tinytorch.tensor([[1.0, 4.0]]), tinytorch.tensor([[0.0, 1.0]])
    close(F.mse_loss(x, target).item(), 5.0)
    close(nn.MSELoss("sum")(x, target).item(), 10.0)
    close(nn.L1Loss("none")(x, target).tolist(), [[1.0, 3.0]])
    close(F.mse_loss(x, target, weight=tinytorch.tensor([3.0, 1.0])).item(), 3.0)
    raises(ShapeError, F.l1_loss, x, target[0])
    raises(ValueError, nn.MSELoss, "average")


def test_scores_of_any_size_have_a_loss() -> None:
    """cross entropy and logsumexp are finite where exp is not"""
    x = tinytorch.tensor([[0.0, 1000.0], [math.log(3.0), 0.0]], requires_grad=True)
    close(x.detach().logsumexp(1).tolist(), [1000.0, math.log(4)])
    loss = F.cross_entropy(x, tinytorch.tensor([0, 0]))
    close(loss.item(), (1000 + math.log(4 / 3)) / 2)
    loss.backward()
    close(x.grad.tolist(), [[-0.5, 0.5], [-0.125, 0.125]])
    one, target = tinytorch.tensor(1.0), tinytorch.tensor([0, 0])
    got = apply(ops.cross_entropy_backward, one, x.detach(), target)
    close(got.tolist(), [[-0.5, 0.5], [-0.125, 0.125]])


def test_some_targets_count_more_than_others() -> None:
    """ignored labels, weights of classes and label smoothing follow their formulas"""
    x = tinytorch.tensor([[0.0, math.log(3.0)], [0.0, 0.0], [5.0, 1.0]])
    target, weight = tinytorch.tensor([1, 0, -100]), tinytorch.tensor([3.0, 1.0])
    close(F.cross_entropy(x, target).item(), (math.log(4 / 3) + math.log(2)) / 2)
    weighted = (math.log(4 / 3) + 3 * math.log(2)) / 4
    close(F.cross_entropy(x, target, weight).item(), weighted)
    close(F.nll_loss(x.log_softmax(1), target, weight).item(), weighted)
    soft = tinytorch.tensor([[0.0, 1.0]])
    smooth = F.cross_entropy(x[:1], soft, label_smoothing=0.2).item()
    close(smooth, 0.9 * math.log(4 / 3) + 0.1 * math.log(4))


def test_yes_or_no() -> None:
    """binary cross entropy of scores is exact for scores of any size"""
    x, target = tinytorch.tensor([0.0, 1000.0, 1000.0]), tinytorch.tensor([1.0, 1.0, 0.0])
    loss = F.binary_cross_entropy_with_logits(x, target, reduction="none")
    close(loss.tolist(), [math.log(2), 0.0, 1000.0])
    equal(nn.BCEWithLogitsLoss(reduction="sum")(x, target).shape, ())
