"""A transformer end to end: its whole training step as one graph, trained on Python's own source.

GPT-2 with few and narrow layers reads the bytes of modules of the standard library. Two copies are
trained side by side, one by eager PyTorch and one by the captured and shortened graph of the step:
the losses are the same to the last bit, and the last lines say what each cost.
"""

from __future__ import annotations

import argparse
import inspect
import json as corpus_json
import time
import warnings

import torch

from tinytorch.bench import format_seconds
from tinytorch.fx import TorchSemantics, capture_step, load_model
from tinytorch.graph import PassManager

STEPS, BATCH, LENGTH, VOCABULARY = 60, 8, 64, 128
CORPUS = (argparse, corpus_json, inspect)


def batches(count: int) -> list[dict[str, torch.Tensor]]:
    """Pieces of text as bytes; what is to be predicted is the text itself, one further."""
    text = "".join(inspect.getsource(module) for module in CORPUS)
    data = torch.tensor([byte for byte in text.encode() if byte < VOCABULARY])
    generator = torch.Generator().manual_seed(0)
    made = []
    for _ in range(count):
        starts = torch.randint(len(data) - LENGTH, (BATCH,), generator=generator)
        tokens = torch.stack([data[s : s + LENGTH] for s in starts.tolist()])
        made.append({"input_ids": tokens, "labels": tokens})
    return made


def main() -> None:
    warnings.simplefilter("ignore")  # of PyTorch's own parts among each other
    torch.set_num_threads(1)
    data = batches(STEPS)
    example = load_model("hf:gpt2", small=True, batch=BATCH, sequence=LENGTH, dropout=0.0)
    model = example.model.train()
    batch = {name: data[0]["input_ids"] for name in example.batch}
    step = capture_step(model, batch, "adamw", lr=3e-3)
    before = len(step.module.graph.nodes)
    manager = PassManager(["algebra", "cse", "dce"], TorchSemantics(), rounds=2, trials=1)
    step.module.graph, report = manager.run(step.module.graph)
    step.module.recompile()
    print(f"the step: {before} nodes, after our passes {len(step.module.graph.nodes)}\n{report}\n")

    state = step.state_of(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    times = {"eager": 0.0, "graph": 0.0}
    apart = 0.0
    for i, piece in enumerate(data):
        batch = {name: piece["input_ids"] for name in example.batch}
        start = time.thread_time()
        loss, state = step.run(state, batch)
        middle = time.thread_time()
        optimizer.zero_grad()
        expected = example.loss(model, batch)
        expected.backward()
        optimizer.step()
        times["graph"] += middle - start
        times["eager"] += time.thread_time() - middle
        apart = max(apart, float((loss - expected).abs().detach()))
        if i % 10 == 9:
            print(f"step {i + 1:3}: loss {float(loss):.4f}, eager's {float(expected):.4f}")
    print(f"\nlosses {apart:.1e} apart over {STEPS} steps")
    for name, total in times.items():
        print(f"{name}: {format_seconds(total / STEPS)} a step, on one thread")


if __name__ == "__main__":
    main()
