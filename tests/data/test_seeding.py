from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tinytorch.data.seeding import as_generator, as_seed, generator_at, shuffled


def test_none_draws_from_the_global_seed() -> None:
    tinytorch.manual_seed(5)
    first, second = as_seed(None), as_seed(None)
    tinytorch.manual_seed(5)
    assert (as_seed(None), as_seed(None)) == (first, second)
    assert first != second


def test_a_generator_is_used_itself_and_a_seed_makes_one(rng: np.random.Generator) -> None:
    assert as_generator(rng) is rng
    assert as_generator(3).random() == np.random.default_rng(3).random()
    assert as_seed(np.random.default_rng(3)) == as_seed(np.random.default_rng(3))


def test_each_place_has_its_own_stream() -> None:
    places = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)]
    assert len({generator_at(7, *place).random() for place in places}) == len(places)
    assert generator_at(7, 1, 2).random() == generator_at(7, 1, 2).random()
    assert generator_at(7, 1, 2).random() != generator_at(8, 1, 2).random()


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="a seed must be 0 or more, got -1"):
        as_generator(-1)


def test_an_order_is_a_function_of_seed_and_epoch() -> None:
    orders = [shuffled(40, seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    assert all(sorted(order) == list(range(40)) for order in orders)
    assert len(set(map(tuple, orders))) == len(orders)
    assert shuffled(40, 1, 2) == orders[-1] and type(orders[0][0]) is int
