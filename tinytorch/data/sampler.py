"""Samplers: in which order the samples of a dataset are taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from tinytorch.data.seeding import Randomness, as_generator

Index = TypeVar("Index", covariant=True)


class Sampler(Generic[Index]):
    """Gives the numbers of samples, one after another; each iteration is one epoch.

    A subclass defines `__iter__`, and, where it is known, `__len__`.
    """

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __iter__(self) -> Iterator[Index]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, ..., N - 1

    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """A sampler of all samples in random order; or, with replacement, as many as asked for, each
    from all.

    Args:
        data_source: what is sampled; its length counts.
        replacement: a sample may be taken several times.
        num_samples: how many to take; by default as many as there are. Without replacement, more
            than there are means one order after another.
        generator: a generator, or a seed: the same draws in each epoch; None means the default
            generator.

    Raises:
        ValueError: num_samples is no integer from 1 up.

    >>> sorted(RandomSampler("abc", generator=0))
    [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Randomness = None,
    ) -> None:
        if num_samples is not None:
            check_count("num_samples", num_samples)
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator

    @property
    def num_samples(self) -> int:
        """How many samples an epoch has."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        """`self.num_samples` numbers of `len(self.data_source)`, drawn from the generator that
        `as_generator(self.generator)` gives.

        With `self.replacement` they are its `integers`; else its `permutation`s one after another,
        as many as are needed, the last one cut off. Without samples there is nothing.
        """
        rng, total, count = as_generator(self.generator), len(self.data_source), self.num_samples
        if self.replacement:
            return iter(rng.integers(0, total, count).tolist())
        rounds = -(-count // max(total, 1))
        order = [i for _ in range(rounds) for i in rng.permutation(total).tolist()]
        return iter(order[:count])

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given numbers in random order.

    >>> sorted(SubsetRandomSampler([5, 7], generator=0))
    [5, 7]
    """

    def __init__(self, indices: Sequence[int], generator: Randomness = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        order = as_generator(self.generator).permutation(len(self.indices))
        return iter([int(self.indices[i]) for i in order])

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Samples drawn with probabilities proportional to weights.

    Args:
        weights: one for each sample, at least 0.
        num_samples: how many to draw.
        replacement: a sample may be drawn several times.
        generator: a generator, or a seed: the same draws in each epoch; None means the default
            generator.

    Raises:
        ValueError: a weight is negative or not finite, all are 0, num_samples is no integer from 1
            up, or more are to be drawn without replacement than have a weight above 0.

    >>> list(WeightedRandomSampler([0.0, 1.0, 0.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        replacement: bool = True,
        generator: Randomness = None,
    ) -> None:
        self.weights = np.asarray(weights, np.float64)
        positive = int((self.weights > 0).sum())
        if self.weights.ndim != 1 or not (self.weights >= 0).all() or not positive:
            raise ValueError(
                f"weights must be one number for each sample, at least 0 and not all 0, got "
                f"{self.weights.tolist()}"[:200]
            )
        if not np.isfinite(self.weights).all():
            raise ValueError("weights must be finite")
        check_count("num_samples", num_samples)
        if not replacement and num_samples > positive:
            raise ValueError(
                f"num_samples must be at most the {positive} samples whose weight is above 0, "
                f"without replacement; got {num_samples}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = as_generator(self.generator).choice(
            len(self.weights),
            self.num_samples,
            self.replacement,
            self.weights / self.weights.sum(),
        )
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """A sampler of batches: what another sampler gives, in lists of `batch_size`.

    Raises:
        ValueError: batch_size is no integer from 1 up.

    >>> list(BatchSampler(SequentialSampler("abcde"), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        check_count("batch_size", batch_size)
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        return batched(iter(self.sampler), self.batch_size, self.drop_last)

    def __len__(self) -> int:
        return batch_count(len(self.sampler), self.batch_size, self.drop_last)  # type: ignore[arg-type]


def check_count(name: str, count: Any) -> None:
    """Raise ValueError if it is no integer from 1 up: a batch of 2.5 would never be full."""
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
        raise ValueError(f"{name} must be at least 1, and an integer, got {count!r}")


def check_index(index: Any) -> Any:
    """The number of a sample, as a sampler gave it.

    Raises:
        IndexError: it is a fraction, of which an array of integers would drop the digits.
    """
    if isinstance(index, float | np.floating):
        raise IndexError(f"the sampler gave {index!r}; the numbers of samples are integers")
    return index


def batched(items: Iterable[Any], size: int, drop_last: bool) -> Iterator[list[Any]]:
    """The items in lists of `size`; the last may be shorter, and is left out with `drop_last`.

    Items are taken one after another, only when the list that they belong to is asked for: so there
    may be infinitely many.

    >>> list(batched("abcde", 2, drop_last=False))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch and not drop_last:
        yield batch


def batch_count(samples: int, size: int, drop_last: bool) -> int:
    """How many lists `batched` gives for that many samples.

    >>> batch_count(5, 2, drop_last=False), batch_count(5, 2, drop_last=True)
    (3, 2)
    """
    whole, rest = divmod(samples, size)
    return whole + (rest > 0 and not drop_last)
