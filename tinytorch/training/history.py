"""`History`: what was measured in each epoch, and plots of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.errors import missing_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Record = dict[str, float]

VALIDATION = "val_"
_NOT_MEASURED = ("epoch", "step", "seconds")


class History:
    """The records of all epochs: epoch, step, loss, the metrics, the same with `val_`, lr, seconds.

    The learning rate is that of the first group at the end of the epoch. Loss and metrics are
    means over the batches of the epoch, each before the update by that batch.

    >>> history = History([{"epoch": 1, "loss": 0.7}, {"epoch": 2, "loss": 0.5}])
    >>> history["loss"], history.records[-1], len(history)
    ([0.7, 0.5], {'epoch': 2, 'loss': 0.5}, 2)
    """

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self.records = [dict(record) for record in records]

    def __getitem__(self, name: str) -> list[float]:
        """The values of a quantity, from the epochs that have it.

        Raises:
            KeyError: no epoch has it; the message lists those there are.
        """
        if name not in self.names():
            raise KeyError(f"the history has no {name!r}; it has {', '.join(self.names())}")
        return [record[name] for record in self.records if name in record]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __repr__(self) -> str:
        return f"History({len(self)} epochs of {', '.join(self.names()) or 'nothing'})"

    def names(self) -> list[str]:
        """The quantities there are, in order of appearance."""
        return list(dict.fromkeys(name for record in self.records for name in record))

    def plot(
        self,
        path: str | Path | None = None,
        *,
        quantities: str | Sequence[str] | None = None,
        axes: Axes | Sequence[Axes] | Array | None = None,
    ) -> Figure:
        """Draw quantities against the epoch, a training and a validation curve in one diagram.

        Args:
            path: a file to write, in the format of its suffix (.png, .svg, .pdf).
            quantities: which ones, or which one, without `val_`; all that there are unless given.
            axes: matplotlib's axes to draw in, one for each quantity, as a sequence or as the
                array that `plt.subplots` gives; unless given, of a new figure, which belongs to no
                window.

        Returns:
            The figure.

        Raises:
            MissingExtraError: matplotlib is not installed.
            KeyError: there is no such quantity.
            ValueError: nothing to draw, or not as many axes as quantities.
        """
        if find_spec("matplotlib") is None:
            raise missing_extra("matplotlib", "train", "a plot of the history")
        given = [quantities] if isinstance(quantities, str) else quantities
        chosen = self._measured() if given is None else list(given)
        if not chosen:
            raise ValueError("there is nothing to plot: the history has no records")
        places = self._places(chosen, axes)
        for name, place in zip(chosen, places, strict=True):
            self._draw(name, place)
        figure: Figure = places[0].get_figure()
        if path is not None:
            figure.savefig(path)
        return figure

    def _measured(self) -> list[str]:
        names = (name.removeprefix(VALIDATION) for name in self.names())
        return [name for name in dict.fromkeys(names) if name not in _NOT_MEASURED]

    def _places(self, chosen: list[str], axes: Axes | Sequence[Axes] | Array | None) -> list[Any]:
        if axes is None:
            from matplotlib.figure import Figure

            figure = Figure(figsize=(4.5 * len(chosen), 3.2), layout="constrained")
            return list(figure.subplots(1, len(chosen), squeeze=False)[0])
        places = np.ravel(np.asarray(axes, object)).tolist()
        if len(places) != len(chosen):
            raise ValueError(f"{len(chosen)} quantities need as many axes, got {len(places)}")
        return places

    def _draw(self, name: str, axes: Axes) -> None:
        curves = {name: "training", VALIDATION + name: "validation"}
        there = [curve for curve in curves if curve in self.names()]
        for curve in there or [name]:  # if neither is there, the look-up says what there is
            epochs = [record["epoch"] for record in self.records if curve in record]
            axes.plot(epochs, self[curve], marker=".", label=curves[curve])
        axes.set_xlabel("epoch")
        axes.set_ylabel(name)
        if len(there) > 1:
            axes.legend()
