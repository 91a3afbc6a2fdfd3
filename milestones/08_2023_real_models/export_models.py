"""Several kinds of model as graphs and as ONNX files: what goes through, and what does not, why.

python export_models.py [FOLDER]      # writes the ONNX files there
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tinytorch
from tinytorch.bench import format_table
from tinytorch.errors import TinyTorchError
from tinytorch.fx import capture_forward, load_model
from tinytorch.fx.convert.exchange import tensor_from_torch
from tinytorch.fx.convert.from_torch import from_torch
from tinytorch.fx.diagnosis.tracers import quiet
from tinytorch.graph import trace
from tinytorch.onnx import export_onnx


class Branching(nn.Module):
    """Chooses by a value, which no graph can know beforehand."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else -x


class Recurrent(nn.Module):
    """A loop over time: as many steps as the example has."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(8 + 16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x.new_zeros(x.shape[0], 16)
        for t in range(x.shape[1]):
            state = torch.tanh(self.cell(torch.cat([x[:, t], state], 1)))
        return state


def models() -> dict[str, tuple[nn.Module, Any]]:
    """Each with its example inputs."""
    found: dict[str, tuple[nn.Module, Any]] = {
        "MLP": (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3)), (torch.ones(2, 8),)),
        "recurrent": (Recurrent(), (torch.ones(2, 5, 8),)),
        "branching": (Branching(), (torch.ones(3),)),
    }
    for name in ("hf:resnet152", "hf:bert-base", "hf:gpt2"):
        example = load_model(name, small=True, batch=2)
        found[f"{name} (small)"] = (example.model, example.inputs)
    return found


def export(model: nn.Module, inputs: Any, path: Path | None) -> list[str]:
    """How many nodes the graph has in ATen, in our ops and in ONNX, and the most frequent op."""
    with quiet():
        captured = capture_forward(model, inputs, decompose=True)
    calls = [n for n in captured.graph.nodes if n.op == "call_function"]
    ((most, count),) = Counter(str(n.target) for n in calls).most_common(1)
    module = from_torch(model, inputs)
    values = inputs.values() if isinstance(inputs, dict) else inputs
    with tinytorch.no_grad():
        traced = trace(module, *[tensor_from_torch(v) for v in values])
    onnx = export_onnx(traced, path)
    ours = sum(n.op == "call_function" for n in traced.graph.nodes)
    return [str(len(calls)), str(ours), str(len(onnx.graph.node)), f"{most} ({count} times)"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="where to write the ONNX files")
    folder = parser.parse_args().folder
    warnings.simplefilter("ignore")  # of PyTorch's own parts among each other
    rows, refused = [], []
    for name, (model, inputs) in models().items():
        path = folder / f"{name.split()[0].replace(':', '_')}.onnx" if folder else None
        try:
            rows.append([name, *export(model.eval(), inputs, path)])
        except TinyTorchError as error:
            refused.append(f"{name} cannot be exported:\n  {str(error).splitlines()[0]}")
    print(format_table(["model", "ATen calls", "our ops", "ONNX nodes", "most frequent"], rows))
    print("\n".join(["", *refused]))


if __name__ == "__main__":
    main()
