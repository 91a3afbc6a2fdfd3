"""How to draw inputs and parameters for connectionist temporal classification."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.testing.source import Sample, Source, samples


def _sequences(s: Source) -> Sample:
    """Targets with labels that repeat, of length 0, and too long for their inputs."""
    times, n, classes = s.integer(1, 7), s.extent(1), s.integer(2, 5)
    longest = s.integer(0, 3)
    scores = s.normal((times, n, classes)).astype(np.float64)
    if not s.smooth:
        scores = scores + 20 * (s.rng.random(scores.shape) < 0.1)  # some are almost certain
    log_probs = scores - np.log(np.exp(scores).sum(2, keepdims=True))
    blank = s.integer(0, classes - 1)
    targets = (blank + 1 + s.index((n, longest), classes - 1)) % classes
    sizes = s.rng.integers(0, longest + 1, n)
    spans = s.rng.integers(0, times + 1, n)
    if s.smooth:  # a loss of infinity has no gradient to compare
        spans[:] = times
        sizes = np.minimum(sizes, (times + 1) // 2)
    params = {"blank": blank, "zero_infinity": s.flag()}
    return Sample((log_probs.astype(s.dtype), targets, spans, sizes), params)


def _torch_ctc_loss(torch: Any, x: Any, targets: Any, spans: Any, sizes: Any, **params: Any) -> Any:
    """PyTorch's, with the gradient for what is given: its own is that for the scores before
    `log_softmax`, which takes something from each alignment at each time."""
    loss, rows = torch.nn.functional.ctc_loss, torch.log_softmax(x, 2)
    given = targets, spans, sizes, params["blank"], "none"
    losses, is_lost = loss(rows, *given, params["zero_infinity"]), loss(rows, *given).isinf()
    counts = torch.arange(len(x)).unsqueeze(1) < spans
    taken = (torch.logsumexp(x, 2) * counts).sum(0)
    return torch.where(is_lost, losses, losses - taken)


@samples("ctc_loss", torch=_torch_ctc_loss)
def _ctc_loss(s: Source) -> Sample:
    return _sequences(s)


@samples("ctc_loss_backward")
def _ctc_loss_backward(s: Source) -> Sample:
    sample = _sequences(s)
    g: Any = s.normal(sample.inputs[2].shape)
    return Sample((g, *sample.inputs), sample.params)
