"""A pass of one's own, on a TinyTorch graph and on a real model's: x^3 becomes x * x * x.

GPT-2's activation is the tanh approximation of gelu, which has a cube in it; a power is a
logarithm and an exponential, two products are not. The pass knows nothing of either framework: it
asks `semantics` for the name and the arguments of an op, and for new nodes.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

import tinytorch
from tinytorch.fx import TorchSemantics, capture_forward, load_model
from tinytorch.graph import OptimizationPass, PassManager, register_pass, trace


@register_pass
class ExpandCubes(OptimizationPass):
    """pow(x, 3) -> x * x * x"""

    name = "expand-cubes"
    exact = False  # the rounding is another one

    def analyze(self, graph: Any) -> list[Any]:
        return [
            node
            for node in graph.nodes
            if self.semantics.op_name(node) == "pow" and node.args[1] == 3
        ]

    def transform(self, graph: Any, found: list[Any]) -> bool:
        for node in found:
            x = node.args[0]
            with graph.inserting_before(node):
                square = self.semantics.call(graph, "mul", [x, x], {})
                cube = self.semantics.call(graph, "mul", [square, x], {})
            node.replace_all_uses_with(cube)
            graph.erase_node(node)
        return bool(found)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()

    def gelu(x: tinytorch.Tensor) -> tinytorch.Tensor:
        return 0.5 * x * (1.0 + (0.7978845608 * (x + 0.044715 * x**3)).tanh())

    ours = trace(gelu, tinytorch.ones(4)).graph
    graph, report = PassManager(["expand-cubes"]).run(ours)
    print(f"TinyTorch's graph of gelu:\n{report}\n{report.results[0].diff()}\n")

    example = load_model("hf:gpt2", small=True, batch=2)
    captured = capture_forward(example.model.eval(), example.inputs)
    graph, report = PassManager(["expand-cubes"], TorchSemantics(), trials=1).run(captured.graph)
    print(f"GPT-2's graph:\n{report}")
    with torch.no_grad():
        before = captured(**example.inputs)["logits"]
        after = torch.fx.GraphModule(captured, graph)(**example.inputs)["logits"]
    apart = float((before - after).abs().max() / before.abs().max())
    print(f"the logits are {apart:.1e} apart")


if __name__ == "__main__":
    main()
