from __future__ import annotations

from tinytorch import nn


def test_a_tree_with_counts():
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.Sequential(nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        nn.Linear(1000, 30),
    )
    net[0].requires_grad_(False)
    assert repr(net).splitlines() == [
        "Sequential(  # 30,070 parameters, 40 frozen",
        "  (0): Conv2d(1, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))"
        "  # 40 parameters, 40 frozen",
        "  (1): Sequential(",
        "    (0): ReLU()",
        "    (1): MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)",
        "  )",
        "  (2): Flatten(start_dim=1, end_dim=-1)",
        "  (3): Linear(in_features=1000, out_features=30, bias=True)  # 30,030 parameters",
        ")",
    ]


def test_shared_parameters_count_once():
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    assert repr(net).splitlines()[0] == "Sequential(  # 4 parameters"


def test_own_text_and_own_parameters():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.by = nn.Parameter([1.0])
            self.inner = nn.ReLU()

        def extra_repr(self):
            return "by one"

    assert repr(Scale()) == "Scale(by one  # 1 parameters\n  (inner): ReLU()\n)"
