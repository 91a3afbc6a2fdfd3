"""Where the randomness of data comes from: a generator or a seed that is passed in."""

from __future__ import annotations

import operator

import numpy as np

from tinytorch.random import Generator, default_generator

Randomness = Generator | np.random.Generator | int | None


def as_seed(generator: Randomness) -> int:
    """A non-negative seed: the int itself, or one drawn from the generator.

    None draws from the default generator, which `tinytorch.manual_seed` sets.

    Raises:
        ValueError: the seed is negative.
    """
    if generator is None or isinstance(generator, Generator):
        return (generator or default_generator).draw_seed() % 2**63  # they may be negative
    if isinstance(generator, np.random.Generator):
        return int(generator.integers(2**63))
    seed = operator.index(generator)
    if seed < 0:
        raise ValueError(f"a seed must be 0 or more, got {seed}")
    return seed


def as_generator(generator: Randomness) -> np.random.Generator:
    """The NumPy generator itself, or a new one from a seed (see `as_seed`)."""
    if isinstance(generator, np.random.Generator):
        return generator
    return np.random.default_rng(as_seed(generator))


def generator_at(seed: int, *position: int) -> np.random.Generator:
    """The generator of one place in a run, say (epoch, batch): a function of its arguments alone.

    So what happens at that place does not depend on what was drawn before it, nor in which thread.
    It is `np.random.default_rng` of a `np.random.SeedSequence` of the seed, whose `spawn_key` is
    the position: near seeds and near positions then give independent numbers.

    >>> int(generator_at(7, 2, 5).integers(1000)), int(generator_at(7, 2, 6).integers(1000))
    (518, 973)
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=position))


def shuffled(samples: int, seed: int, epoch: int) -> list[int]:
    """The numbers 0, ..., samples - 1 in the random order of an epoch, as Python's ints.

    The order is the `permutation(samples)` of `generator_at(seed, epoch)`: the same in every run,
    and another one in each epoch.

    >>> shuffled(4, seed=0, epoch=0) == shuffled(4, seed=0, epoch=0)
    True
    """
    return generator_at(seed, epoch).permutation(samples).tolist()  # type: ignore[no-any-return]
