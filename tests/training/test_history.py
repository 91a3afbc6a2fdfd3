"""The history and its plots."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tinytorch import MissingExtraError
from tinytorch.training import History, history

RECORDS = [
    {"epoch": 1, "step": 8, "loss": 1.0, "accuracy": 0.5, "val_loss": 1.1, "lr": 0.1},
    {"epoch": 2, "step": 16, "loss": 0.5, "accuracy": 0.75, "lr": 0.1, "seconds": 2},
    {"epoch": 3, "step": 24, "loss": 0.25, "accuracy": 1.0, "val_loss": 0.4, "lr": 0.1},
]


def test_quantities_by_name() -> None:
    measured = History(RECORDS)
    assert measured["loss"] == [1.0, 0.5, 0.25]
    assert measured["val_loss"] == [1.1, 0.4]
    assert list(measured) == RECORDS and len(measured) == 3
    with pytest.raises(KeyError, match="the history has no 'val_acc'; it has epoch, step, loss"):
        measured["val_acc"]


def test_the_curves_of_a_plot() -> None:
    figure = History(RECORDS).plot()
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "accuracy", "lr"]
    training, validation = figure.axes[0].get_lines()
    assert list(training.get_xdata()) == [1, 2, 3]
    assert list(validation.get_xdata()) == [1, 3]
    assert list(validation.get_ydata()) == [1.1, 0.4]
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["training", "validation"]
    assert figure.axes[1].get_legend() is None


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_plot_as_a_file(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = tmp_path / f"plot.{suffix}"
    History(RECORDS).plot(path)
    assert path.read_bytes().startswith(start)


def test_a_plot_in_axes_that_are_given() -> None:
    from matplotlib.figure import Figure  # half a second of imports: not while collecting

    axes = Figure().subplots()
    assert History(RECORDS).plot(quantities=["loss"], axes=axes) is axes.get_figure()
    assert len(axes.get_lines()) == 2
    grid = Figure().subplots(2, 1, squeeze=False)  # an array, as `plt.subplots` gives it
    assert len(History(RECORDS).plot(quantities=["loss", "lr"], axes=grid).axes) == 2
    assert [len(axes.get_lines()) for axes in grid.ravel()] == [2, 1]
    assert len(History(RECORDS).plot(quantities="loss").axes) == 1
    with pytest.raises(ValueError, match="2 quantities need as many axes, got 1"):
        History(RECORDS).plot(quantities=["loss", "lr"], axes=axes)


def test_what_cannot_be_plotted(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="nothing to plot: the history has no records"):
        History().plot()
    with pytest.raises(KeyError, match="the history has no 'f1'"):
        History(RECORDS).plot(quantities=["f1"])
    monkeypatch.setattr(history, "find_spec", lambda name: None)
    message = "needs matplotlib, which is not installed: pip install 'tinytorch[train]'"
    with pytest.raises(MissingExtraError, match=re.escape(message)):
        History(RECORDS).plot()


def test_nothing_is_loaded_before_it_is_needed() -> None:
    script = (
        "import sys, tinytorch.training\n"
        "print([m for m in ('matplotlib', 'rich', 'safetensors') if m in sys.modules])"
    )
    root = Path(history.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
