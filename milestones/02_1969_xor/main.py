"""XOR: what one layer cannot do, and a hidden layer can.

M. Minsky and S. Papert showed which functions no single layer computes, however it is trained. The
smallest is "one or the other, not both".
"""

import math
import sys
from pathlib import Path

import numpy as np

import tinytorch
from tinytorch import nn, optim

sys.path.append(str(Path(__file__).resolve().parents[1]))
from gates import Milestone, values

POINTS = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
XOR = [[0.0], [1.0], [1.0], [0.0]]
STEPS = 200


def train(model: nn.Module, steps: range) -> list[tuple[float, float]]:
    """Loss and accuracy of each step; a step sees all points, so that it is an epoch."""
    x, y = tinytorch.tensor(POINTS), tinytorch.tensor(XOR)
    loss_function = nn.BCEWithLogitsLoss()
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    history = []
    for _ in steps:
        scores = model(x)
        loss = loss_function(scores, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right = (scores.detach().numpy() > 0) == (y.numpy() > 0)
        history.append((loss.item(), float(right.mean())))
    return history


def numpy_loss(parameters: dict[str, np.ndarray]) -> float:
    """The loss of the network with a hidden layer, by the formulas, in float64."""
    x, y = np.array(POINTS), np.array(XOR)
    hidden = np.tanh(x @ parameters["0.weight"].T + parameters["0.bias"])
    p = 1 / (1 + np.exp(-(hidden @ parameters["2.weight"].T + parameters["2.bias"])))
    return float(-np.mean(y * np.log(p) + (1 - y) * np.log(1 - p)))


def main() -> None:
    milestone = Milestone("1969: XOR", usual_seconds=1, backend="naive")

    linear = train(nn.Linear(2, 1), milestone.epochs(STEPS))
    least_loss, most_right = min(loss for loss, _ in linear), max(right for _, right in linear)
    milestone.say(f"one layer:      loss {linear[-1][0]:.4f}, at best {most_right:.0%} right")

    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    before = values(model)
    hidden = train(model, milestone.epochs(STEPS))
    milestone.say(f"a hidden layer: loss {hidden[-1][0]:.4f}, {hidden[-1][1]:.0%} right")

    # The margins of a linear model on the four points add up to 0, whatever its weights, so by
    # Jensen's inequality the mean of log(1 + exp(-margin)) is never below log 2.
    milestone.gate("one layer gets at most 3 of 4", most_right <= 0.75, f"at best {most_right:.0%}")
    milestone.gate(
        "one layer never beats log 2", least_loss >= math.log(2) - 1e-6, f"{least_loss:.7f}"
    )
    milestone.agree("one layer comes to its optimum", linear[-1][0], math.log(2), 1e-2)
    milestone.agree("loss equals NumPy's", hidden[0][0], numpy_loss(before), 1e-5)
    milestone.moved(before, model)
    milestone.at_least("a hidden layer solves it", hidden[-1][1], 1.0)
    milestone.finish(linear_loss=linear[-1][0], hidden_loss=hidden[-1][0])


if __name__ == "__main__":
    main()
