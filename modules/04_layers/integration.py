"""What the fourth module's parts do inside the package."""

import numpy as np

import tinytorch
from tinytorch import nn
from tito.checks import close, equal


def test_a_network_is_put_together() -> None:
    """a network of your layers answers as the same formula in NumPy"""
    tinytorch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    x = np.linspace(-1, 1, 24).reshape(4, 2, 3).astype(np.float32)
    p = {name: np.array(p.tolist(), np.float32) for name, p in net.named_parameters()}
    hidden = np.maximum(x.reshape(4, 6) @ p["1.weight"].T + p["1.bias"], 0)
    expected = hidden @ p["3.weight"].T + p["3.bias"]
    close(net(tinytorch.tensor(x)).tolist(), expected.tolist())


def test_everything_in_it_is_found() -> None:
    """parameters have their dotted names, and eval() reaches every part"""
    net = nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 1)))
    names = sorted(name for name, _ in net.named_parameters())
    equal(names, ["0.bias", "0.weight", "1.1.bias", "1.1.weight"])
    equal([module.training for module in net.eval().modules()], [False] * 5)
    equal(repr(net[0]).split("  #")[0], "Linear(in_features=3, out_features=2, bias=True)")


def test_weights_start_at_the_right_size() -> None:
    """a signal keeps its size through ten layers that kaiming_normal_ has drawn"""
    tinytorch.manual_seed(1)
    h = tinytorch.randn(16, 64)
    for _ in range(10):
        h = (h @ nn.init.kaiming_normal_(tinytorch.zeros(64, 64), nonlinearity="relu").T).relu()
    close(h.square().mean().item(), 1.0, rtol=0.9)
    w = nn.init.xavier_uniform_(tinytorch.zeros(30, 20))
    close(w.std().item(), (2 / 50) ** 0.5, rtol=0.1)


def test_dropout_keeps_the_mean() -> None:
    """dropout drops in training and does nothing in evaluation"""
    tinytorch.manual_seed(2)
    layer, x = nn.Dropout(0.25), tinytorch.ones(50, 40)
    close(layer(x).mean().item(), 1.0, rtol=0.1)
    equal(layer.eval()(x) is x, True)
