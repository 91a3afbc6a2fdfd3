"""What the ninth module's parts do inside the package."""

import numpy as np

import tinytorch
from tinytorch import nn, optim
from tinytorch.backends import reference_conv
from tinytorch.errors import ShapeError
from tinytorch.nn import functional as F
from tito.checks import check, close, equal, raises

BACKENDS = ("naive", "numpy")


def numbers(*shape: int) -> tinytorch.Tensor:
    """Small whole numbers in a random order."""
    values = np.random.default_rng(9).integers(-3, 4, shape).astype(np.float32)
    return tinytorch.tensor(values)


def test_convolution_is_its_definition() -> None:
    """conv2d is the sum over its window, by loops and by one product, with strides and groups"""
    x, w, b = numbers(2, 4, 6, 7), numbers(6, 2, 3, 2), numbers(6)
    wide = np.pad(x.numpy(), ((0, 0), (0, 0), (1, 1), (0, 0)))
    exact = np.zeros((2, 6, 3, 5), np.float32) + b.numpy()[:, None, None]
    for o, c, i, j in np.ndindex(6, 2, 3, 2):
        seen = wide[:, 2 * (o // 3) + c, i : i + 5 : 2, 2 * j : 2 * j + 5]
        exact[:, o] += w.numpy()[o, c, i, j] * seen
    for backend in BACKENDS:
        with tinytorch.using_backend(backend):
            out = F.conv2d(x, w, b, stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2)
        close(out.numpy(), exact, hint=f"on {backend}")
    raises(ShapeError, F.conv2d, numbers(1, 1, 3, 3), numbers(1, 1, 4, 4), match="(3, 3)")


def test_gradients_are_adjoints() -> None:
    """the gradients of a convolution, and folding windows, pass the test for adjoints"""
    x, w, g = numbers(2, 3, 7, 6), numbers(4, 3, 3, 3), numbers(2, 4, 4, 3)
    for backend in BACKENDS:
        with tinytorch.using_backend(backend):
            leaves = [t.clone().requires_grad_() for t in (x, w)]
            out = F.conv2d(*leaves, stride=2, padding=1)
            out.backward(g)
            for leaf in leaves:
                close((leaf.grad * leaf.detach()).sum().item(), (out.detach() * g).sum().item())
    kernel, stride, dilation = (2, 3), (3, 1), (2, 1)
    windows = reference_conv.windows2d(x.numpy(), kernel, stride, dilation)
    other = np.arange(windows.size, dtype=np.float32).reshape(windows.shape) % 5
    folded = reference_conv.fold2d(other, (7, 6), stride, dilation)
    close(float((windows * other).sum()), float((x.numpy() * folded).sum()))


def test_pooling_takes_the_largest() -> None:
    """max pooling takes the largest of each window, and its gradient goes to the first of them"""
    x = tinytorch.tensor([[[[1.0, 3.0, 3.0], [2.0, 0.0, 3.0], [9.0, 4.0, 5.0]]]])
    for backend in BACKENDS:
        with tinytorch.using_backend(backend):
            leaf = x.clone().requires_grad_()
            out = F.max_pool2d(leaf, 2, stride=1)
            out.backward(tinytorch.tensor([[[[1.0, 10.0], [100.0, 1000.0]]]]))
        equal(out.detach().tolist(), [[[[3.0, 3.0], [9.0, 5.0]]]])
        expected = [[[[0.0, 11.0, 0.0], [0.0, 0.0, 0.0], [100.0, 0.0, 1000.0]]]]
        equal(leaf.grad.tolist(), expected)
    equal(F.avg_pool2d(x, 3, stride=2, padding=1).shape, (1, 1, 2, 2))
    equal(F.max_pool2d(x, 3, stride=2, padding=1).tolist(), [[[[3.0, 3.0], [9.0, 5.0]]]])


def test_batch_norm_knows_both_modes() -> None:
    """batch normalization uses the batch in training, and what it has seen in eval mode"""
    layer = nn.BatchNorm2d(2, momentum=0.5, eps=0.0)
    x = tinytorch.tensor([[[[0.0, 2.0]], [[10.0, 10.0]]], [[[0.0, 2.0]], [[20.0, 20.0]]]])
    close(layer(x).detach().tolist()[0], [[[-1.0, 1.0]], [[-1.0, -1.0]]])
    close(layer.running_mean.tolist(), [0.5, 7.5])
    close(layer.running_var.tolist(), [0.5 + 2 / 3, 0.5 + 50 / 3])
    layer.eval()
    layer.running_mean.zero_()
    layer.running_var.fill_(4.0)
    close(layer(x).detach().tolist()[1], [[[0.0, 1.0]], [[10.0, 10.0]]])


def test_a_convolutional_network_learns() -> None:
    """a small convolutional network tells strokes that lie from strokes that stand, anywhere"""
    rng = np.random.default_rng(1)
    pictures, labels = np.zeros((24, 1, 6, 6), np.float32), np.arange(24) % 2
    for picture, label in zip(pictures[:, 0], labels, strict=True):
        row, column = rng.integers(0, 4, 2)
        (picture[row] if label else picture[:, row])[column : column + 3] = 1.0
    images, targets = tinytorch.tensor(pictures), tinytorch.tensor(labels)
    tinytorch.manual_seed(3)
    with tinytorch.using_backend("numpy"):
        net = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
            nn.MaxPool2d(6), nn.Flatten(), nn.Linear(4, 2),
        )  # fmt: skip
        optimizer = optim.Adam(net.parameters(), lr=0.05)
        for _ in range(40):
            loss = F.cross_entropy(net(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        right = (net(images).argmax(1) == targets).float().mean().item()
    check(right > 0.9, f"it reads {right:.0%} of the strokes in eval mode")
