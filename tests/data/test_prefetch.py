from __future__ import annotations

import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest
from hypothesis import given, strategies as st

from tinytorch.data.prefetch import prefetch

WAIT = 120.0


def loaders() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "tinytorch-prefetch"]


@given(st.lists(st.integers()), st.integers(1, 5))
def test_same_items_in_the_same_order(items: list[int], depth: int) -> None:
    assert list(prefetch(items, depth)) == items
    assert not loaders()


def test_items_are_made_ahead_but_no_more_than_depth() -> None:
    made = threading.Semaphore(0)

    def source() -> Iterator[int]:
        for i in range(100):
            made.release()
            yield i

    def made_now(expected: int) -> bool:
        arrived = all(made.acquire(timeout=WAIT) for _ in range(expected))
        return arrived and not made.acquire(timeout=0.05)

    items = prefetch(source(), depth=3)
    assert not loaders()  # nothing starts before the first item is asked for
    assert next(items) == 0
    assert made_now(3)
    assert next(items) == 1  # the consumer came back, so item 0 is done with
    assert made_now(1)
    items.close()


def test_an_error_arrives_after_the_items_before_it() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise OSError("disk on fire")

    items = prefetch(source(), depth=4)
    assert next(items) == 1
    with pytest.raises(OSError, match="disk on fire") as caught:
        next(items)
    assert caught.traceback[-1].name == "source"
    assert not loaders()


def test_closing_stops_the_thread_and_closes_the_source() -> None:
    closed = threading.Event()

    def source() -> Iterator[int]:
        try:
            while True:
                yield 0
        finally:
            closed.set()

    for item in prefetch(source(), depth=2):
        assert item == 0
        break  # the generator is dropped here, with the thread waiting for a free slot
    assert not loaders()
    assert closed.is_set()


def test_the_thread_runs_in_the_context_of_its_consumer() -> None:
    backend: ContextVar[str] = ContextVar("backend", default="outer")

    def source() -> Iterator[str]:
        yield backend.get()

    token = backend.set("inner")
    assert list(prefetch(source(), 1)) == ["inner"]
    backend.reset(token)
