"""One step of a recurrent layer: what LSTM, GRU and RNN do at each position.

`gates` is what the input contributes, linear(x, w_ih, b_ih): all positions at once are one product.
"""

from __future__ import annotations

from tinytorch.functions.elementwise import relu, sigmoid, tanh
from tinytorch.functions.movement import chunk
from tinytorch.nn.functional.linear import linear
from tinytorch.replay import replayed
from tinytorch.tensor import Tensor

State = tuple[Tensor, ...]
ACTIVATIONS = {"tanh": tanh, "relu": relu}


@replayed
def rnn_step(
    gates: Tensor, state: State, w_hh: Tensor, b_hh: Tensor | None, nonlinearity: str = "tanh"
) -> State:
    """h = tanh(gates + linear(h, w_hh, b_hh)), or relu.

    Args:
        gates: (n, hidden)
        state: h (n, hidden), alone in a tuple.

    Source: J. Elman, "Finding structure in time", 1990.
    """
    return (ACTIVATIONS[nonlinearity](gates + linear(state[0], w_hh, b_hh)),)


@replayed
def lstm_step(
    gates: Tensor, state: State, w_hh: Tensor, b_hh: Tensor | None, w_hr: Tensor | None = None
) -> State:
    """c = f * c + i * g, h = o * tanh(c), for i, f, g, o of gates + linear(h, w_hh, b_hh).

    Args:
        gates: (n, 4 * hidden)
        state: h (n, hidden) and c (n, hidden).
        w_hr: (projection, hidden): h becomes its product with it.

    Source: S. Hochreiter, J. Schmidhuber, "Long short-term memory", 1997; F. Gers et al., "Learning
    to forget", 2000.
    """
    h, c = state
    i, f, g, o = chunk(gates + linear(h, w_hh, b_hh), 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h = sigmoid(o) * tanh(c)
    return (h if w_hr is None else linear(h, w_hr)), c


@replayed
def gru_step(gates: Tensor, state: State, w_hh: Tensor, b_hh: Tensor | None) -> State:
    """h = (1 - z) * n + z * h, with r and z of both parts, and n = tanh(n_x + r * n_h).

    Args:
        gates: (n, 3 * hidden)
        state: h (n, hidden), alone in a tuple.

    Source: K. Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014.
    """
    (h,) = state
    r_x, z_x, n_x = chunk(gates, 3, -1)
    r_h, z_h, n_h = chunk(linear(h, w_hh, b_hh), 3, -1)
    z = sigmoid(z_x + z_h)
    n = tanh(n_x + sigmoid(r_x + r_h) * n_h)
    return (n + z * (h - n),)
