from __future__ import annotations

import numpy as np
import pytest

from tinytorch.jit import threads
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared


@kernel
def scale(x, factor, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * factor


run = shared(scale, "x[:], factor, out[:]")


@pytest.mark.parametrize("rows", [0, 1, 2, 7])
def test_every_row_is_done_by_one_thread(rng, monkeypatch, rows):
    called = []

    def run_parallel(parallel, serial, count, *arguments):
        called.append(count)
        parallel(count, *arguments)

    monkeypatch.setattr(threads._State, "num_threads", 2)
    monkeypatch.setattr(threads, "run_parallel", run_parallel)
    x = rng.standard_normal((rows, 3))
    out = np.full_like(x, np.nan)
    run(threads.SERIAL_BELOW, x, 2.0, out)
    np.testing.assert_array_equal(out, 2 * x)
    assert called == [2]


def test_little_work_is_done_at_once(monkeypatch):
    monkeypatch.setattr(threads._State, "num_threads", 2)
    monkeypatch.setattr(threads, "run_parallel", None)
    x = np.ones((4, 3))
    out = np.empty_like(x)
    run(threads.SERIAL_BELOW - 1, x, 3.0, out)
    np.testing.assert_array_equal(out, 3 * x)
