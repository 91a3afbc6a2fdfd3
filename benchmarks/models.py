"""Training steps of small models as courses have them, eager and compiled, beside PyTorch's eager.

A step is forward, loss, backward, clipping of gradients and the optimizer's update. Ratios are ours
/ PyTorch: 2.00 says that we take twice as long. One thread, CPU time, interleaved samples. Both
begin with the same parameters, and the losses of the first steps must agree.
"""

import thread_count  # noqa: F401, I001 - before NumPy

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from beside_torch import run
from runner import Case, Result

import tinytorch
from tinytorch.bench import format_seconds, format_table
from tinytorch.replay.function import HOT

Step = Callable[[], Any]
RNG = np.random.default_rng(0)
WARM = 2 * HOT
COMPARED = 5  # steps
SAME = 1e-4  # of the losses, which grow apart by rounding


def perceptron(lib: Any) -> Any:
    nn = lib.nn
    return nn.Sequential(
        nn.Linear(784, 512), nn.BatchNorm1d(512), nn.ReLU(),
        nn.Linear(512, 256), nn.BatchNorm1d(256), nn.GELU(), nn.Linear(256, 10),
    )  # fmt: skip


def autoencoder(lib: Any) -> Any:
    nn = lib.nn
    return nn.Sequential(
        nn.Linear(784, 256), nn.LeakyReLU(0.2), nn.Linear(256, 32), nn.Tanh(),
        nn.Linear(32, 256), nn.ELU(), nn.Linear(256, 784), nn.Sigmoid(),
    )  # fmt: skip


def convolutions(lib: Any) -> Any:
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 64, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def mobile(lib: Any) -> Any:
    nn = lib.nn

    def separable(channels: int, out: int) -> list[Any]:
        depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        pointwise = nn.Conv2d(channels, out, 1, bias=False)
        return [
            depthwise, nn.BatchNorm2d(channels), nn.ReLU6(),
            pointwise, nn.BatchNorm2d(out), nn.ReLU6(),
        ]  # fmt: skip

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), *separable(16, 32), *separable(32, 64),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def residual(lib: Any) -> Any:
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            self.norm1 = nn.BatchNorm2d(channels)
            self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            self.norm2 = nn.BatchNorm2d(channels)

        def forward(self, x: Any) -> Any:
            y = lib.relu(self.norm1(self.conv1(x)))
            return lib.relu(x + self.norm2(self.conv2(y)))

    blocks = [Block(32) for _ in range(3)]
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 10),
    )  # fmt: skip


def unet(lib: Any) -> Any:
    nn = lib.nn

    def double(channels: int, out: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(channels, out, 3, padding=1), nn.GroupNorm(4, out), nn.SiLU(),
            nn.Conv2d(out, out, 3, padding=1), nn.GroupNorm(4, out), nn.SiLU(),
        )  # fmt: skip

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down, self.middle = double(1, 16), double(16, 32)
            self.up, self.out = nn.ConvTranspose2d(32, 16, 2, stride=2), double(32, 16)
            self.head = nn.Conv2d(16, 10, 1)

        def forward(self, x: Any) -> Any:
            skip = self.down(x)
            below = self.middle(nn.functional.avg_pool2d(skip, 2))
            return self.head(self.out(lib.cat([skip, self.up(below)], 1)))

    return Net()


def text_convolutions(lib: Any) -> Any:
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(2000, 64)
            self.convs = nn.ModuleList([nn.Conv1d(64, 64, width) for width in (3, 4, 5)])
            self.head = nn.Linear(3 * 64, 2)

        def forward(self, words: Any) -> Any:
            x = self.embedding(words).transpose(1, 2)
            return self.head(lib.cat([lib.relu(conv(x)).max(2)[0] for conv in self.convs], 1))

    return Net()


def recurrent(lib: Any) -> Any:
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.GRU(16, 64, batch_first=True, bidirectional=True)
            self.head = nn.Linear(128, 5)

        def forward(self, x: Any) -> Any:
            return self.head(self.layer(x)[0].mean(1))

    return Net()


def language(lib: Any) -> Any:
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(1000, 64)
            self.layer = nn.LSTM(64, 128, 2, batch_first=True)
            self.head = nn.Linear(128, 1000)

        def forward(self, words: Any) -> Any:
            return self.head(self.layer(self.embedding(words))[0]).flatten(0, 1)

    return Net()


def transformer(lib: Any) -> Any:
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.places = nn.Embedding(1000, 128), nn.Embedding(64, 128)
            layer = nn.TransformerEncoderLayer(
                128, 4, 512, dropout=0.0, batch_first=True, activation="gelu"
            )
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(128, 1000)

        def forward(self, words: Any) -> Any:
            length = words.shape[1]
            x = self.embedding(words) + self.places(lib.arange(length))
            mask = nn.Transformer.generate_square_subsequent_mask(length)
            return self.head(self.encoder(x, mask=mask)).flatten(0, 1)

    return Net()


def _reals(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def _whole(most: int, *shape: int) -> Any:
    return RNG.integers(0, most, shape)


@dataclass(frozen=True)
class Training:
    """A model, a batch of inputs and targets, and what trains it."""

    model: Callable[[Any], Any]
    inputs: Any
    target: Any
    optimizer: str
    options: dict[str, float] = field(default_factory=lambda: {"lr": 1e-3})
    loss: str = "cross_entropy"


MOMENTUM = {"lr": 1e-3, "momentum": 0.9}
MODELS = {
    "perceptron": Training(perceptron, _reals(128, 784), _whole(10, 128), "AdamW"),
    "autoencoder": Training(
        autoencoder, _reals(64, 784), RNG.random((64, 784), np.float32), "Adam", loss="mse_loss"
    ),
    "convolutions": Training(convolutions, _reals(32, 3, 32, 32), _whole(10, 32), "Adam"),
    "mobile": Training(mobile, _reals(16, 3, 32, 32), _whole(10, 16), "SGD", MOMENTUM),
    "residual": Training(residual, _reals(16, 3, 32, 32), _whole(10, 16), "SGD", MOMENTUM),
    "unet": Training(unet, _reals(8, 1, 32, 32), _whole(10, 8, 32, 32), "Adam"),
    "text convolutions": Training(
        text_convolutions, _whole(2000, 32, 50), _whole(2, 32), "Adam"
    ),
    "recurrent": Training(recurrent, _reals(16, 50, 16), _whole(5, 16), "RMSprop"),
    "language": Training(language, _whole(1000, 16, 32), _whole(1000, 512), "Adam"),
    "transformer": Training(transformer, _whole(1000, 8, 64), _whole(1000, 512), "AdamW"),
}  # fmt: skip


def step_of(lib: Any, training: Training, state: dict[str, Any]) -> Step:
    """A training step of a model that begins with these parameters; it gives the loss."""
    model = training.model(lib)
    model.load_state_dict({k: lib.from_numpy(np.array(v)) for k, v in state.items()})
    parameters = list(model.parameters())
    optimizer = getattr(lib.optim, training.optimizer)(parameters, **training.options)
    inputs, target = lib.from_numpy(training.inputs), lib.from_numpy(training.target)
    measure_loss = getattr(lib.nn.functional, training.loss)

    def step() -> Any:
        optimizer.zero_grad()
        loss = measure_loss(model(inputs), target)
        loss.backward()
        lib.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss

    return step


def cases(names: Sequence[str]) -> Iterator[Case]:
    """A step of each model, eager and compiled.

    Raises:
        AssertionError: a loss is another than PyTorch's.
    """
    for name in names:
        training = MODELS[name]
        torch.manual_seed(0)
        state = {k: np.array(v.numpy()) for k, v in training.model(torch).state_dict().items()}
        steps = {
            "ours": step_of(tinytorch, training, state),
            "compiled": tinytorch.compile(step_of(tinytorch, training, state)),
            "torch": step_of(torch, training, state),
        }
        losses = {who: [step().item() for _ in range(COMPARED)] for who, step in steps.items()}
        for who in ("ours", "compiled"):
            np.testing.assert_allclose(losses[who], losses["torch"], SAME, err_msg=f"{name}, {who}")
        for step in steps.values():
            for _ in range(WARM):
                step()
        yield Case(name, name, steps)


def report(results: Sequence[Result]) -> None:
    """A row for each model."""
    rows = [
        [r.name, *(format_seconds(r.seconds[who]) for who in ("ours", "compiled", "torch")),
         *(f"{r.seconds[who] / r.seconds['torch']:.2f}" for who in ("ours", "compiled"))]
        for r in results
    ]  # fmt: skip
    print("a training step, ours / PyTorch's eager, CPU time of one thread\n")
    print(
        format_table(
            ["model", "eager", "compiled", "PyTorch", "eager, ratio", "compiled, ratio"], rows
        )
    )


if __name__ == "__main__":
    run(__doc__, MODELS, cases, report)
