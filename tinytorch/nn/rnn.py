"""Recurrent layers: RNN, LSTM and GRU over whole sequences."""

from __future__ import annotations

import math
from inspect import getdoc
from typing import Any

import numpy as np

from tinytorch.creation import from_numpy, zeros
from tinytorch.dtypes import Shape
from tinytorch.errors import ShapeError
from tinytorch.functions.elementwise import where
from tinytorch.functions.movement import (
    cat,
    reshape,
    split,
    squeeze,
    stack,
    transpose,
    unsqueeze,
)
from tinytorch.nn import functional as F, init
from tinytorch.nn.factory import parameter_dtype
from tinytorch.nn.functional.recurrent import CELLS, Cell, State, steps
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from tinytorch.tensor import Tensor

STEPS = 16  # at once: most of what is between the kernels is saved, for few lengths to be traced


class _Recurrent(Module):
    """Layers of cells, each over the results of the one before it, in one or both directions.

    Args:
        input_size: features of each element of the sequence.
        hidden_size: features of the state.
        num_layers: how many layers.
        bias: False to go without the two biases.
        batch_first: the input is (n, length, input_size) and not (length, n, input_size).
        dropout: probability with which what one layer gives to the next is dropped in training.
        bidirectional: each layer also runs over the reversed sequence, and gives both results.
        proj_size: for LSTM: h is projected to so many features.
        device, dtype: of the parameters.

    Attributes:
        weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0: of layer 0: (gates * hidden_size,
            features of its input), (gates * hidden_size, hidden_size) and (gates * hidden_size,);
            likewise _l1, ..., and with _reverse for the other direction. At first uniform over
            +-1 / sqrt(hidden_size).

    Shapes: (length, n, input_size) gives (length, n, directions * hidden_size), and states
    (num_layers * directions, n, hidden_size); for one sequence without n. A `PackedSequence` gives
    one.

    Raises:
        ValueError: dropout is not a probability, a size is not positive, or proj_size is not
            below hidden_size.
    """

    mode: str  # one of `CELLS`

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if min(input_size, hidden_size, num_layers) < 1 or not 0 <= dropout <= 1:
            raise ValueError(
                f"{type(self).__name__}: input_size {input_size}, hidden_size {hidden_size} and "
                f"num_layers {num_layers} must be positive, and dropout {dropout} from 0 to 1"
            )
        if not 0 <= proj_size < hidden_size:
            raise ValueError(f"proj_size {proj_size} must be from 0 to {hidden_size - 1}")
        self.input_size, self.hidden_size = input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional, self.proj_size = dropout, bidirectional, proj_size
        kind, out = parameter_dtype(device, dtype), self._out_size
        rows = self._cell.gates * hidden_size
        for layer in range(num_layers):
            width = out * len(self._directions) if layer else input_size
            for suffix in self._directions:
                shapes: dict[str, Shape] = {"weight_ih": (rows, width), "weight_hh": (rows, out)}
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if proj_size:
                    shapes |= {"weight_hr": (proj_size, hidden_size)}
                for name, shape in shapes.items():
                    parameter = Parameter(zeros(shape, dtype=kind))
                    setattr(self, f"{name}_l{layer}{suffix}", parameter)
        self.reset_parameters()

    @property
    def _cell(self) -> Cell:
        return CELLS[self.mode]

    @property
    def _directions(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    @property
    def _out_size(self) -> int:
        return self.proj_size or self.hidden_size

    @property
    def _all_weights(self) -> list[list[str]]:
        """The names of the parameters, a list for each layer and direction."""
        kinds = ["weight_ih", "weight_hh"] + ["bias_ih", "bias_hh"] * bool(self.bias)
        kinds += ["weight_hr"] * bool(self.proj_size)
        ends = [f"_l{layer}{way}" for layer in range(self.num_layers) for way in self._directions]
        return [[kind + end for kind in kinds] for end in ends]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters, a list for each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        reset_recurrent(self, self.hidden_size)

    def flatten_parameters(self) -> None:
        """Do nothing: PyTorch's kernels on GPUs need the weights in one piece of memory."""

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
        """The results at all positions of the last layer, and the last states of all layers.

        Args:
            input: (length, n, input_size), (length, input_size) for one sequence, or packed.
            hx: the first states; None for zeros. For LSTM a pair (h, c).

        Raises:
            ShapeError: the shapes do not fit.
        """
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: the input must be (length, n, {self.input_size}), or "
                f"(length, {self.input_size}) for one sequence, not {input.shape}"
            )
        if input.ndim == 2:
            states = None if hx is None else tuple(unsqueeze(h, 1) for h in self._tuple(hx))
            out, last = self._run(unsqueeze(input, 1), states, None)
            return squeeze(out, 1), self._result(tuple(squeeze(h, 1) for h in last))
        x = transpose(input, 0, 1) if self.batch_first else input
        out, last = self._run(x, None if hx is None else self._tuple(hx), None)
        return transpose(out, 0, 1) if self.batch_first else out, self._result(last)

    def _tuple(self, hx: Any) -> State:
        return (hx,) if self._cell.states == 1 else tuple(hx)

    def _result(self, states: State) -> Any:
        return states[0] if self._cell.states == 1 else states

    def _packed(self, packed: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        """Padded for the while; positions beyond a sequence's end leave its state as it is."""
        data, sizes, order, back = packed
        x, lengths = pad_packed_sequence(PackedSequence(data, sizes))
        states = None if hx is None else self._tuple(hx)
        if states is not None and order is not None:
            states = tuple(h.index_select(1, order) for h in states)
        out, last = self._run(x, states, np.asarray(lengths))
        if back is not None:
            last = tuple(h.index_select(1, back) for h in last)
        result = pack_padded_sequence(out, lengths)
        return PackedSequence(result.data, sizes, order, back), self._result(last)

    def _run(self, x: Tensor, states: State | None, lengths: Any) -> tuple[Tensor, State]:
        """x (length, n, input_size) through all layers."""
        n = x.shape[1]
        shapes = [(n, self._out_size), (n, self.hidden_size)][: self._cell.states]
        count = self.num_layers * len(self._directions)
        for state, shape in zip(states or (), shapes, strict=states is not None):
            if state.shape != (count, *shape):
                raise ShapeError(
                    f"{type(self).__name__}: a state must be {(count, *shape)}, not {state.shape}"
                )
        zero = {} if states else {shape: zeros(shape, dtype=x.dtype) for shape in {*shapes}}
        inside = None if lengths is None else np.arange(len(x))[:, None, None] < lengths[:, None]
        last: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            results = []
            for suffix in self._directions:
                given = [s[len(last)] for s in states] if states else [zero[s] for s in shapes]
                out, final = self._direction(x, tuple(given), f"_l{layer}{suffix}", inside)
                results.append(out)
                last.append(final)
            x = cat(results, -1) if len(results) > 1 else results[0]
        return x, tuple(stack(each) for each in zip(*last, strict=True))

    def _direction(self, x: Tensor, state: State, suffix: str, inside: Any) -> tuple[Tensor, State]:
        """One layer in one direction."""
        b_ih = getattr(self, "bias_ih" + suffix) if self.bias else None
        b_hh = getattr(self, "bias_hh" + suffix) if self.bias else None
        w_hr = getattr(self, "weight_hr" + suffix) if self.proj_size else None
        w_hh, backwards = getattr(self, "weight_hh" + suffix), suffix.endswith("_reverse")
        gates = F.linear(x, getattr(self, "weight_ih" + suffix), b_ih)
        # one by one where sequences may end, or have no rows to be counted by
        count = STEPS if inside is None and x.shape[1] else 1
        pieces = split(gates, count)
        outs: list[Any] = [None] * len(pieces)
        for i in range(len(pieces))[:: -1 if backwards else 1]:
            rows = reshape(pieces[i], (-1, gates.shape[-1]))
            outs[i], *new = steps(self.mode, rows, state, w_hh, b_hh, w_hr, backwards)
            if inside is not None and not inside[i].all():
                mask = from_numpy(inside[i])
                new = [where(mask, a, b) for a, b in zip(new, state, strict=True)]
                outs[i] = new[0]
            state = tuple(new)
        out = outs[0] if len(outs) == 1 else cat(outs)
        return reshape(out, (*x.shape[:2], self._out_size)), state

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        usual = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False,
                 "dropout": 0.0, "bidirectional": False}  # fmt: skip
        parts += [f"{k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        return ", ".join(parts)


class RNN(_Recurrent):
    __doc__ = f"h = tanh(W x + b + U h + c), over sequences.\n{getdoc(_Recurrent)}"
    mode = "RNN_TANH"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        check_nonlinearity("RNN", nonlinearity)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0,
            device, dtype,
        )  # fmt: skip
        self.nonlinearity, self.mode = nonlinearity, f"RNN_{nonlinearity.upper()}"


class LSTM(_Recurrent):
    __doc__ = f"Long short-term memory, over sequences; its state is (h, c).\n{getdoc(_Recurrent)}"
    mode = "LSTM"


class GRU(_Recurrent):
    __doc__ = f"Gated recurrent units, over sequences.\n{getdoc(_Recurrent)}"
    mode = "GRU"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0,
            device, dtype,
        )  # fmt: skip


def check_nonlinearity(layer: str, nonlinearity: str) -> None:
    """Raise ValueError if a layer has no such nonlinearity."""
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"{layer}: nonlinearity must be 'tanh' or 'relu', not {nonlinearity!r}")


def reset_recurrent(module: Module, hidden_size: int) -> None:
    """Draw all parameters anew, uniform over +-1 / sqrt(hidden_size)."""
    bound = 1 / math.sqrt(hidden_size) if hidden_size else 0.0
    for parameter in module.parameters():
        init.uniform_(parameter, -bound, bound)
