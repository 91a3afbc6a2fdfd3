"""torch.compile of modules with recurrent layers, which stay whole, and the report of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tinytorch.fx import dynamo
from tinytorch.fx.dynamo import last_report

NUMPY = {"backend": "numpy", "mode": "python"}  # needs no kernels to be compiled


@pytest.fixture(autouse=True)
def _fresh_dynamo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dynamo, "_reports", [])
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Tagger(nn.Module):
    """Words, a recurrent layer, a class for each word."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 6)
        self.rnn = kind(6, 8, batch_first=True, **options)
        self.norm = nn.LayerNorm(self.rnn.hidden_size * (2 if self.rnn.bidirectional else 1))
        self.head = nn.LazyLinear(3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.norm(self.rnn(self.words(ids).tanh())[0]).relu())


def gradients(model: nn.Module, run: Any, ids: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss = run(ids).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options", "name"),
    [(nn.LSTM, {"num_layers": 2}, "lstm"), (nn.GRU, {"bidirectional": True}, "gru"),
     (nn.RNN, {"nonlinearity": "relu"}, "rnn_relu")],
)  # fmt: skip
def test_what_is_around_a_recurrent_layer_is_compiled(
    kind: type[nn.RNNBase], options: dict[str, Any], name: str
) -> None:
    ids = torch.randint(0, 10, (3, 5))
    model = Tagger(kind, **options)
    model(ids)
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(model, backend="tinytorch", options=NUMPY)
        found, expected = gradients(model, compiled, ids), gradients(model, model, ids)
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs)
        report = last_report()
        assert [g.kind for g in report.graphs] == [
            "recurrent layers", "forward", "forward", "backward", "backward"
        ]  # fmt: skip
        assert all(g.parts == 1 and g.compiled > 1 and not g.fallbacks for g in report.graphs[1:])
        assert f"PyTorch runs 1 x torch.{name}: recurrent layers stay whole" in str(report)
        other = torch.randint(0, 10, (4, 7))  # sizes are open then, or the parts are made anew
        for mine, theirs in zip(
            gradients(model, compiled, other), gradients(model, model, other), strict=True
        ):
            torch.testing.assert_close(mine, theirs)
        with torch.no_grad():
            torch.testing.assert_close(compiled(ids), model(ids))
        assert {g.kind for g in last_report().graphs} == {"recurrent layers", "inference"}


def test_two_layers_and_a_loss_between() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LSTM(4, 4), nn.GRU(4, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y, (h, _) = self.first(x * 2)
            return self.second(y.sigmoid() + x)[0].exp(), h

    model, x = Twice(), torch.randn(5, 2, 4)
    twin = copy.deepcopy(model)
    with torch._dynamo.config.patch(allow_rnn=True):
        found = torch.compile(model, backend="tinytorch", options=NUMPY)(x)
    for a, b in zip(found, twin(x), strict=True):
        torch.testing.assert_close(a, b)
    assert list(last_report().graphs[0].fallbacks) == ["torch.lstm", "torch.gru"]


def test_the_report_says_what_dynamo_left_to_python() -> None:
    ids = torch.randint(0, 10, (3, 5))
    model = Tagger(nn.LSTM)
    model(ids)
    compiled = torch.compile(model, backend="tinytorch", options=NUMPY)
    assert compiled(ids).equal(model(ids))
    with pytest.raises(LookupError, match=r"does not support RNN.*\n  fix: .*allow_rnn = True"):
        last_report()
    torch.compile(lambda x: x + 1, backend="tinytorch", options=NUMPY)(torch.ones(2))
    assert "Dynamo has left code to Python, 1 x: Attempted to wrap RNN" in str(last_report())


def test_the_report_names_a_graph_break() -> None:
    def broken(x: Tensor) -> Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    torch.compile(broken, backend="tinytorch", options=NUMPY)(torch.ones(2))
    report = last_report()
    assert sum(report.breaks.values()) == 1 and "Dynamo has left code to Python, 1 x" in str(report)
