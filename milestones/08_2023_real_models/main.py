"""A compiler for graphs meets real models: ResNet, BERT and GPT-2.

PyTorch 2 made a graph of what people write in Python, and let compilers work on it. Here the whole
training step of three architectures becomes a graph, the passes written for TinyTorch's small IR
work on it, and TinyTorch's own compiler runs the models.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import torch

import tinytorch
from tinytorch.fx import TorchSemantics, capture_step, load_model
from tinytorch.fx.convert.exchange import tensor_from_torch
from tinytorch.fx.convert.from_torch import from_torch
from tinytorch.graph import PassManager

sys.path.append(str(Path(__file__).resolve().parents[1]))
from gates import Milestone

MODELS = ("hf:resnet152", "hf:bert-base", "hf:gpt2")
PASSES = ("algebra", "cse", "dce")  # the files of tinytorch/graph/passes
STEPS = 2


def check_step(milestone, name, small) -> None:
    """Gates: the captured step trains as eager PyTorch does; our passes shorten it and keep it."""
    example = load_model(name, small=small, batch=2, dropout=0.0)
    model = example.model.train()
    step = capture_step(model, example.batch, "sgd", lr=0.01)
    graph, report = PassManager(PASSES, TorchSemantics(), rounds=2, trials=1).run(step.module.graph)
    counts = [len(g.nodes) for g in (step.module.graph, graph)]
    milestone.gate(
        f"{name}: our passes shorten the step", counts[1] < counts[0] and not report.failures,
        f"{counts[0]} nodes, then {counts[1]}; {len(report.failures)} passes rolled back",
    )  # fmt: skip

    step.module.graph = graph
    step.module.recompile()
    state = step.state_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    apart = 0.0
    for _ in range(STEPS):
        loss, state = step.run(state, example.batch)
        optimizer.zero_grad()
        expected = example.loss(model, example.batch)
        expected.backward()
        optimizer.step()
        apart = max(apart, float((loss - expected).abs().detach()))
    milestone.gate(f"{name}: {STEPS} steps give eager's losses", apart == 0.0, f"{apart:.1e} apart")


def check_inference(milestone, name, small) -> None:
    """Gate: TinyTorch's compiler and kernels give what PyTorch gives."""
    example = load_model(name, small=small, batch=2)
    model = example.model.eval()
    inputs = [tensor_from_torch(value) for value in example.inputs.values()]
    with tinytorch.no_grad(), torch.no_grad():
        (ours, *_) = tinytorch.compile(from_torch(model, example.inputs))(*inputs)
        theirs = model(**example.inputs).logits.numpy()
    apart = float(np.abs(ours.numpy() - theirs).max() / np.abs(theirs).max())
    milestone.gate(f"{name}: our compiler gives its logits", apart < 1e-4, f"{apart:.1e} apart")


def main() -> None:
    flags = [("--full", "the real sizes, which take some minutes")]
    milestone = Milestone("2023: real models", usual_seconds=10, backend="numpy", flags=flags)
    small = not milestone.options.full
    warnings.simplefilter("ignore", FutureWarning)  # of PyTorch's own parts among each other
    for name in MODELS:
        milestone.say(f"{name}, {'with few and narrow layers' if small else 'as it is'}")
        check_step(milestone, name, small)
        check_inference(milestone, name, small)
    milestone.finish()


if __name__ == "__main__":
    main()
