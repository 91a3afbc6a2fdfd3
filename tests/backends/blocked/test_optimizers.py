from __future__ import annotations

import numpy as np
import pytest

from tinytorch.backends.blocked.optimizers import adam_step, sgd_step
from tinytorch.jit import threads

torch = pytest.importorskip("torch")
STEPS = 20


def run(optimizer, update, rng, dtype):
    """The parameters after some steps, ours and PyTorch's, from the same gradients."""
    start = rng.standard_normal((5, 7)).astype(dtype)
    ours, theirs = start.copy(), torch.from_numpy(start.copy()).requires_grad_()
    reference = optimizer([theirs])
    for step in range(1, STEPS + 1):
        g = rng.standard_normal(start.shape).astype(dtype)
        update(ours, g, step)
        theirs.grad = torch.from_numpy(g)
        reference.step()
    return ours, theirs.detach().numpy()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "momentum, dampening, nesterov",
    [(0, 0, False), (0.9, 0, False), (0.9, 0, True), (0.8, 0.3, False)],
)
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
def test_sgd_equals_torch(momentum, dampening, nesterov, weight_decay, dtype, rng):
    options = dict(
        lr=0.1, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov
    )
    buf = np.full((5, 7), np.nan, dtype) if momentum else None
    ours, theirs = run(
        lambda p: torch.optim.SGD(p, **options),
        lambda p, g, step: sgd_step(p, g, buf, first=step == 1, **options),
        rng,
        dtype,
    )
    np.testing.assert_allclose(ours, theirs, rtol=100 * np.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
def test_adam_equals_torch(decoupled, weight_decay, dtype, rng):
    m, v = np.zeros((5, 7), dtype), np.zeros((5, 7), dtype)
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    ours, theirs = run(
        lambda p: kind(p, lr=0.01, betas=(0.8, 0.95), eps=1e-7, weight_decay=weight_decay),
        lambda p, g, step: adam_step(
            p, g, m, v, np.array(step - 1.0), lr=0.01, beta1=0.8, beta2=0.95, eps=1e-7,
            weight_decay=weight_decay, decoupled=decoupled,
        ),
        rng,
        dtype,
    )  # fmt: skip
    np.testing.assert_allclose(ours, theirs, rtol=100 * np.finfo(dtype).eps, atol=1e-6)


def test_parameters_must_be_contiguous():
    p = np.zeros((4, 6))[:, ::2]
    with pytest.raises(ValueError, match=r"shape \(4, 3\) has strides \(48, 16\)"):
        sgd_step(
            p, p, None, lr=1, momentum=0, dampening=0, weight_decay=0, nesterov=False, first=True
        )


def test_gradients_may_be_views_and_threads_share(monkeypatch, rng):
    monkeypatch.setattr(threads, "SERIAL_BELOW", 10)
    monkeypatch.setattr(threads._State, "num_threads", 2)
    p, g = np.ones((6, 5)), rng.standard_normal((5, 6)).T
    sgd_step(
        p, g, None, lr=0.5, momentum=0, dampening=0, weight_decay=0, nesterov=False, first=True
    )
    np.testing.assert_allclose(p, 1 - 0.5 * g)


def test_nan_gradients_show():
    p, m, v = np.ones(3, np.float32), np.zeros(3, np.float32), np.zeros(3, np.float32)
    g = np.array([1, np.nan, 1], np.float32)
    adam_step(
        p, g, m, v, np.zeros(()), lr=0.1, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0,
        decoupled=False,
    )  # fmt: skip
    np.testing.assert_array_equal(np.isnan(p), [False, True, False])


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize("momentum", [0, 0.9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_of_any_layout_and_dtype_give_the_same_step(dtype, momentum, rng):
    start = rng.standard_normal((6, 5)).astype(dtype)
    g = rng.standard_normal((6, 5)).astype(np.float32)
    unaligned = np.frombuffer(bytearray(1 + start.nbytes), np.uint8)[1:].view(dtype).reshape(6, 5)
    unaligned[...] = g
    wide = np.zeros((12, 10), dtype)
    wide[::2, ::2] = g
    forms = [g.astype(dtype), np.asfortranarray(g.astype(dtype)), wide[::2, ::2], unaligned, g]
    steps = []
    for form in forms:
        p, m, v, buf = start.copy(), *(np.full((6, 5), 0.5, dtype) for _ in range(3))
        sgd_step(
            p, form, buf if momentum else None, lr=0.1, momentum=momentum, dampening=0,
            weight_decay=0.05, nesterov=False, first=False,
        )  # fmt: skip
        adam_step(
            p, form, m, v, np.array(1.0), lr=0.1, beta1=0.8, beta2=0.9, eps=1e-8,
            weight_decay=0.05, decoupled=False,
        )  # fmt: skip
        steps.append(p)
    for other in steps[1:]:
        np.testing.assert_allclose(other, steps[0], rtol=1e-6)
