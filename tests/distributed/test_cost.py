"""The model of a link finds the link that times were made with."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tinytorch.distributed import Link, fit_link


@given(st.floats(1e-6, 1e-2), st.floats(1e6, 1e11), st.integers(0, 1000))
def test_a_fit_finds_latency_and_bandwidth(latency: float, bandwidth: float, seed: int) -> None:
    link = Link(latency, bandwidth)
    nbytes = latency * bandwidth * np.array([0.1, 1.0, 10.0, 100.0])
    noise = np.random.default_rng(seed).uniform(0.99, 1.01, 4)
    seconds = [link.seconds(n, 2) * f for n, f in zip(nbytes, noise, strict=True)]
    found = fit_link(nbytes, [2] * 4, seconds)
    assert found.latency == pytest.approx(latency, rel=0.1)
    assert found.bandwidth == pytest.approx(bandwidth, rel=0.1)


def test_what_no_link_explains() -> None:
    with pytest.raises(ValueError, match="at least two sizes"):
        fit_link([1e6, 1e6], [2, 2], [1.0, 1.1])
    with pytest.raises(ValueError, match="no link explains"):
        fit_link([1e3, 1e6], [1, 1], [2.0, 1.0])
    for seconds in (0.0, -1e-3, float("nan")):
        with pytest.raises(ValueError, match="no link explains a time of"):
            fit_link([1e3, 1e6], [1, 1], [1.0, seconds])


@given(st.integers(2, 8192))
def test_an_all_reduce_never_sends_more_than_twice_its_bytes(ranks: int) -> None:
    link = Link(0.0, 1.0)
    assert 1.0 <= link.ring_all_reduce(1.0, ranks) < 2.0
    assert Link(1.0, 1e30).ring_all_reduce(1.0, ranks) == pytest.approx(2 * (ranks - 1))


@given(st.integers(2, 64), st.integers(1, 64))
def test_ranks_beyond_the_processors_take_turns(ranks: int, processors: int) -> None:
    link = Link(1e-4, 1e9)
    alone, shared = link.ring_all_reduce(1e6, ranks), link.ring_all_reduce(1e6, ranks, processors)
    assert shared == pytest.approx(alone * max(ranks, processors) / processors)


def test_overlap_hides_at_most_the_messages() -> None:
    link = Link(0.0, 1e6)
    assert link.data_parallel_step(1.0, 1e6, 2, overlap=0.4) == pytest.approx(1.6)
    assert link.data_parallel_step(1.0, 1e6, 2, overlap=9.0) == 1.0
