from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tinytorch
from tinytorch.data import Dataset, Subset, TensorDataset, random_split
from tinytorch.errors import ShapeError


def numbers(count: int) -> TensorDataset:
    index = np.arange(count)
    return TensorDataset(tinytorch.tensor(np.stack([index, -index], 1)), tinytorch.tensor(index))


class Pairs(Dataset[tuple[int, float]]):
    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, index / 2


def test_samples_are_rows() -> None:
    dataset = numbers(6)
    pair, label = dataset[4]
    assert (len(dataset), pair.tolist(), label.item()) == (6, [4, -4], 4)
    assert dataset[1:3][1].tolist() == [1, 2]
    assert [label.item() for _, label in dataset] == list(range(6))


def test_get_batch_equals_collated_samples() -> None:
    indices = [5, 0, 0, 3]
    for dataset in (numbers(6), Subset(numbers(9), [8, 7, 6, 5, 4, 3])):
        direct = dataset.get_batch(indices)
        collated = Dataset.get_batch(dataset, indices)
        for a, b in zip(direct, collated, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
            assert a.dtype is b.dtype


def test_a_dataset_is_its_length_and_its_samples() -> None:
    assert [value for _, value in Pairs()] == [0.0, 0.5, 1.0, 1.5, 2.0]
    index, value = Pairs().get_batch([4, 1])
    assert index.tolist() == [4, 1] and value.tolist() == [2.0, 0.5]


@pytest.mark.parametrize("shapes", [[], [()], [(3, 2), (4,)], [(3,), ()]])
def test_tensors_must_share_the_first_dimension(shapes: list[tuple[int, ...]]) -> None:
    tensors = [tinytorch.tensor(np.zeros(shape, np.float32)) for shape in shapes]
    with pytest.raises(ShapeError, match=re.escape(f"got {shapes}")):
        TensorDataset(*tensors)


@pytest.mark.parametrize("index", [-1, 5])
def test_subset_checks_its_indices(index: int) -> None:
    with pytest.raises(IndexError, match=f"index {index} is not in 0..4"):
        Subset(Pairs(), [0, index])


@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(0, 2**32))
def test_a_split_is_a_partition_that_the_seed_determines(lengths: list[int], seed: int) -> None:
    dataset = numbers(sum(lengths))
    parts = random_split(dataset, lengths, seed)
    assert [len(part) for part in parts] == lengths
    assert sorted(i for part in parts for i in part.indices) == list(range(len(dataset)))
    again = random_split(dataset, lengths, np.random.default_rng(seed))
    assert [part.indices for part in again] == [part.indices for part in parts]


@given(st.integers(0, 200), st.integers(1, 100))
def test_fractions_differ_from_exact_by_less_than_one(total: int, percent: int) -> None:
    fractions = [percent / 100, 1 - percent / 100]
    counts = [len(part) for part in random_split(numbers(total), fractions, 0)]
    assert sum(counts) == total
    assert counts[0] == -(-percent * total // 100)  # rounded down, then the one left


def test_fractions_may_be_numpys() -> None:
    parts = random_split(numbers(10), list(np.array([0.5, 0.5], np.float32)), 0)
    assert [len(part) for part in parts] == [5, 5]


def test_what_fractions_leave_goes_to_the_first_parts() -> None:
    parts = random_split(numbers(11), [1 / 3, 1 / 3, 1 / 3], 0)
    assert [len(part) for part in parts] == [4, 4, 3]


def test_a_split_is_random() -> None:
    (part,) = random_split(numbers(50), [50], 1)
    assert part.indices != sorted(part.indices)
    assert part.indices != random_split(numbers(50), [50], 2)[0].indices


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        ([3, 3], "the 5 samples (ints) or to 1 (fractions), got [3, 3] with sum 6"),
        ([0.5, 0.4], "got [0.5, 0.4] with sum 0.9"),
        ([6, -1], "got [6, -1]"),
        ([], "got []"),
    ],
)
def test_lengths_that_do_not_fit(lengths: Sequence[float], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        random_split(numbers(5), lengths)
