"""Gates: what a milestone must show before it counts as reached.

Accuracy alone can come about by luck, or from one layer that learns while the others stand still.
So gates look at the mechanism: did each layer move, does every filter get a gradient, is the loss
the number that an independent calculation gives? A gate that fails ends the script with 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import numpy as np

import tinytorch
from tinytorch import nn
from tinytorch.backends.load import load_backend
from tito import strict_json

SEED = 1958


@dataclass(frozen=True)
class Gate:
    """One gate and what it saw."""

    name: str
    passed: bool
    detail: str


class Milestone:
    """A run: what it says, the gates it comes to, and how it ends.

    The command line takes `--backend`, which is a name or FILE.py:CLASS; `--json`, with which one
    JSON object goes to stdout, and what people read to stderr; and `--first-epoch`, with which
    `epochs` ends after the first and no gate is judged, for whoever wants to see what runs.

    Args:
        title: what is shown at the start.
        usual_seconds: about how long it takes once its kernels are compiled, for the person who
            waits; no verdict rests on it.
        backend: where it runs unless the command line says otherwise.
        flags: more that the command line takes, each with its help; `options` has what it says.
    """

    def __init__(
        self,
        title: str,
        *,
        usual_seconds: float,
        backend: str,
        flags: Sequence[tuple[str, str]] = (),
    ) -> None:
        parser = argparse.ArgumentParser(description=title)
        parser.add_argument("--backend", default=backend, help=f"default: {backend}")
        parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
        parser.add_argument("--first-epoch", action="store_true", help="stop there; no gates")
        for flag, shown in flags:
            parser.add_argument(flag, action="store_true", help=shown)
        self.options = options = parser.parse_args()
        try:
            tinytorch.set_backend(load_backend(options.backend))
        except (tinytorch.BackendError, tinytorch.MissingExtraError) as error:
            parser.error(str(error))
        tinytorch.manual_seed(SEED)
        self.title = title
        self.backend = options.backend
        self.as_json = options.json
        self.first_epoch = options.first_epoch
        self.gates: list[Gate] = []
        self._start = time.perf_counter()
        self.say(
            f"{title}\nbackend {self.backend}; usually about {usual_seconds:g} s, longer the first "
            "time if it compiles kernels\n"
        )

    def say(self, text: str = "") -> None:
        """Show a line to the person who waits."""
        print(text, file=sys.stderr if self.as_json else sys.stdout, flush=True)

    def epochs(self, count: int) -> range:
        """The epochs to train for: `count`, or one."""
        return range(1 if self.first_epoch else count)

    def gate(self, name: str, passed: bool, detail: str) -> None:
        """Come to a gate."""
        self.gates.append(Gate(name, bool(passed), detail))

    def at_least(self, name: str, value: float, least: float) -> None:
        """A gate for a share that must be reached."""
        self.gate(name, value >= least, f"{value:.2%}, needed {least:.0%}")

    def agree(self, name: str, ours: float, reference: float, tolerance: float) -> None:
        """A gate for a number that another calculation gives too, to a relative tolerance."""
        difference = abs(ours - reference) / max(abs(reference), 1e-12)
        detail = f"{ours:.7g} and {reference:.7g}: {difference:.1e} apart, allowed {tolerance:.0e}"
        self.gate(name, difference <= tolerance, detail)

    def moved(self, before: dict[str, np.ndarray[Any, Any]], model: nn.Module) -> None:
        """A gate for each parameter that training must have changed, and left finite."""
        for name, after in values(model).items():
            change = float(np.abs(after - before[name]).max())
            self.gate(f"{name} moved", 1e-4 < change < np.inf, f"by up to {change:.3g}")

    def finish(self, **results: Any) -> NoReturn:
        """Show the gates and exit: with 0 if all hold, with 1 if one does not."""
        if self.first_epoch:
            if self.as_json:
                told = {"title": self.title, "backend": self.backend, "gates": None}
                print(strict_json.dumps(told, indent=None))
            sys.exit(0)
        seconds = time.perf_counter() - self._start
        failed = [gate.name for gate in self.gates if not gate.passed]
        self.say()
        for gate in self.gates:
            self.say(f"gate {'holds ' if gate.passed else 'FAILED'}  {gate.name}: {gate.detail}")
        verdict = f"FAILED: {', '.join(failed)}" if failed else "all gates hold"
        self.say(f"\n{verdict}; {seconds:.1f} s")
        if self.as_json:
            report = {
                "title": self.title,
                "backend": self.backend,
                "passed": not failed,
                "seconds": seconds,
                "gates": [asdict(gate) for gate in self.gates],
                "results": results,
            }
            print(strict_json.dumps(report))
        sys.exit(1 if failed else 0)


def values(model: nn.Module) -> dict[str, np.ndarray[Any, Any]]:
    """A copy of each parameter, by name, in float64."""
    return {name: np.array(p.detach().numpy(), np.float64) for name, p in model.named_parameters()}


def accuracy(model: nn.Module, images: tinytorch.Tensor, labels: tinytorch.Tensor) -> float:
    """The share of images whose highest score is that of their label."""
    model.eval()
    with tinytorch.no_grad():
        guesses = model(images).argmax(1)
    model.train()
    return float(np.mean(guesses.numpy() == labels.numpy()))


def log_likelihood_loss(scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
    """Cross entropy in NumPy: the mean of log(sum(exp(scores))) - scores[label]."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(axis=1))
    return float(np.mean(log_sums - shifted[np.arange(len(labels)), labels]))
