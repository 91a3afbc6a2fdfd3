"""Layers and losses as models use them, small, beside PyTorch's: forward, and a training step.

Ratios are ours / PyTorch: 2.00 says that we take twice as long. One thread, CPU time, interleaved
samples. Both have the same parameters, and their results must agree before anything is timed.
"""

import thread_count  # noqa: F401, I001 - before NumPy

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from runner import Case, Result, as_json, measure

import tinytorch
from tinytorch.bench import format_seconds, format_table
from tinytorch.replay.function import HOT

Arguments = tuple[Any, ...]
RNG = np.random.default_rng(0)
WARM = 2 * HOT
SAME = 1e-3


def _reals(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def _labels(classes: int, *shape: int) -> Any:
    return RNG.integers(0, classes, shape)


ROWS, IMAGES, SIGNALS = _reals(32, 64), _reals(4, 8, 16, 16), _reals(4, 8, 32)
SEQUENCE, TOKENS = _reals(16, 8, 32), _reals(2, 16, 64)
PLAIN = {"dropout": 0.0, "batch_first": True}
#: Arguments of the constructor, options, inputs.
LAYERS: dict[str, tuple[Arguments, dict[str, Any], Arguments]] = {
    "Linear": ((64, 64), {}, (ROWS,)),
    "Bilinear": ((16, 16, 8), {}, (_reals(8, 16), _reals(8, 16))),
    "Embedding": ((100, 32), {}, (_labels(100, 8, 16),)),
    "Conv1d": ((8, 16, 3), {"padding": 1}, (SIGNALS,)),
    "Conv2d": ((8, 16, 3), {"padding": 1}, (IMAGES,)),
    "ConvTranspose2d": ((8, 8, 2), {"stride": 2}, (IMAGES,)),
    "BatchNorm1d": ((64,), {}, (ROWS,)),
    "BatchNorm2d": ((8,), {}, (IMAGES,)),
    "InstanceNorm2d": ((8,), {}, (IMAGES,)),
    "GroupNorm": ((4, 8), {}, (IMAGES,)),
    "LayerNorm": ((64,), {}, (ROWS,)),
    "RMSNorm": ((64,), {}, (ROWS,)),
    "RNN": ((32, 32), {}, (SEQUENCE,)),
    "LSTM": ((32, 32), {}, (SEQUENCE,)),
    "GRU": ((32, 32), {}, (SEQUENCE,)),
    "LSTMCell": ((32, 32), {}, (SEQUENCE[0],)),
    "GRUCell": ((32, 32), {}, (SEQUENCE[0],)),
    "MultiheadAttention": ((64, 4), {"batch_first": True}, (TOKENS,) * 3),
    "TransformerEncoderLayer": ((64, 4, 128), PLAIN, (TOKENS,)),
    "TransformerDecoderLayer": ((64, 4, 128), PLAIN, (TOKENS, TOKENS)),
    "MaxPool2d": ((2,), {}, (IMAGES,)),
    "AvgPool2d": ((2,), {}, (IMAGES,)),
    "AdaptiveAvgPool2d": ((1,), {}, (IMAGES,)),
    "Upsample": ((), {"scale_factor": 2, "mode": "bilinear"}, (IMAGES,)),
    "PixelShuffle": ((2,), {}, (IMAGES,)),
    "Unfold": ((3,), {}, (IMAGES,)),
    "PReLU": ((), {}, (ROWS,)),
    "GELU": ((), {}, (ROWS,)),
    "SiLU": ((), {}, (ROWS,)),
    "Softmax": ((-1,), {}, (ROWS,)),
    "CrossEntropyLoss": ((), {}, (_reals(32, 10), _labels(10, 32))),
    "NLLLoss": ((), {}, (_reals(32, 10), _labels(10, 32))),
    "MSELoss": ((), {}, (ROWS, _reals(32, 64))),
    "SmoothL1Loss": ((), {}, (ROWS, _reals(32, 64))),
    "BCEWithLogitsLoss": ((), {}, (ROWS, RNG.random((32, 64), np.float32))),
    "KLDivLoss": ((), {"reduction": "batchmean"}, (ROWS, RNG.random((32, 64), np.float32))),
    "CosineEmbeddingLoss": ((), {}, (ROWS, _reals(32, 64), np.sign(_reals(32)))),
    "TripletMarginLoss": ((), {}, (ROWS, _reals(32, 64), _reals(32, 64))),
}


def functions_of(library: Any, name: str, state: dict[str, Any]) -> list[Callable[[], Any]]:
    """A forward that is not recorded, and a forward with all gradients."""
    args, options, inputs = LAYERS[name]
    layer = getattr(library.nn, name)(*args, **options)
    layer.load_state_dict({k: library.from_numpy(v.copy()) for k, v in state.items()})
    tensors = [library.from_numpy(np.array(x)) for x in inputs]
    if tensors[0].is_floating_point():
        tensors[0].requires_grad_(True)
    leaves = [t for t in (tensors[0], *layer.parameters()) if t.requires_grad]

    def first(result: Any) -> Any:
        return result[0] if isinstance(result, tuple) else result

    def forward() -> Any:
        with library.no_grad():
            return first(layer(*tensors))

    seed = library.ones(tuple(forward().shape))

    def training() -> Any:
        first(layer(*tensors)).backward(seed)
        gradients = [leaf.grad for leaf in leaves]
        for leaf in leaves:
            leaf.grad = None
        return gradients[-1]

    return [forward, training]


def cases(names: Sequence[str]) -> Iterator[Case]:
    """Forward and training step of each layer.

    Raises:
        AssertionError: ours gives something else than PyTorch's.
    """
    for name in names:
        args, options, _ = LAYERS[name]
        torch.manual_seed(0)
        layer = getattr(torch.nn, name)(*args, **options)
        state = {k: np.array(v.numpy()) for k, v in layer.state_dict().items()}
        pairs = zip(
            ("forward", "training"),
            functions_of(tinytorch, name, state),
            functions_of(torch, name, state),
            strict=True,
        )
        for what, ours, theirs in pairs:
            for _ in range(WARM):
                found, wanted = ours(), theirs()
            np.testing.assert_allclose(
                found.detach().numpy(), wanted.detach().numpy(), SAME, SAME, err_msg=name
            )
            yield Case(name, f"{name}, {what}", {"ours": ours, "torch": theirs})


def report(results: Sequence[Result]) -> None:
    """A line for each layer, the slowest first."""
    rows: dict[str, list[Result]] = {}
    for result in results:
        rows.setdefault(result.group, []).append(result)
    ratio = {r.name: r.seconds["ours"] / r.seconds["torch"] for r in results}
    ordered = sorted(rows, key=lambda name: -max(ratio[r.name] for r in rows[name]))
    cells = [
        [name, *(x for r in rows[name] for x in (
            format_seconds(r.seconds["ours"]), format_seconds(r.seconds["torch"]),
            f"{ratio[r.name]:.2f}",
        ))]
        for name in ordered
    ]  # fmt: skip
    heads = [
        f"{what}, {who}" for what in ("forward", "training") for who in ("ours", "torch", "ratio")
    ]
    print("ours / PyTorch, CPU time of one thread\n")
    print(format_table(["layer", *heads], cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="layers, by name, with commas between")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(LAYERS)
    if unknown := set(names) - LAYERS.keys():
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    tinytorch.set_backend("optimized")
    warnings.simplefilter("ignore")
    results = [
        measure(case, clock="cpu", rounds=options.rounds, attempts=1) for case in cases(names)
    ]
    print(as_json(results)) if options.json else report(results)


if __name__ == "__main__":
    main()
