"""Layers and losses as models use them, beside PyTorch's: forward, and a training step.

Small ones show what a call costs, large ones what the kernels do, between those of `kernels.py`.

Ratios are ours / PyTorch: 2.00 says that we take twice as long. One thread, CPU time, interleaved
samples. Both have the same parameters, and their results must agree before anything is timed.
"""

import thread_count  # noqa: F401, I001 - before NumPy

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from beside_torch import run
from runner import Case, Result

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


@dataclass(frozen=True)
class Scale:
    """How large a model is.

    Attributes:
        rows: (n, features) of a linear layer.
        images, signals: (n, channels, height, width) and (n, channels, length).
        sequence: (length, n, features) of a recurrent layer.
        tokens: (n, length, features) of a transformer, with so many heads.
        table: words of an embedding, and features.
        classes: of a classifier.
    """

    rows: tuple[int, int]
    images: tuple[int, int, int, int]
    signals: tuple[int, int, int]
    sequence: tuple[int, int, int]
    tokens: tuple[int, int, int]
    heads: int
    table: tuple[int, int]
    classes: int


SCALES = {
    "small": Scale(
        (32, 64), (4, 8, 16, 16), (4, 8, 32), (16, 8, 32), (2, 16, 64), 4, (100, 32), 10
    ),
    "large": Scale(
        (512, 512),
        (16, 64, 32, 32),
        (16, 64, 256),
        (64, 32, 128),
        (8, 128, 256),
        8,
        (5000, 256),
        1000,
    ),
}
PLAIN = {"dropout": 0.0, "batch_first": True}
OF_ROWS = "PReLU", "GELU", "SiLU", "ELU", "SELU", "LeakyReLU", "Mish", "Softplus", "Tanh", "GLU"
OF_PAIRS = "MSELoss", "L1Loss", "HuberLoss", "SmoothL1Loss"


def layers_of(s: Scale) -> dict[str, tuple[Arguments, dict[str, Any], Arguments]]:
    """Arguments of the constructor, options, inputs."""
    rows, images, signals = _reals(*s.rows), _reals(*s.images), _reals(*s.signals)
    sequence, tokens = _reals(*s.sequence), _reals(*s.tokens)
    n, features = s.rows
    channels, width, words = s.images[1], s.tokens[-1], s.sequence[-1]
    ones, target = RNG.random(s.rows, np.float32), _reals(*s.rows)
    scores, labels = _reals(n, s.classes), _labels(s.classes, n)
    quarter = (features // 4,) * 2
    return {
        "Linear": ((features, features), {}, (rows,)),
        "Bilinear": ((*quarter, 8), {}, (_reals(n, quarter[0]), _reals(n, quarter[0]))),
        "Embedding": (s.table, {}, (_labels(s.table[0], 8, n // 2),)),
        "EmbeddingBag": (s.table, {}, (_labels(s.table[0], 8, n // 2),)),
        "Conv1d": ((channels, 2 * channels, 3), {"padding": 1}, (signals,)),
        "Conv2d": ((channels, 2 * channels, 3), {"padding": 1}, (images,)),
        "ConvTranspose2d": ((channels, channels, 2), {"stride": 2}, (images,)),
        "BatchNorm1d": ((features,), {}, (rows,)),
        "BatchNorm2d": ((channels,), {}, (images,)),
        "InstanceNorm2d": ((channels,), {}, (images,)),
        "GroupNorm": ((4, channels), {}, (images,)),
        "LayerNorm": ((features,), {}, (rows,)),
        "RMSNorm": ((features,), {}, (rows,)),
        "LocalResponseNorm": ((5,), {}, (images,)),
        "RNN": ((words, words), {}, (sequence,)),
        "LSTM": ((words, words), {}, (sequence,)),
        "GRU": ((words, words), {}, (sequence,)),
        "LSTMCell": ((words, words), {}, (sequence[0],)),
        "GRUCell": ((words, words), {}, (sequence[0],)),
        "MultiheadAttention": ((width, s.heads), {"batch_first": True}, (tokens,) * 3),
        "TransformerEncoderLayer": ((width, s.heads, 2 * width), PLAIN, (tokens,)),
        "TransformerDecoderLayer": ((width, s.heads, 2 * width), PLAIN, (tokens, tokens)),
        "MaxPool2d": ((2,), {}, (images,)),
        "AvgPool2d": ((2,), {}, (images,)),
        "AdaptiveAvgPool2d": ((1,), {}, (images,)),
        "AdaptiveMaxPool2d": ((5,), {}, (images,)),
        "Upsample": ((), {"scale_factor": 2, "mode": "bilinear"}, (images,)),
        "UpsamplingNearest2d": ((), {"scale_factor": 2}, (images,)),
        "PixelShuffle": ((2,), {}, (images,)),
        "ReflectionPad2d": ((2,), {}, (images,)),
        "Unfold": ((3,), {}, (images,)),
        **{name: ((), {}, (rows,)) for name in OF_ROWS},
        "Softmax": ((-1,), {}, (rows,)),
        **{name: ((), {}, (rows, target)) for name in OF_PAIRS},
        "CrossEntropyLoss": ((), {}, (scores, labels)),
        "NLLLoss": ((), {}, (scores, labels)),
        "MultiMarginLoss": ((), {}, (scores, labels)),
        "BCEWithLogitsLoss": ((), {}, (rows, ones)),
        "KLDivLoss": ((), {"reduction": "batchmean"}, (rows, ones)),
        "CosineSimilarity": ((), {}, (rows, target)),
        "CosineEmbeddingLoss": ((), {}, (rows, target, np.sign(_reals(n)))),
        "TripletMarginLoss": ((), {}, (rows, target, _reals(*s.rows))),
    }


LAYERS = {size: layers_of(scale) for size, scale in SCALES.items()}


def functions_of(
    library: Any, size: str, name: str, state: dict[str, Any]
) -> list[Callable[[], Any]]:
    """A forward that is not recorded, and a forward with all gradients."""
    args, options, inputs = LAYERS[size][name]
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


def cases(names: Sequence[str], sizes: Sequence[str] = ("small",)) -> Iterator[Case]:
    """Forward and training step of each layer.

    Raises:
        AssertionError: ours gives something else than PyTorch's.
    """
    for size, name in itertools.product(sizes, names):
        args, options, _ = LAYERS[size][name]
        torch.manual_seed(0)
        layer = getattr(torch.nn, name)(*args, **options)
        state = {k: np.array(v.numpy()) for k, v in layer.state_dict().items()}
        pairs = zip(
            ("forward", "training"),
            functions_of(tinytorch, size, name, state),
            functions_of(torch, size, name, state),
            strict=True,
        )
        for what, ours, theirs in pairs:
            for _ in range(WARM):
                found, wanted = ours(), theirs()
            np.testing.assert_allclose(
                found.detach().numpy(), wanted.detach().numpy(), SAME, SAME, err_msg=name
            )
            yield Case(
                f"{name}, {size}", f"{name}, {size}, {what}", {"ours": ours, "torch": theirs}
            )


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


if __name__ == "__main__":
    run(__doc__, LAYERS["small"], cases, report, sizes=[*SCALES])
