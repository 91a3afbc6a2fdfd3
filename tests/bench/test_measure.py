from __future__ import annotations

import gc
import json
import time
import tracemalloc

import numpy as np
import pytest

import tinytorch
from tinytorch.backends.numpy import NumpyBackend

MIB = 1 << 20


def test_time_counts_and_memory_of_a_block() -> None:
    x = tinytorch.ones(256, 256)
    with tinytorch.benchmark() as b:
        y = x @ x
        time.sleep(0.02)
    assert b.seconds >= 0.02
    assert b.cpu_seconds > 0
    assert (b.calls, b.flops) == (1, 2 * 256**3)
    assert b.bytes == 3 * y.nbytes
    assert b.peak_bytes == b.current_bytes == y.nbytes


def test_memory_that_is_let_go_no_longer_counts() -> None:
    x = tinytorch.ones(MIB // 4)
    with tinytorch.benchmark() as b:
        a = x + 1.0
        c = a * 2.0
        assert b.current_bytes == 2 * MIB
        del a
        assert b.current_bytes == MIB
        d = c + 1.0
        del c, d
    assert (b.peak_bytes, b.current_bytes) == (2 * MIB, 0)


def test_two_blocks_of_one_benchmark_add_up() -> None:
    x, b = tinytorch.ones(MIB // 4), tinytorch.benchmark()
    with b:
        y = (x + 1.0) + 1.0
        time.sleep(0.02)
    with b:
        z = x + 1.0
        time.sleep(0.02)
    assert b.seconds >= max(0.04, b.total.seconds) and b.calls == 3
    assert (b.peak_bytes, b.current_bytes) == (y.nbytes + x.nbytes, z.nbytes)


def test_a_view_adds_nothing_and_keeps_its_base() -> None:
    x = tinytorch.ones(MIB // 4)
    with tinytorch.benchmark() as b:
        a = x + 1.0
        view = a.reshape(2, -1)
        assert b.current_bytes == MIB
        del a
        assert b.current_bytes == MIB
        del view
        assert b.current_bytes == 0


def test_views_of_what_was_there_before_do_not_count() -> None:
    x = tinytorch.ones(MIB // 4)
    with tinytorch.benchmark() as b:
        x.reshape(2, -1)
        x.detach()
    assert b.peak_bytes == 0


def test_saved_activations_count_until_backward_frees_them() -> None:
    x = tinytorch.ones(MIB // 4, requires_grad=True)
    with tinytorch.benchmark() as b:
        loss = x.exp().exp().exp().sum()
        held = b.current_bytes
        loss.backward()
        del loss
    assert 3 * MIB <= held < 3.1 * MIB
    assert b.current_bytes == MIB  # x.grad


def test_memory_agrees_with_tracemalloc() -> None:
    """The interpreter and kernels' scratch memory account for the allowance of 10 %."""
    x = tinytorch.ones(MIB // 4)

    def work() -> None:
        a = x + 1.0
        c = (a * a).reshape(1024, -1)
        del a
        (c @ c.T).sum()

    work()
    with tinytorch.benchmark() as b:
        work()
    gc.collect()
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert b.peak_bytes == pytest.approx(peak, rel=0.1)


def test_recycled_memory_counts_while_it_is_held() -> None:
    """A backend may hand out views of blocks that it keeps."""
    block = np.empty(MIB // 4, np.float32)

    class Recycling(NumpyBackend):
        def exp(self, a):  # type: ignore[no-untyped-def]
            out = np.ndarray(a.shape, a.dtype, block)
            return np.exp(a, out=out)

    x = tinytorch.ones(MIB // 4)
    with tinytorch.using_backend(Recycling()), tinytorch.benchmark() as b:
        y = x.exp()
        assert b.current_bytes == MIB
        del y
        assert b.current_bytes == 0
        y = x.exp()
    assert (b.current_bytes, b.peak_bytes) == (MIB, MIB)
    assert y.shape == x.shape


def test_a_block_that_raises_is_measured_and_ended() -> None:
    with pytest.raises(tinytorch.ShapeError), tinytorch.benchmark() as b:
        tinytorch.ones(2, 3) @ tinytorch.ones(2, 3)
    assert b.seconds > 0
    before = b.calls
    tinytorch.ones(2)
    assert b.calls == before


def test_it_prints_a_table() -> None:
    x = tinytorch.ones(64, 64)
    with tinytorch.benchmark() as b:
        x @ x
    lines = str(b).splitlines()
    assert lines[0].split() == ["what", "this", "block"]
    assert "peak memory of results" in str(b) and "16 KiB" in str(b)
    op = next(line for line in lines if line.startswith("matmul"))
    assert op.split()[1] == "1" and "524 k" in op


def test_to_dict_is_json_ready() -> None:
    with tinytorch.benchmark() as b:
        tinytorch.ones(3).exp()
    report = json.loads(json.dumps(b.to_dict()))
    assert report["ops"]["exp"]["calls"] == 1
    assert set(report) >= {"seconds", "cpu_seconds", "peak_bytes", "current_bytes", "flops"}
