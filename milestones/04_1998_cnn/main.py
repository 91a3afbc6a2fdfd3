"""A convolutional network reads handwritten digits.

Y. LeCun, L. Bottou, Y. Bengio and P. Haffner: small filters, the same everywhere in the image, that
are learnt and not designed. Here on digits of 8x8 pixels, with batch normalization, which came in
2015.
"""

import sys
from pathlib import Path

import numpy as np
from network import EPOCHS, Training, numpy_loss

from tinytorch.data import datasets

sys.path.append(str(Path(__file__).resolve().parents[1]))
from gates import SEED, Milestone, accuracy, values

FILTERS = ("conv1.weight", "conv2.weight")
STEP = 1e-6  # of the difference quotient


def main() -> None:
    milestone = Milestone("1998: the convolutional network", usual_seconds=3, backend="numpy")
    training = Training()
    before = values(training.model)
    check_first_batch(milestone, training)

    for epoch in milestone.epochs(EPOCHS):
        loss = training.epoch()
        milestone.say(f"epoch {epoch + 1:2}: loss {loss:.4f}")

    right = accuracy(training.model, *datasets.digits("test").tensors)
    milestone.moved(before, training.model)
    milestone.at_least("test accuracy", right, 0.97)
    milestone.finish(loss=loss, test_accuracy=right)


def check_first_batch(milestone: Milestone, training: Training) -> None:
    """Gates: the loss is NumPy's, and every filter has a gradient, which is the loss's slope."""
    images, labels = training.loader.dataset[: training.loader.batch_size]
    loss = training.loss_function(training.model(images), labels)
    loss.backward()
    parameters = values(training.model)
    expected = numpy_loss(parameters, images.numpy(), labels.numpy())
    milestone.agree("loss equals NumPy's", loss.item(), expected, 1e-4)

    gradients = dict(training.model.named_parameters())
    for name in FILTERS:
        gradient = gradients[name].grad.numpy()
        weakest = float(np.abs(gradient).max(axis=(1, 2, 3)).min())
        milestone.gate(f"each filter of {name} has a gradient", weakest > 0, f"{weakest:.2g}")
        direction = np.random.default_rng(SEED).standard_normal(gradient.shape)
        ahead, behind = (
            numpy_loss(
                {**parameters, name: parameters[name] + sign * STEP * direction},
                images.numpy(),
                labels.numpy(),
            )
            for sign in (1, -1)
        )
        slope = (ahead - behind) / (2 * STEP)
        milestone.agree(f"gradient of {name}", float((gradient * direction).sum()), slope, 1e-3)
    training.optimizer.zero_grad()


if __name__ == "__main__":
    main()
