from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from tinytorch.jit import buffers
from tinytorch.jit.buffers import BufferPool

F32 = np.dtype(np.float32)


def address(x):
    return x.__array_interface__["data"][0]


@pytest.fixture
def pool():
    return BufferPool(limit=1 << 24)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (7, 5), (1000, 300)])
def test_arrays_are_aligned_and_contiguous(pool, shape):
    x = pool.empty(shape, F32)
    assert x.shape == shape and x.dtype == F32
    assert x.flags.c_contiguous and x.flags.writeable
    assert address(x) % buffers.ALIGNMENT == 0


def test_memory_is_used_again_when_its_array_is_gone(pool):
    x = pool.empty((100, 100), F32)
    first = address(x)
    del x
    assert address(pool.empty((99, 100), F32)) == first


def test_of_several_blocks_the_one_of_the_last_array_is_used_again(pool):
    # it is in the caches; the others would be read from memory in turns
    arrays = [pool.empty((100, 100), F32) for _ in range(4)]
    last = address(arrays[-1])
    del arrays
    for _ in range(3):
        x = pool.empty((100, 100), F32)
        assert address(x) == last
        del x


def test_as_many_blocks_are_used_as_are_held_at_once(pool):
    # what held two has them again, though others are free: all of them do not fit into the caches
    arrays = [pool.empty((100, 100), F32) for _ in range(6)]
    del arrays
    for count in (2, 3, 4):
        seen = set()
        for _ in range(5):
            held = [pool.empty((100, 100), F32) for _ in range(count)]
            seen.update(map(address, held))
            del held
        assert len(seen) == count


@pytest.mark.parametrize(
    "hold",
    [
        lambda x: x,
        lambda x: x[3:],
        lambda x: x[1:].T[2:][::-1],
        lambda x: x.reshape(-1).view(np.int32),
        lambda x: memoryview(x),
        lambda x: np.frombuffer(memoryview(x).cast("B"), np.uint8)[4:],
        lambda x: np.broadcast_to(x[0], (5, 100)),
        lambda x: x[0].__array_interface__ and x.flat,
    ],
    ids=["array", "slice", "views", "view", "memoryview", "frombuffer", "broadcast", "flat"],
)
def test_memory_is_not_used_again_while_somebody_holds_it(pool, hold):
    x = pool.empty((100, 100), F32)
    first = address(x)
    held = hold(x)
    del x
    for _ in range(3):
        other = pool.empty((100, 100), F32)
        assert address(other) != first
        del other
    del held
    gc.collect()
    # within as many looks as there are blocks, the first one turns up again
    kept = [pool.empty((100, 100), F32) for _ in range(2)]
    assert first in map(address, kept)


def test_torch_holds_memory_too(pool):
    torch = pytest.importorskip("torch")
    x = pool.empty((64, 64), F32)
    first = address(x)
    tensor = torch.from_numpy(x)[1:]
    del x
    assert address(pool.empty((64, 64), F32)) != first
    assert tensor.shape == (63, 64)


def test_the_pool_is_bounded():
    pool = BufferPool(limit=1 << 20)
    arrays = [pool.empty((1 << 16,), F32) for _ in range(20)]  # 256 KiB each
    assert pool.held <= 1 << 20
    assert len({address(x) for x in arrays}) == 20  # beyond the limit: ordinary memory
    del arrays
    big = pool.empty((1 << 18,), F32)  # free blocks of another size make room
    assert pool.held <= 1 << 20
    first = address(big)
    del big
    assert address(pool.empty((1 << 18,), F32)) == first


def test_an_array_above_the_limit_is_not_kept():
    pool = BufferPool(limit=1000)
    assert pool.empty((10_000,), F32).size == 10_000
    assert pool.held == 0


def test_clear(pool):
    x = pool.empty((100, 100), F32)
    x[...] = 5
    pool.clear()
    assert pool.held == 0
    assert (x == 5).all()


def test_threads_never_share_a_block(pool):
    failures = []

    def work(value):
        for _ in range(2000):
            x = pool.empty((64,), F32)
            x.fill(value)
            if not (x == value).all():
                failures.append(value)
            del x

    many = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in many:
        t.start()
    for t in many:
        t.join()
    assert not failures


def test_size_classes_waste_little():
    for nbytes in [1, 1000, 1025, 5000, 65536, 65537, 10**6, 10**8 + 1]:
        size = buffers.size_class(nbytes)
        assert size >= nbytes and size % 64 == 0
        assert size <= max(1024, 1.25 * nbytes + 256)


def test_entry_functions():
    x = np.zeros((300, 300), np.float32).T
    for y in (buffers.empty((300, 300), F32), buffers.empty_like(x)):
        assert y.shape == (300, 300) and y.dtype == F32 and y.flags.c_contiguous
    assert buffers.empty_like(x[:2]).flags.c_contiguous  # np.empty_like would keep the layout
    assert buffers.workspace((3,), F32).shape == (3,)


def owner(x):
    return x if x.base is None else owner(x.base)


@pytest.mark.parametrize("shape", [(128, 784), (300, 300), (1 << 15,)])
def test_who_owns_all_of_a_block_takes_it_out_of_the_pool(pool, monkeypatch, shape):
    monkeypatch.setattr(buffers, "pool", pool)
    others = [pool.empty(shape, F32) for _ in range(3)]
    x, last = pool.empty(shape, F32), pool.empty(shape, F32)
    held, block = pool.held, owner(x)
    assert buffers.own(x, block)
    assert pool.held == held - (block.nbytes - buffers.ALIGNMENT)
    assert not pool.holds(block) and all(pool.holds(owner(y)) for y in (*others, last))
    assert not buffers.own(x, block)  # it is not there any more
    del x
    assert owner(pool.empty(shape, F32)) is not block


def test_a_part_of_memory_does_not_own_it(pool, monkeypatch):
    monkeypatch.setattr(buffers, "pool", pool)
    x, plain = pool.empty((300, 300), F32), np.zeros((4, 4), F32)
    held = pool.held
    assert not buffers.own(x[:150], owner(x))
    assert not buffers.own(plain[:2], plain) and buffers.own(plain.T, plain)
    assert not buffers.own(np.frombuffer(bytearray(64), F32)[:4], np.zeros(64, np.uint8))
    assert pool.held == held and pool.holds(owner(x))


def test_threads_release_blocks_while_others_take_some(pool):
    def work(failures):
        for _ in range(500):
            x = pool.empty((64,), F32)
            pool.release(owner(x))
            x.fill(len(failures))
            del x

    run_in_threads = [threading.Thread(target=work, args=([],)) for _ in range(4)]
    for t in run_in_threads:
        t.start()
    for t in run_in_threads:
        t.join()
    held = sum(size * len(blocks) for size, blocks in pool._classes.items())
    assert pool.held == held >= 0
