"""Datasets: what can be indexed by a sample's number and has a length."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from tinytorch.creation import from_numpy
from tinytorch.data.collate import collate
from tinytorch.data.seeding import Randomness, as_generator
from tinytorch.errors import ShapeError
from tinytorch.tensor import Tensor

Sample = TypeVar("Sample", covariant=True)


class Dataset(ABC, Generic[Sample]):
    """Samples numbered from 0: a subclass says how many there are and what the i-th one is.

    >>> class Squares(Dataset[tuple[int, int]]):
    ...     def __len__(self):
    ...         return 4
    ...
    ...     def __getitem__(self, index):
    ...         return index, index**2
    >>> list(Squares())
    [(0, 0), (1, 1), (2, 4), (3, 9)]
    """

    @abstractmethod
    def __len__(self) -> int:
        """The number of samples."""

    @abstractmethod
    def __getitem__(self, index: int) -> Sample:
        """The sample at `index`."""

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self)))

    def get_batch(self, indices: Sequence[int]) -> Any:
        """The samples at `indices`, collated. Override it where a batch can be had at once."""
        return collate([self[i] for i in indices])


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
        return int(self.tensors[0].shape[0])

    def __getitem__(self, index: int | slice) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def get_batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        rows = np.asarray(indices, dtype=np.int64)
        return tuple(from_numpy(t.numpy()[rows]) for t in self.tensors)


class Subset(Dataset[Sample]):
    """The samples of `dataset` at `indices`, in that order.

    Raises:
        IndexError: an index lies outside of the dataset.
    """

    def __init__(self, dataset: Dataset[Sample], indices: Sequence[int]) -> None:
        for index in indices:
            if not 0 <= index < len(dataset):
                raise IndexError(f"Subset index {index} is not in 0..{len(dataset) - 1}")
        self.dataset = dataset
        self.indices = list(indices)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Sample:
        return self.dataset[self.indices[index]]

    def get_batch(self, indices: Sequence[int]) -> Any:
        return self.dataset.get_batch([self.indices[i] for i in indices])


def random_split(
    dataset: Dataset[Sample],
    lengths: Sequence[int] | Sequence[float],
    generator: Randomness = None,
) -> list[Subset[Sample]]:
    """Disjoint random subsets that together are the whole dataset.

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
    total = len(dataset)
    counts = _counts(lengths, total)
    order = as_generator(generator).permutation(total).tolist()
    ends = np.cumsum([0, *counts]).tolist()
    return [Subset(dataset, order[i:j]) for i, j in itertools.pairwise(ends)]


def _counts(lengths: Sequence[int] | Sequence[float], total: int) -> list[int]:
    fractions = any(isinstance(length, float) for length in lengths)
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
