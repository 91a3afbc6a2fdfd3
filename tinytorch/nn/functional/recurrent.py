"""What RNN, LSTM and GRU do at each position of a sequence.

`gates` is what the input contributes, linear(x, w_ih, b_ih): all positions at once are one product.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tinytorch.functions.elementwise import relu, sigmoid, tanh
from tinytorch.functions.movement import cat, chunk, split
from tinytorch.nn.functional.linear import linear
from tinytorch.replay import keep, replayed
from tinytorch.tensor import Tensor

State = tuple[Tensor, ...]


def _rnn_step(
    activation: Callable[[Tensor], Tensor],
    gates: Tensor,
    state: State,
    w_hh: Tensor,
    b_hh: Tensor | None,
) -> State:
    """h = activation(gates + linear(h, w_hh, b_hh))

    Source: J. Elman, "Finding structure in time", 1990.
    """
    return (activation(gates + linear(state[0], w_hh, b_hh)),)


def _lstm_step(
    gates: Tensor, state: State, w_hh: Tensor, b_hh: Tensor | None, w_hr: Tensor | None = None
) -> State:
    """h = o * tanh(c), for o and c of `_lstm_state`."""
    o, c = _lstm_state(gates, state, w_hh, b_hh)
    h = o * tanh(c)
    return (h if w_hr is None else linear(h, w_hr)), c


def _lstm_state(gates: Tensor, state: State, w_hh: Tensor, b_hh: Tensor | None) -> State:
    """o and c = f * c + i * g, for i, f, g, o of gates + linear(h, w_hh, b_hh).

    Source: S. Hochreiter, J. Schmidhuber, "Long short-term memory", 1997; F. Gers et al., "Learning
    to forget", 2000.
    """
    h, c = state
    i, f, g, o = chunk(keep(gates + linear(h, w_hh, b_hh)), 4, -1)
    return sigmoid(o), sigmoid(f) * c + sigmoid(i) * tanh(g)


def _gru_step(gates: Tensor, state: State, w_hh: Tensor, b_hh: Tensor | None) -> State:
    """h = (1 - z) * n + z * h, with r and z of both parts, and n = tanh(n_x + r * n_h).

    Source: K. Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014.
    """
    (h,) = state
    r_x, z_x, n_x = chunk(gates, 3, -1)
    r_h, z_h, n_h = chunk(keep(linear(h, w_hh, b_hh)), 3, -1)
    z = sigmoid(z_x + z_h)
    n = tanh(n_x + sigmoid(r_x + r_h) * n_h)
    return (n + z * (h - n),)


class Cell(NamedTuple):
    """A kind of recurrent layer.

    Attributes:
        step: the next state from `gates` (n, gates * hidden), the state, w_hh, b_hh.
        gates: how many parts the products have.
        states: how many tensors a state has: h (n, hidden) and perhaps c (n, hidden).
    """

    step: Callable[..., State]
    gates: int
    states: int


CELLS = {
    "RNN_TANH": Cell(partial(_rnn_step, tanh), 1, 1),
    "RNN_RELU": Cell(partial(_rnn_step, relu), 1, 1),
    "LSTM": Cell(_lstm_step, 4, 2),
    "GRU": Cell(_gru_step, 3, 1),
}


@replayed
def steps(
    mode: str,
    gates: Tensor,
    state: State,
    w_hh: Tensor,
    b_hh: Tensor | None,
    w_hr: Tensor | None = None,
    backwards: bool = False,
) -> tuple[Tensor, ...]:
    """Some steps of a recurrent layer.

    Args:
        mode: a name in `CELLS`.
        gates: (steps * n, gates * hidden), one step after the other.
        state: h (n, hidden), and for an LSTM c (n, hidden).
        w_hr: (projection, hidden): the h of an LSTM becomes its product with it.
        backwards: begin with the last one.

    Returns:
        h after each step (steps * n, hidden), in the order of `gates`; then the last state.
    """
    n, step = len(state[0]), CELLS[mode].step
    parts: Any = split(gates, n) if len(gates) > n else [gates]
    options = {} if w_hr is None else {"w_hr": w_hr}
    outs = []
    for part in reversed(parts) if backwards else parts:
        state = step(part, state, w_hh, b_hh, **options)
        outs.append(keep(state[0]))
        if len(state) > 1:
            keep(state[1])
    return cat(outs[::-1] if backwards else outs), *state


@replayed
def lstm_cell_state(gates: Tensor, state: State, w_hh: Tensor, b_hh: Tensor | None) -> State:
    """o and c of one step of an LSTM.

    Its h = o * tanh(c) is computed from them outside: where both states are results that somebody
    may ask for gradients of, h depends on c.
    """
    return _lstm_state(gates, state, w_hh, b_hh)
