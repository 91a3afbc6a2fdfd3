"""A training step and a forward, compiled: ours beside our eager, NumPy, PyTorch and torch.compile.

Every contestant starts from the same weights and sees the same batch; the first losses must agree
before anything is timed. "% peak" is of what a core's multiply-add units can do at most, for the
multiply-adds of products and convolutions alone.

    torch.compile         the model compiled; `backward()` and the optimizer as usual
    torch.compile whole   forward, gradients and the SGD update in one compiled function
"""

import thread_count  # noqa: F401, I001 - before NumPy

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy_models
import torch
from runner import ATTEMPTS, ROUNDS, Case, Result, as_json, highest_peak, measure
from thread_count import THREADS
from training import AGREEMENT, LR, STEPS_COMPARED, Step, lenet, mlp, step_of, training_step

import tinytorch
from tinytorch.bench import format_seconds, format_table
from tinytorch.graph.semantics import TINYTORCH

WORDS, WIDTH, HEADS, BLOCKS, LENGTH = 65, 128, 4, 2, 64
PRODUCTS = ("matmul", "linear", "linear_weight", "conv2d", "conv2d_input", "conv2d_weight")


def gpt(library, blocks=BLOCKS, composed=True):
    """A small GPT on characters, from the `nn` of TinyTorch or PyTorch.

    Args:
        composed: attention is written as products and a softmax, and not one call.
    """
    nn, functional = library.nn, library.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x, mask):
            n, length, width = x.shape
            parts = self.qkv(self.norm1(x)).reshape(n, length, 3, HEADS, width // HEADS)
            q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
            if composed:
                scores = (q @ k.transpose(-2, -1)) * (width // HEADS) ** -0.5
                mixed = functional.softmax(library.where(mask, scores, -1e9), dim=-1) @ v
            else:
                mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            mixed = mixed.transpose(1, 2).reshape(n, length, width)
            x = x + self.out(mixed)
            return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.word, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
            self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)
            self.mask = library.tensor(np.tril(np.ones((LENGTH, LENGTH), bool)))
            self.positions = library.arange(LENGTH)

        def forward(self, tokens):
            x = self.word(tokens) + self.place(self.positions)
            for block in self.blocks:
                x = block(x, self.mask)
            return self.head(self.norm(x)).reshape(-1, WORDS)

    return Gpt()


def char_gpt(library):
    """The GPT on characters of nanoGPT's example for a CPU: four blocks."""
    return gpt(library, 4)


def char_gpt_sdpa(library):
    """The same with `scaled_dot_product_attention`, which nanoGPT calls where PyTorch has it."""
    return gpt(library, 4, composed=False)


class Training(NamedTuple):
    """A case: what is trained, on batches of what shape, with which optimizer."""

    build: Callable[..., Any]
    shape: tuple[int, ...]
    optimizer: str = "SGD"
    by_hand: Callable[..., Any] | None = None


TRAINING = {
    "MLP, batch 1": Training(mlp, (1, 784), by_hand=numpy_models.mlp_step),
    "MLP, batch 32": Training(mlp, (32, 784), by_hand=numpy_models.mlp_step),
    "MLP, batch 256": Training(mlp, (256, 784), by_hand=numpy_models.mlp_step),
    "LeNet, batch 32": Training(lenet, (32, 1, 28, 28), by_hand=numpy_models.lenet_step),
    "MLP, batch 1, Adam": Training(mlp, (1, 784), "Adam"),
    "MLP, batch 32, Adam": Training(mlp, (32, 784), "Adam"),
    "LeNet, batch 32, Adam": Training(lenet, (32, 1, 28, 28), "Adam"),
    "GPT, 8 x 64 tokens, AdamW": Training(gpt, (8, LENGTH), "AdamW"),
    "char GPT, 12 x 64 tokens, AdamW": Training(char_gpt, (12, LENGTH), "AdamW"),
    "char GPT, sdpa, 12 x 64 tokens, AdamW": Training(char_gpt_sdpa, (12, LENGTH), "AdamW"),
}
INFERENCE = {
    "MLP forward, batch 32": Training(mlp, (32, 784)),
    "LeNet forward, batch 32": Training(lenet, (32, 1, 28, 28)),
    "GPT forward, 8 x 64 tokens": Training(gpt, (8, LENGTH)),
}


class Contest:
    """Models with the same weights, one for each contestant, and a batch."""

    def __init__(self, case: Training) -> None:
        self.case = case
        rng = np.random.default_rng(0)
        if case.build in (gpt, char_gpt, char_gpt_sdpa):
            self.x, self.y = (rng.integers(0, WORDS, case.shape) for _ in range(2))
            self.y = self.y.reshape(-1)
        else:
            self.x = rng.standard_normal(case.shape, dtype=np.float32)
            self.y = rng.integers(0, 10, case.shape[0])
        torch.manual_seed(0)
        weights = case.build(torch).named_parameters()
        self.weights = {name: p.detach().numpy().copy() for name, p in weights}

    def model(self, library) -> Any:
        """A new model with the weights of all."""
        model = self.case.build(library)
        for name, p in model.named_parameters():
            with library.no_grad():
                weight = self.weights[name]
                p.copy_(weight if library is tinytorch else torch.from_numpy(weight))
        return model

    def batch(self, library) -> tuple[Any, Any]:
        return library.from_numpy(self.x), library.from_numpy(self.y)

    def step(self, library, compiled: bool = False) -> Step:
        """A training step of a library's own kind; for PyTorch, `compiled` is the model."""
        model = self.model(library)
        optimizer = getattr(library.optim, self.case.optimizer)(model.parameters(), lr=LR)
        x, y = self.batch(library)
        if compiled and library is torch:
            model = torch.compile(model)
        if library is torch or not compiled:
            return step_of(library, model, optimizer, x, y)
        step = tinytorch.compile(training_step(tinytorch, model, optimizer), keep_grads=False)

        def run() -> Any:
            return step(x, y)

        run.compiled = step  # type: ignore[attr-defined]
        return run

    def whole_step(self) -> Step:
        """Forward, gradients and the update in one function that torch.compile sees whole."""
        model = self.model(torch)
        x, y = self.batch(torch)
        state = {name: p.detach() for name, p in model.named_parameters()}

        def loss_of(parameters: Any, x: Any, y: Any) -> Any:
            logits = torch.func.functional_call(model, parameters, (x,))
            return torch.nn.functional.cross_entropy(logits, y)

        @torch.compile
        def step(parameters: Any, x: Any, y: Any) -> Any:
            grads, loss = torch.func.grad_and_value(loss_of)(parameters, x, y)
            return loss, {name: p - LR * grads[name] for name, p in parameters.items()}

        def run() -> Any:
            nonlocal state
            loss, state = step(state, x, y)
            return loss

        return run

    def forward(self, library, compiled: bool) -> Step:
        """The model alone, without gradients."""
        model, (x, _) = self.model(library), self.batch(library)
        model.eval()
        run = library.compile(model) if compiled else model

        def step() -> Any:
            with library.no_grad():
                return run(x)

        step.compiled = run  # type: ignore[attr-defined]
        return step


def contestants(name: str, with_torch_compile: bool) -> dict[str, Step]:
    """Who takes part in a case; "ours" is the compiled one."""
    if name in INFERENCE:
        contest = Contest(INFERENCE[name])
        found = {
            "ours": contest.forward(tinytorch, compiled=True),
            "eager": contest.forward(tinytorch, compiled=False),
            "torch": contest.forward(torch, compiled=False),
        }
        if with_torch_compile:
            found["torch.compile"] = contest.forward(torch, compiled=True)
        return found
    case = TRAINING[name]
    contest = Contest(case)
    found = {
        "ours": contest.step(tinytorch, compiled=True),
        "eager": contest.step(tinytorch),
        "torch": contest.step(torch),
    }
    if case.by_hand is not None:
        weights = [w.copy() for w in contest.weights.values()]
        by_hand = case.by_hand
        found["numpy"] = lambda: by_hand(weights, contest.x, contest.y, LR)
    if with_torch_compile:
        found["torch.compile"] = contest.step(torch, compiled=True)
        if case.optimizer == "SGD":
            found["torch.compile whole"] = contest.whole_step()
    return found


def check_agreement(name: str, steps: dict[str, Step]) -> None:
    """Raises AssertionError if they do not compute the same losses, or outputs."""
    for number in range(STEPS_COMPARED):
        results = {who: np.asarray(step().detach().numpy() if who != "numpy" else step())
                   for who, step in steps.items()}  # fmt: skip
        expected = results["torch"]
        bound = AGREEMENT * np.abs(expected).max()
        for who, result in results.items():
            if not np.abs(result - expected).max() <= bound:
                raise AssertionError(
                    f"{name}, step {number + 1}: {who} gives {result}, PyTorch {expected}"
                )


def multiply_adds(compiled: Any) -> float:
    """Floating-point operations of products and convolutions in a compiled function's graph."""
    (trace,) = getattr(compiled, "compiled", compiled).traces[-1:]
    nodes = trace.graph.find_nodes(op="call_function")
    return float(sum(TINYTORCH.cost(n).flops for n in nodes if n.target.name in PRODUCTS))


def compare(name: str, rounds: int, attempts: int, with_torch_compile: bool) -> Result:
    """The times of one case."""
    steps = contestants(name, with_torch_compile)
    check_agreement(name, steps)
    flops = multiply_adds(steps["ours"].compiled)  # type: ignore[attr-defined]
    clock = "cpu" if THREADS == 1 else "wall"
    case = Case("compiled", name, steps, flops=flops)
    return measure(case, clock=clock, rounds=rounds, attempts=attempts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="while others disturb")
    parser.add_argument("--threads", type=int, default=1, help="with 2 or more, wall time")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--no-torch-compile", action="store_true")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    tinytorch.set_backend("optimized")
    tinytorch.set_num_threads(THREADS)
    names = [name for name in (*TRAINING, *INFERENCE) if options.only in name]
    how = options.rounds, options.attempts, not options.no_torch_compile
    results = [compare(name, *how) for name in names]
    peak = highest_peak(results)
    if options.json:
        print(as_json(results, threads=THREADS, peak=peak))
        return
    print(
        f"{THREADS} thread(s), peak of one up to {peak / 1e9:.0f} Gflop/s; how many times as long "
        "others take\n"
    )
    print(table(results))
    if any(result.disturbed for result in results):
        print('"!": other processes were running; measure these again on a quiet machine')


OTHERS = ("eager", "numpy", "torch", "torch.compile", "torch.compile whole")


def table(results: list[Result]) -> str:
    """A row per case."""
    rows = [
        [
            result.name + (" !" if result.disturbed else ""),
            format_seconds(result.seconds["ours"]),
            f"{100 * (result.share or 0) / THREADS:.0f}",
            format_seconds(result.seconds["torch"]),
            *(f"{result.ratios[o]:.2f}" if o in result.ratios else "" for o in OTHERS),
        ]
        for result in results
    ]
    return format_table(["compiled", "ours", "% peak", "torch", *OTHERS], rows)


if __name__ == "__main__":
    main()
