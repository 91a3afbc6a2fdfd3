"""Every registered backend, on every op of the table, over generated shapes, layouts and values."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.backends.loading import load
from tinytorch.backends import list_backends
from tinytorch.jit import threads
from tinytorch.op import OPS
from tinytorch.testing.conformance import assert_conforms
from tinytorch.testing.op_samples import admitted_dtypes, draw_sample

_dtypes = cache(admitted_dtypes)


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
@pytest.mark.parametrize("backend", [b for b in list_backends() if b != "numpy"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(random=st.randoms(use_true_random=False))
def test_conforms(backend, op, random):
    sample = draw_sample(op.name, random, "edges", random.choice(_dtypes(op.name)))
    assert_conforms(load(backend), op, sample)


@pytest.mark.slow(seconds=5)
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
@pytest.mark.parametrize(
    "backend", ["optimized", pytest.param("blocked", marks=pytest.mark.exhaustive)]
)
def test_conforms_on_several_threads(backend, op, monkeypatch):
    """However small: many kinds of shapes one after another, as a process would meet them."""
    monkeypatch.setattr(threads, "SERIAL_BELOW", 1)
    before = threads.get_num_threads()
    random = Random(op.name)
    loaded = load(backend)
    dtype = "float32" if "float32" in _dtypes(op.name) else _dtypes(op.name)[0]
    threads.set_num_threads(threads.cores())
    try:
        for _ in range(60):
            assert_conforms(loaded, op, draw_sample(op.name, random, "edges", dtype))
    finally:
        threads.set_num_threads(before)


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_op_has_samples_of_its_dtypes(op):
    assert admitted_dtypes(op.name), f"no dtype of the samples of {op.name} is admitted"


def test_an_op_without_samples_fails_with_a_clear_sentence():
    with pytest.raises(LookupError, match=r"the op 'nosuch' has no sample generator: add one to "):
        draw_sample("nosuch", Random(0), "edges")
