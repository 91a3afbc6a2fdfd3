"""Datasets: samples by number, or one after another."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from tinytorch.creation import from_numpy
from tinytorch.data.collate import collate
from tinytorch.data.seeding import Randomness, as_generator
from tinytorch.errors import ShapeError
from tinytorch.tensor import Tensor

Sample = TypeVar("Sample", covariant=True)


class Dataset(Generic[Sample]):
    """Samples numbered from 0: a subclass says how many there are and what the i-th one is.

    One without `__len__` can be read by a loader that is given a sampler.

    >>> class Squares(Dataset[tuple[int, int]]):
    ...     def __len__(self):
    ...         return 4
    ...
    ...     def __getitem__(self, index):
    ...         return index, index**2
    >>> list(Squares())
    [(0, 0), (1, 1), (2, 4), (3, 9)]
    """

    def __getitem__(self, index: int) -> Sample:
        """The sample at `index`."""
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__(index)")

    def __iter__(self) -> Iterator[Sample]:
        if hasattr(self, "__len__"):
            return (self[i] for i in range(len(self)))
        return self._until_index_error()

    def _until_index_error(self) -> Iterator[Sample]:
        for i in itertools.count():
            try:
                sample = self[i]
            except IndexError:
                return
            yield sample

    def __add__(self, other: Dataset[Any]) -> ConcatDataset[Any]:
        return ConcatDataset([self, other])

    def get_batch(self, indices: Sequence[int]) -> Any:
        """The samples at `indices`, collated. Override it where a batch can be had at once."""
        at_once = getattr(self, "__getitems__", None)  # PyTorch's name for a list of samples
        return collate(at_once(indices) if at_once else [self[i] for i in indices])


class IterableDataset(Dataset[Sample]):
    """Samples one after another: a subclass defines `__iter__`, and `__len__` if it is known.

    >>> class Countdown(IterableDataset[int]):
    ...     def __iter__(self):
    ...         return iter([3, 2, 1])
    >>> list(Countdown())
    [3, 2, 1]
    """

    def __iter__(self) -> Iterator[Sample]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __add__(self, other: Dataset[Any]) -> ChainDataset[Any]:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Sample i is the tuple of row i of each tensor.

    Args:
        tensors: at least one, each (N, ...) with the same N.

    Raises:
        ShapeError: no tensor, a 0-d tensor, or different first dimensions.

    >>> import tinytorch
    >>> images, labels = tinytorch.zeros(5, 1, 8, 8), tinytorch.tensor([3, 1, 4, 1, 5])
    >>> image, label = TensorDataset(images, labels)[2]
    >>> image.shape, label.item()
    ((1, 8, 8), 4)
    """

    def __init__(self, *tensors: Tensor) -> None:
        shapes = [tuple(t.shape) for t in tensors]
        if not shapes or () in shapes or len({shape[0] for shape in shapes}) > 1:
            raise ShapeError(
                f"TensorDataset needs tensors of one first dimension (samples), got {shapes}"
            )
        self.tensors = tensors

    def __len__(self) -> int:
        """The first dimension of the tensors."""
        return len(self.tensors[0])

    def __getitem__(self, index: int | slice) -> tuple[Tensor, ...]:
        """The row, or the rows of a slice, of each of `self.tensors`."""
        return tuple(t[index] for t in self.tensors)

    def get_batch(self, indices: Sequence[int]) -> list[Tensor]:
        """The rows at `indices` of each tensor, in that order, as new tensors without history.

        All rows of a tensor are taken at once, by NumPy: `indices` as an int64 array picks them.
        """
        rows = np.asarray(indices, dtype=np.int64)
        return [from_numpy(t.detach().numpy()[rows]) for t in self.tensors]


class Subset(Dataset[Sample]):
    """The samples of `dataset` at `indices`, in that order.

    Raises:
        IndexError: an index lies outside of the dataset.
    """

    def __init__(self, dataset: Dataset[Sample], indices: Iterable[int]) -> None:
        self.dataset = dataset
        self.indices = [int(index) for index in indices]
        if hasattr(dataset, "__len__"):
            for index in self.indices:
                if not 0 <= index < len(dataset):
                    raise IndexError(f"Subset index {index} is not in 0..{len(dataset) - 1}")

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Sample:
        """The sample of `self.dataset` at `self.indices[index]`."""
        return self.dataset[self.indices[index]]

    def get_batch(self, indices: Sequence[int]) -> Any:
        """The batch of `self.dataset` (`batch_of`) at its own numbers of these samples."""
        return batch_of(self.dataset, [self.indices[i] for i in indices])


class ConcatDataset(Dataset[Sample]):
    """The samples of several datasets, one dataset after another.

    Raises:
        ValueError: there is no dataset.

    >>> ConcatDataset(["ab", "cde"])[3]
    'd'
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset needs at least one dataset, got none")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Sample:
        """The sample at `index`, which counts through all of `self.datasets`; from the end if < 0.

        `self.cumulative_sizes[i]` is how many samples the datasets up to the i-th one have, so that
        bisection finds the dataset: `bisect_right` gives how many of these sums are at most the
        index.

        Raises:
            IndexError: there is no such sample.
        """
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"index {index} is not in 0..{len(self) - 1}")
        number = bisect_right(self.cumulative_sizes, position)
        start = self.cumulative_sizes[number - 1] if number else 0
        return self.datasets[number][position - start]  # type: ignore[no-any-return]


class ChainDataset(IterableDataset[Sample]):
    """The samples of several datasets that are iterated, one dataset after another."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Sample]:
        return itertools.chain.from_iterable(self.datasets)

    def __len__(self) -> int:
        return sum(len(d) for d in self.datasets)


def batch_of(dataset: Any, indices: Sequence[int]) -> Any:
    """The samples of a dataset or a sequence, collated; with history if its tensors need one."""
    if isinstance(dataset, TensorDataset) and any(t.requires_grad for t in dataset.tensors):
        return collate([dataset[i] for i in indices])
    if isinstance(dataset, Dataset):
        return dataset.get_batch(indices)
    return collate([dataset[i] for i in indices])


def random_split(
    dataset: Dataset[Sample],
    lengths: Sequence[int] | Sequence[float],
    generator: Randomness = None,
) -> list[Subset[Sample]]:
    """Disjoint random subsets that together are the whole dataset.

    The numbers of all samples, in the order of a `permutation` by `as_generator(generator)`, are
    cut into pieces of the lengths, in the order given. `_counts(lengths, N)` checks the lengths and
    gives the number of samples of each.

    Args:
        dataset: N samples.
        lengths: ints that sum to N, or fractions that sum to 1 (each is rounded down, and what is
            left goes one sample each to the first ones, as in PyTorch).
        generator: a generator or a seed; None means the default generator.

    Raises:
        ValueError: a length is negative or the sum is not N (or 1).

    >>> import tinytorch
    >>> train, valid = random_split(TensorDataset(tinytorch.zeros(10, 2)), [0.75, 0.25], 0)
    >>> len(train), len(valid)
    (8, 2)
    """
    total = len(dataset)  # type: ignore[arg-type]
    counts = _counts(lengths, total)
    order = as_generator(generator).permutation(total)
    ends = np.cumsum([0, *counts])
    return [Subset(dataset, order[i:j]) for i, j in itertools.pairwise(ends)]


def _counts(lengths: Sequence[int] | Sequence[float], total: int) -> list[int]:
    fractions = any(isinstance(length, float | np.floating) for length in lengths)
    expected = 1 if fractions else total
    if min(lengths, default=-1) < 0 or not math.isclose(sum(lengths), expected, abs_tol=1e-9):
        raise ValueError(
            f"random_split lengths must be 0 or more and sum to the {total} samples (ints) or "
            f"to 1 (fractions), got {list(lengths)} with sum {sum(lengths)}"
        )
    if not fractions:
        return [int(length) for length in lengths]
    # The product may miss a whole number by an ulp: 0.29 * 100 is 28.999999999999996.
    counts = [math.floor(length * total + 1e-9) for length in lengths]
    for i in range(total - sum(counts)):
        counts[i % len(counts)] += 1
    return counts
