"""Recurrent cells: one step of RNN, LSTM and GRU, for loops written by hand."""

from __future__ import annotations

from inspect import getdoc
from typing import Any

from tinytorch.creation import zeros
from tinytorch.errors import ShapeError
from tinytorch.functions.elementwise import tanh
from tinytorch.functions.movement import squeeze, unsqueeze
from tinytorch.nn import functional as F
from tinytorch.nn.factory import parameter_dtype
from tinytorch.nn.functional.recurrent import CELLS, State, lstm_cell_state, steps
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.nn.rnn import check_nonlinearity, reset_recurrent
from tinytorch.tensor import Tensor


class _Cell(Module):
    """One step of a recurrent layer.

    Args:
        input_size, hidden_size: features of the input and of the state.
        bias: False to go without the two biases.
        device, dtype: of the parameters.

    Attributes:
        weight_ih: (gates * hidden_size, input_size)
        weight_hh: (gates * hidden_size, hidden_size)
        bias_ih, bias_hh: (gates * hidden_size,); or None. All are at first uniform over
            +-1 / sqrt(hidden_size).

    Shapes: (n, input_size) and states (n, hidden_size) give states; or all without n.
    """

    mode: str  # one of `CELLS`

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        kind, rows = parameter_dtype(device, dtype), CELLS[self.mode].gates * hidden_size
        self.weight_ih = Parameter(zeros(rows, input_size, dtype=kind))
        self.weight_hh = Parameter(zeros(rows, hidden_size, dtype=kind))
        self.bias_ih = Parameter(zeros(rows, dtype=kind)) if bias else None
        self.bias_hh = Parameter(zeros(rows, dtype=kind)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        reset_recurrent(self, self.hidden_size)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """The next state.

        Args:
            input: (n, input_size) or (input_size,).
            hx: the state; None for zeros. For an LSTM cell a pair (h, c), as the result.

        Raises:
            ShapeError: the shapes do not fit.
        """
        if input.ndim not in (1, 2) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: the input must be (n, {self.input_size}) or "
                f"({self.input_size},), not {input.shape}"
            )
        if input.ndim == 1:
            given = None if hx is None else tuple(unsqueeze(h, 0) for h in self._tuple(hx))
            state = self._step(unsqueeze(input, 0), given)
            return self._result(tuple(squeeze(h, 0) for h in state))
        return self._result(self._step(input, None if hx is None else self._tuple(hx)))

    def _step(self, x: Tensor, state: State | None) -> State:
        shape = (x.shape[0], self.hidden_size)
        if state is None:
            state = (zeros(shape, dtype=x.dtype),) * CELLS[self.mode].states
        if any(h.shape != shape for h in state):
            raise ShapeError(
                f"{type(self).__name__}: the state must be {shape}, not {[h.shape for h in state]}"
            )
        gates = F.linear(x, self.weight_ih, self.bias_ih)
        return self._after(gates, state)

    def _after(self, gates: Tensor, state: State) -> State:
        _, *new = steps(self.mode, gates, state, self.weight_hh, self.bias_hh)
        return tuple(new)

    def _tuple(self, hx: Any) -> State:
        return (hx,) if CELLS[self.mode].states == 1 else tuple(hx)

    def _result(self, states: State) -> Any:
        return states[0] if CELLS[self.mode].states == 1 else states

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(_Cell):
    __doc__ = f"h = tanh(W x + b + U h + c), once.\n{getdoc(_Cell)}"
    mode = "RNN_TANH"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        check_nonlinearity("RNNCell", nonlinearity)
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity, self.mode = nonlinearity, f"RNN_{nonlinearity.upper()}"


class LSTMCell(_Cell):
    __doc__ = f"Long short-term memory, once; its state is (h, c).\n{getdoc(_Cell)}"
    mode = "LSTM"

    def _after(self, gates: Tensor, state: State) -> State:
        o, c = lstm_cell_state(gates, state, self.weight_hh, self.bias_hh)
        return o * tanh(c), c


class GRUCell(_Cell):
    __doc__ = f"A gated recurrent unit, once.\n{getdoc(_Cell)}"
    mode = "GRU"
