"""The perceptron learns to tell zeros from other digits.

F. Rosenblatt's machine had one layer of weights and one rule: where it errs, add the input to the
weights, or subtract it. If a plane separates the classes, it errs only finitely often.
"""

import sys
from pathlib import Path

import numpy as np

import tinytorch
from tinytorch import nn
from tinytorch.data import DataLoader, TensorDataset, datasets

sys.path.append(str(Path(__file__).resolve().parents[1]))
from gates import SEED, Milestone, values

MOST_EPOCHS = 50


def signed(labels: tinytorch.Tensor) -> tinytorch.Tensor:
    """+1 for a zero, -1 for any other digit."""
    return tinytorch.where(labels == 0, 1.0, -1.0)


def learn(model: nn.Linear, image: tinytorch.Tensor, sign: tinytorch.Tensor) -> int:
    """Rosenblatt's rule for one image (1, 64); returns the number of errors, 0 or 1."""
    with tinytorch.no_grad():
        if (sign * model(image)).item() > 0:
            return 0
        model.weight.add_(sign * image)
        model.bias.add_(sign)
        return 1


def mistakes_bound(inputs, signs, weights) -> float:
    """(R / margin)^2: no run of the rule errs more often (A. Novikoff, 1962).

    The margin is the least distance of an input from the plane; 0 is returned if the plane does not
    separate the classes.
    """
    least = (signs * (inputs @ weights)).min()
    radius = np.linalg.norm(inputs, axis=1).max()
    return float((radius * np.linalg.norm(weights) / least) ** 2) if least > 0 else 0.0


def main() -> None:
    milestone = Milestone("1958: the perceptron", usual_seconds=1, backend="naive")
    images, labels = datasets.digits("train", flatten=True).tensors
    loader = DataLoader(
        TensorDataset(images, signed(labels)), batch_size=1, shuffle=True, generator=SEED
    )
    model = nn.Linear(64, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    before = values(model)

    # the same rule in NumPy, on the same images in the same order: input and bias as one vector
    weights = np.zeros(65)
    errors, total = 1, 0
    for epoch in milestone.epochs(MOST_EPOCHS):
        errors = 0
        for image, sign in loader:
            errors += learn(model, image, sign)
            x, t = np.append(image.numpy(), 1.0), sign.item()
            weights += t * x if t * (weights @ x) <= 0 else 0
        total += errors
        milestone.say(f"epoch {epoch + 1:2}: {errors:3} errors")
        if errors == 0:
            break

    ours = np.append(model.weight.detach().numpy(), model.bias.detach().numpy())
    inputs = np.hstack([images.numpy(), np.ones((len(labels.numpy()), 1))])
    bound = mistakes_bound(inputs, signed(labels).numpy(), ours.astype(np.float64))
    test_images, test_labels = datasets.digits("test", flatten=True).tensors
    with tinytorch.no_grad():
        right = model(test_images).squeeze(1) * signed(test_labels) > 0

    milestone.moved(before, model)
    milestone.gate("no errors in the last epoch", errors == 0, f"{errors} of {len(loader)} images")
    milestone.gate(
        "errors within Novikoff's bound", 0 < total <= bound, f"{total} errors, bound {bound:.0f}"
    )
    # pixels are sixteenths, so float32 holds every sum exactly
    apart = float(np.abs(ours - weights).max())
    milestone.gate("weights equal NumPy's", apart == 0, f"{apart:g} apart")
    milestone.at_least("test accuracy", float(right.numpy().mean()), 0.98)
    milestone.finish(errors=total, epochs=epoch + 1, test_accuracy=float(right.numpy().mean()))


if __name__ == "__main__":
    main()
