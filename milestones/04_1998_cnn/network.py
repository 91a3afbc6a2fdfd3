"""The convolutional network of this milestone, how it is trained, and its loss in plain NumPy."""

import sys
from pathlib import Path

import numpy as np

import tinytorch
from tinytorch import nn, optim
from tinytorch.data import DataLoader, datasets
from tinytorch.optim.lr_scheduler import CosineAnnealingLR

sys.path.append(str(Path(__file__).resolve().parents[1]))
from gates import SEED, log_likelihood_loss

EPOCHS = 10
BATCH = 32


class ConvNet(nn.Module):
    """Two layers of 3x3 filters, one of pooling, one linear: images (n, 1, 8, 8) -> (n, 10)."""

    def __init__(self) -> None:
        super().__init__()
        # no bias: the normalization would subtract it again
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(16)
        self.pool = nn.MaxPool2d(2)
        self.out = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x: tinytorch.Tensor) -> tinytorch.Tensor:
        x = self.norm1(self.conv1(x)).relu()
        x = self.norm2(self.conv2(x)).relu()
        return self.out(self.pool(x).flatten(1))


class Training:
    """Network, data and optimizer from one seed: on every backend the same numbers."""

    def __init__(self) -> None:
        tinytorch.manual_seed(SEED)
        train = datasets.digits("train")
        self.loader = DataLoader(train, BATCH, shuffle=True, drop_last=True, generator=SEED)
        self.model = ConvNet()
        self.loss_function = nn.CrossEntropyLoss()
        self.optimizer = optim.Adam(self.model.parameters(), lr=0.01)
        self.schedule = CosineAnnealingLR(self.optimizer, T_max=EPOCHS * len(self.loader))

    def step(self, images: tinytorch.Tensor, labels: tinytorch.Tensor) -> float:
        """One step down the gradient; returns the loss before it."""
        loss = self.loss_function(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.item()

    def epoch(self) -> float:
        """One pass over the training images; returns the mean loss."""
        return float(np.mean([self.step(images, labels) for images, labels in self.loader]))


def numpy_loss(parameters, images, labels) -> float:
    """The loss of `ConvNet` in training mode, by the formulas, in float64."""
    p = parameters
    x = convolved(images.astype(np.float64), p["conv1.weight"])
    x = np.maximum(normalized(x, p["norm1.weight"], p["norm1.bias"]), 0)
    x = convolved(x, p["conv2.weight"])
    x = np.maximum(normalized(x, p["norm2.weight"], p["norm2.bias"]), 0)
    n, channels, height, width = x.shape
    x = x.reshape(n, channels, height // 2, 2, width // 2, 2).max(axis=(3, 5))
    return log_likelihood_loss(x.reshape(n, -1) @ p["out.weight"].T + p["out.bias"], labels)


def convolved(x, weight):
    """Each 3x3 filter shifted over the image: a sum over its nine taps."""
    height, width = x.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sum(
        np.einsum("nchw,oc->nohw", padded[:, :, i : i + height, j : j + width], weight[:, :, i, j])
        for i in range(3)
        for j in range(3)
    )


def normalized(x, weight, bias, eps=1e-5):
    """Batch normalization with the statistics of the batch."""
    centred = x - x.mean(axis=(0, 2, 3), keepdims=True)
    scale = weight[:, None, None] / np.sqrt((centred**2).mean(axis=(0, 2, 3), keepdims=True) + eps)
    return centred * scale + bias[:, None, None]
