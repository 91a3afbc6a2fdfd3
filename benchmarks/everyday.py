"""Lines as programs have them, between the layers, beside PyTorch's: forward, and with gradients.

`ops.py` calls each function on a matrix, `layers.py` each layer. Here are lines that people write:
on (batch, time, features), on images, on scores of classes; with indices, masks and slices, and in
place. Ratios are ours / PyTorch: 2.00 says that we take twice as long. One thread, CPU time,
interleaved samples; results must agree before anything is timed.
"""

import thread_count  # noqa: F401, I001 - before NumPy

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from beside_torch import run
from runner import Case, Result

import tinytorch
from tinytorch.bench import format_seconds, format_table
from tinytorch.replay.function import HOT

Line = Callable[..., Any]  # of the library and its tensors
WARM = 2 * HOT
SAME = 1e-2
RNG = np.random.default_rng(0)
N, TIME, WIDTH, HEADS, CLASSES = 8, 128, 256, 8, 1000


def _reals(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def _whole(most: int, *shape: int) -> Any:
    return RNG.integers(0, most, shape)


TEXT, OTHER_TEXT = _reals(N, TIME, WIDTH), _reals(N, TIME, WIDTH)
IMAGES, SCORES = _reals(16, 32, 28, 28), _reals(256, CLASSES)
ATTENTION, SPLIT = _reals(N, HEADS, TIME, TIME), _reals(N, TIME, HEADS, WIDTH // HEADS)
QUERY, KEY, VALUE = (_reals(N, HEADS, TIME, WIDTH // HEADS) for _ in range(3))
LABELS, PLACES = _whole(CLASSES, 256), _whole(256, 128)
CAUSAL, PRESENT = np.tril(np.ones((TIME, TIME), bool)), RNG.random((N, TIME)) > 0.2
POINTS, OTHER_POINTS, CHANNELS = _reals(256, 32), _reals(256, 32), _reals(32)
SMALL = _reals(32, 64)
HALF = WIDTH // 2

#: The line, and the arrays of its tensors.
LINES: dict[str, tuple[Line, Sequence[Any]]] = {
    # text
    "softmax over time": (lambda lib, x: lib.softmax(x, 1), [TEXT]),
    "mean over time": (lambda lib, x: x.mean(1), [TEXT]),
    "largest over time": (lambda lib, x: x.max(1)[0], [TEXT]),
    "mean of what is present": (
        lambda lib, x, m: (x * m.unsqueeze(-1)).sum(1) / m.sum(1, keepdim=True),
        [TEXT, PRESENT.astype(np.float32)],
    ),
    "last step": (lambda lib, x: x[:, -1] * 2, [TEXT]),
    "differences": (lambda lib, x: x[:, 1:] - x[:, :-1], [TEXT]),
    "every second step": (lambda lib, x: x[:, ::2] * 2, [TEXT]),
    "gated halves": (lambda lib, x: x[..., :HALF] * lib.sigmoid(x[..., HALF:]), [TEXT]),
    "rotated halves": (lambda lib, x: lib.cat([-x[..., HALF:], x[..., :HALF]], -1), [TEXT]),
    "pairs": (lambda lib, x: x[..., ::2] * x[..., 1::2], [TEXT]),
    "running sum": (lambda lib, x: x.cumsum(1), [TEXT]),
    "positions": (lambda lib, x, p: x + p, [TEXT, _reals(1, TIME, WIDTH)]),
    "one after the other": (lambda lib, x, y: lib.cat([x, y], 1), [TEXT, OTHER_TEXT]),
    "stacked": (lambda lib, x, y: lib.stack([x, y], 1), [TEXT, OTHER_TEXT]),
    "normalized by hand": (
        lambda lib, x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt(),
        [TEXT],
    ),
    "rows of length one": (lambda lib, x: lib.nn.functional.normalize(x, dim=-1), [TEXT]),
    "those present": (lambda lib, x, m: x[m], [TEXT, PRESENT]),
    # attention
    "heads apart": (lambda lib, x: x.transpose(1, 2).contiguous(), [SPLIT]),
    "heads together": (lambda lib, x: x.transpose(1, 2).reshape(N, TIME, WIDTH), [QUERY]),
    "scores": (lambda lib, q, k: q @ k.transpose(-1, -2), [QUERY, KEY]),
    "scores by einsum": (lambda lib, q, k: lib.einsum("bthd,bshd->bhts", q, k), [SPLIT, SPLIT]),
    "causal": (lambda lib, x, m: x.masked_fill(~m, float("-inf")), [ATTENTION, CAUSAL]),
    "attention by hand": (
        lambda lib, q, k, v, m: (
            lib.softmax((q @ k.transpose(-1, -2) / 5.6).masked_fill(~m, float("-inf")), -1) @ v
        ),
        [QUERY, KEY, VALUE, CAUSAL],
    ),
    # images
    "channels last": (lambda lib, x: x.permute(0, 2, 3, 1).contiguous(), [IMAGES]),
    "as tokens": (lambda lib, x: x.flatten(2).transpose(1, 2).contiguous(), [IMAGES]),
    "pooled": (lambda lib, x: x.mean((2, 3)), [IMAGES]),
    "statistics of channels": (lambda lib, x: x.var((0, 2, 3)), [IMAGES]),
    "cropped": (lambda lib, x: x[:, :, 2:-2, 2:-2] * 2, [IMAGES]),
    "bias of channels": (lambda lib, x, b: x + b[:, None, None], [IMAGES, CHANNELS]),
    "excited channels": (
        lambda lib, x, b: x * lib.sigmoid(b)[:, :, None, None], [IMAGES, _reals(16, 32)],
    ),
    "skip connection": (lambda lib, x, y: lib.cat([x, y], 1), [IMAGES, IMAGES]),
    "loss of each pixel": (
        lambda lib, x, t: lib.nn.functional.cross_entropy(x, t), [IMAGES, _whole(32, 16, 28, 28)],
    ),
    "bytes to floats": (
        lambda lib, x: x.float() / 255, [_whole(256, 64, 1, 28, 28).astype(np.uint8)],
    ),
    # scores of classes
    "log probability by index": (
        lambda lib, x, t: -lib.log_softmax(x, -1)[lib.arange(256), t].mean(), [SCORES, LABELS],
    ),
    "log probability by gather": (
        lambda lib, x, t: lib.log_softmax(x, -1).gather(1, t[:, None]), [SCORES, LABELS],
    ),
    "smoothed labels": (
        lambda lib, x, t: lib.nn.functional.cross_entropy(x, t, label_smoothing=0.1),
        [SCORES, LABELS],
    ),
    "accuracy": (lambda lib, x, t: (x.argmax(1) == t).float().mean(), [SCORES, LABELS]),
    "best five": (lambda lib, x: x.topk(5, -1)[0], [SCORES]),
    "one-hot by comparison": (
        lambda lib, t: (t[:, None] == lib.arange(CLASSES)[None]).float(), [LABELS],
    ),
    "huber by hand": (
        lambda lib, x: lib.where(x.abs() < 1, 0.5 * x * x, x.abs() - 0.5).mean(), [SCORES],
    ),
    # points
    "distances": (
        lambda lib, x, y: ((x[:, None] - y[None]) ** 2).sum(-1), [POINTS, OTHER_POINTS],
    ),
    "rows by index": (lambda lib, x, i: x[i], [SCORES, PLACES]),
    "elements by index": (lambda lib, x, i, j: x[i, j], [SCORES, PLACES, LABELS[:128]]),
    "messages": (
        lambda lib, x, i, y: x.index_add(0, i, y), [SCORES, PLACES, _reals(128, CLASSES)],
    ),
    # small
    "x[0]": (lambda lib, x: x[0], [SMALL]),
    "x[:, 1]": (lambda lib, x: x[:, 1], [SMALL]),
    "x[1:, :2]": (lambda lib, x: x[1:, :2], [SMALL]),
    "x[:, None]": (lambda lib, x: x[:, None], [SMALL]),
    "x.T": (lambda lib, x: x.T, [SMALL]),
    "all rows": (lambda lib, x: [*x][-1], [SMALL]),
    "x.view": (lambda lib, x: x.view(64, 32), [SMALL]),
    "x.reshape": (lambda lib, x: x.reshape(-1), [SMALL]),
    "x.expand": (lambda lib, x: x[0].expand(8, -1), [SMALL]),
    "x.unbind": (lambda lib, x: x[:4].unbind(0)[1], [SMALL]),
    "1 - x": (lambda lib, x: 1 - x, [SMALL]),
    "x ** 2": (lambda lib, x: x**2, [SMALL]),
}  # fmt: skip
#: Of a tensor of its own, in place: no gradients.
IN_PLACE: dict[str, Line] = {
    "x *= 1": lambda lib, x: x.mul_(1.0),
    "x += 0": lambda lib, x: x.add_(0.0),
    "x.zero_()": lambda lib, x: x.zero_(),
    "x[0] = 1": lambda lib, x: x.__setitem__(0, 1.0),
    "x[0, 0] = 1": lambda lib, x: x.__setitem__((0, 0), 1.0),
    "p.add_(g, alpha=-lr)": lambda lib, x: x.add_(x.detach(), alpha=-1e-3),
    "moving average": lambda lib, x: x.mul_(0.5).add_(x, alpha=1.0),
    "p.lerp_(q, 0.1)": lambda lib, x: x.lerp_(x.detach(), 0.1),
    "p.copy_(q)": lambda lib, x: x.copy_(x.detach()),
    "p.clamp_(-1, 1)": lambda lib, x: x.clamp_(-1, 1),
    "x.sum().item()": lambda lib, x: x.sum().item(),
    "torch.tensor(1.0)": lambda lib, x: lib.tensor(1.0),
    "torch.tensor([1.0, 2.0])": lambda lib, x: lib.tensor([1.0, 2.0]),
}


def calls_of(library: Any, name: str) -> list[Callable[[], Any]]:
    """The line unrecorded and, where a gradient comes from it, with all gradients."""
    if name in IN_PLACE:
        own = library.from_numpy(SMALL.copy())
        return [lambda: IN_PLACE[name](library, own)]
    line, arrays = LINES[name]
    tensors = [library.from_numpy(np.array(x)) for x in arrays]
    leaves = [t.requires_grad_(True) for t in tensors if t.is_floating_point()]

    def forward() -> Any:
        with library.no_grad():
            return line(library, *tensors)

    out = line(library, *tensors)
    if not out.requires_grad:
        return [forward]
    seed = library.ones(tuple(out.shape))

    def training() -> Any:
        for leaf in leaves:
            leaf.grad = None
        line(library, *tensors).backward(seed)
        return leaves[0].grad

    return [forward, training]


def cases(names: Sequence[str]) -> Iterator[Case]:
    """Each line, and with its gradients.

    Raises:
        AssertionError: ours gives something else than PyTorch's.
    """
    for name in names:
        pairs = zip(calls_of(tinytorch, name), calls_of(torch, name), strict=True)
        for what, (ours, theirs) in zip(("forward", "training"), pairs, strict=False):
            for _ in range(WARM):
                found, wanted = ours(), theirs()
            if isinstance(wanted, torch.Tensor):
                np.testing.assert_allclose(
                    found.detach().numpy(), wanted.detach().numpy(), SAME, SAME, err_msg=name
                )
            yield Case(name, f"{name}, {what}", {"ours": ours, "torch": theirs})


def report(results: Sequence[Result]) -> None:
    """A row for each, the slowest first, and the middle."""
    ratios = {r.name: r.seconds["ours"] / r.seconds["torch"] for r in results}
    cells = [
        [r.name, format_seconds(r.seconds["ours"]), format_seconds(r.seconds["torch"]),
         f"{ratios[r.name]:.2f}"]
        for r in sorted(results, key=lambda r: -ratios[r.name])
    ]  # fmt: skip
    print("ours / PyTorch, CPU time of one thread\n")
    print(format_table(["line", "ours", "torch", "ratio"], cells))
    middle = math.exp(float(np.median([math.log(ratio) for ratio in ratios.values()])))
    print(f"\nmedian {middle:.2f}, above 1.3 in {sum(q > 1.3 for q in ratios.values())}")


if __name__ == "__main__":
    run(__doc__, [*LINES, *IN_PLACE], cases, report, ";")
