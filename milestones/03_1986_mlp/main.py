"""Back-propagation trains a hidden layer on real handwritten digits.

D. Rumelhart, G. Hinton and R. Williams: the error at the output, sent back through the weights,
says how each hidden unit should change, and hidden units come to stand for useful features.
"""

import sys
from pathlib import Path

import numpy as np

from tinytorch import nn, optim
from tinytorch.data import DataLoader, datasets

sys.path.append(str(Path(__file__).resolve().parents[1]))
from gates import SEED, Milestone, accuracy, log_likelihood_loss, values

EPOCHS = 8


def back_propagation(parameters, x, labels):
    """Loss and gradients of the network, derived by hand, in float64."""
    w1, b1, w2, b2 = (parameters[n] for n in ("0.weight", "0.bias", "2.weight", "2.bias"))
    hidden = np.tanh(x @ w1.T + b1)
    scores = hidden @ w2.T + b2
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    error = odds / odds.sum(axis=1, keepdims=True)
    error[np.arange(len(x)), labels] -= 1
    error /= len(x)
    hidden_error = (error @ w2) * (1 - hidden**2)
    gradients = {
        "0.weight": hidden_error.T @ x,
        "0.bias": hidden_error.sum(axis=0),
        "2.weight": error.T @ hidden,
        "2.bias": error.sum(axis=0),
    }
    return log_likelihood_loss(scores, labels), gradients


def main() -> None:
    milestone = Milestone("1986: back-propagation", usual_seconds=3, backend="naive")
    train, test = datasets.digits("train", flatten=True), datasets.digits("test", flatten=True)
    loader = DataLoader(train, batch_size=32, shuffle=True, generator=SEED)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    loss_function = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    before = values(model)

    for epoch in milestone.epochs(EPOCHS):
        losses = []
        for images, labels in loader:
            loss = loss_function(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            if epoch == 0 and not losses:
                check_gradients(milestone, model, loss.item(), images.numpy(), labels.numpy())
            optimizer.step()
            losses.append(loss.item())
        milestone.say(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}")

    milestone.moved(before, model)
    milestone.at_least("test accuracy", accuracy(model, *test.tensors), 0.93)
    milestone.finish(loss=float(np.mean(losses)), test_accuracy=accuracy(model, *test.tensors))


def check_gradients(milestone, model, loss, x, labels) -> None:
    """Gates: the first loss and each gradient are those of the calculation by hand."""
    expected_loss, expected = back_propagation(values(model), x.astype(np.float64), labels)
    milestone.agree("loss equals NumPy's", loss, expected_loss, 1e-5)
    for name, parameter in model.named_parameters():
        norm = np.linalg.norm(expected[name])
        apart = float(np.linalg.norm(parameter.grad.numpy() - expected[name]) / norm)
        milestone.gate(f"gradient of {name}", apart <= 1e-4, f"{apart:.1e} from that by hand")


if __name__ == "__main__":
    main()
