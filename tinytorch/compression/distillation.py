"""Distillation: a small model learns from a large one what it thinks of every class.

A label says which class is right. A trained model also says which wrong ones are nearly right, and
a temperature makes that visible.

Source: G. Hinton, O. Vinyals, J. Dean, "Distilling the knowledge in a neural network", 2015.
"""

from __future__ import annotations

import math
from typing import Any

from tinytorch.autograd import no_grad
from tinytorch.errors import ShapeError
from tinytorch.functions.reductions import log_softmax
from tinytorch.nn import Module
from tinytorch.nn.functional import cross_entropy, kl_div
from tinytorch.optim import Optimizer
from tinytorch.tensor import Tensor
from tinytorch.training.trainer import Trainer


def soft_loss(logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """T^2 KL(softmax(teacher / T), softmax(logits / T)), the mean over the samples.

    Dividing by T makes the gradient smaller by T^2, which the factor undoes, so that this loss
    keeps its weight beside another one when T changes.

    Args:
        logits, teacher_logits: (n, classes). No gradient goes to the teacher's.
        temperature: T, above 0; a larger one lets small probabilities count.

    Returns:
        A 0-d tensor.

    Raises:
        ValueError: the temperature is not above 0 and finite.
        ShapeError: the logits differ in shape, or are not (n, classes).

    Source: G. Hinton, O. Vinyals, J. Dean, "Distilling the knowledge in a neural network", 2015,
    section 2.
    """
    if not 0 < temperature < math.inf:
        raise ValueError(f"the temperature must be above 0 and finite, got {temperature}")
    if logits.shape != teacher_logits.shape or logits.ndim != 2:
        raise ShapeError(
            f"student and teacher must score the same classes, (n, classes): {logits.shape} and "
            f"{teacher_logits.shape}"
        )
    ours = log_softmax(logits / temperature, 1)
    theirs = log_softmax(teacher_logits.detach() / temperature, 1)
    return kl_div(ours, theirs, "batchmean", log_target=True) * temperature**2


def distillation_loss(
    logits: Tensor,
    teacher_logits: Tensor,
    labels: Tensor,
    *,
    temperature: float = 4.0,
    alpha: float = 0.9,
) -> Tensor:
    """alpha soft_loss(logits, teacher_logits, T) + (1 - alpha) cross_entropy(logits, labels).

    Args:
        logits, teacher_logits, temperature: as for `soft_loss`.
        labels: (n,) int64.
        alpha: weight of the teacher's part, from 0 to 1.

    Returns:
        A 0-d tensor, the mean over the samples.

    Raises:
        ValueError, ShapeError: temperature or alpha is out of range; as for `soft_loss`.

    >>> import tinytorch
    >>> x, y = tinytorch.tensor([[2.0, 1.0]]), tinytorch.tensor([0])
    >>> distillation_loss(x, x, y, alpha=1.0)
    tensor(0.)
    """
    _check(alpha)
    soft = soft_loss(logits, teacher_logits, temperature)
    return soft * alpha + cross_entropy(logits, labels) * (1 - alpha)


def _check(alpha: float) -> None:
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is the weight of the teacher's part, from 0 to 1, not {alpha}")


def distillation_step(
    student: Module,
    teacher: Module,
    optimizer: Optimizer,
    x: Tensor,
    labels: Tensor,
    *,
    temperature: float = 4.0,
    alpha: float = 0.9,
) -> Tensor:
    """One update of the student by `distillation_loss`; the loss before it.

    The teacher answers in the mode that it is in, which should be that of evaluation.
    """
    with no_grad():
        answers = teacher(x)
    optimizer.zero_grad()
    loss = distillation_loss(student(x), answers, labels, temperature=temperature, alpha=alpha)
    loss.backward()
    optimizer.step()
    return loss.detach()


class Distiller(Trainer):
    """A `Trainer` whose loss is `distillation_loss`, by the answers of a teacher.

        Distiller(student, nn.CrossEntropyLoss(), optimizer, teacher=large, temperature=4)

    While it evaluates, the loss is the one that is given, so `val_loss` can be compared with that
    of a model that had no teacher.

    Args:
        loss: of labels alone: its part has the weight 1 - alpha.
        teacher: a model of the same classes; it is put into evaluation mode and not trained.
        temperature, alpha: as for `distillation_loss`.
        others: of `Trainer`.
    """

    def __init__(
        self,
        *arguments: Any,
        teacher: Module,
        temperature: float = 4.0,
        alpha: float = 0.9,
        **others: Any,
    ) -> None:
        super().__init__(*arguments, **others)
        _check(alpha)
        self.teacher = teacher.eval()
        self.temperature, self.alpha = temperature, alpha
        self._answers: Tensor | None = None

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        """(outputs, targets) of a pair (inputs, targets); asks the teacher too, in training."""
        outputs, targets = super().forward(batch)
        if self.model.training:
            with no_grad():
                self._answers = self.teacher(batch[0])
        return outputs, targets

    def loss_of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch: with the teacher's part in training, without in evaluation."""
        hard = super().loss_of(outputs, targets)
        if not self.model.training or self._answers is None:
            return hard
        soft = soft_loss(outputs, self._answers, self.temperature)
        self._answers = None
        return soft * self.alpha + hard * (1 - self.alpha)
