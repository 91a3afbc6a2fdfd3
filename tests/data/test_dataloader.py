from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tinytorch
from tinytorch.data import (
    BatchSampler,
    ChainDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
)
from tinytorch.data.transforms import Compose, RandomCrop, RandomHorizontalFlip
from tinytorch.dtypes import Array
from tinytorch.errors import DataError


def numbers(count: int) -> TensorDataset:
    return TensorDataset(tinytorch.tensor(np.arange(count)))


def images(count: int, rng: np.random.Generator) -> TensorDataset:
    pixels = rng.random((count, 2, 6, 6), np.float32)
    return TensorDataset(tinytorch.tensor(pixels), tinytorch.tensor(np.arange(count)))


def epoch(loader: DataLoader) -> list[list[int]]:
    return [batch[-1].tolist() for batch in loader]


def shuffled(count: int = 10, seed: int = 3, **options: Any) -> DataLoader:
    return DataLoader(numbers(count), 3, shuffle=True, generator=seed, **options)


@given(st.integers(0, 20), st.integers(1, 8), st.booleans(), st.integers(0, 3))
def test_an_epoch_has_each_sample_once(
    count: int, batch_size: int, shuffle: bool, prefetch: int
) -> None:
    loader = DataLoader(numbers(count), batch_size, shuffle, generator=0, prefetch=prefetch)
    batches = epoch(loader)
    assert len(batches) == len(loader)
    assert all(len(batch) == batch_size for batch in batches[:-1])
    order = [i for batch in batches for i in batch]
    assert (sorted(order) if shuffle else order) == list(range(count))


def test_drop_last() -> None:
    loader = DataLoader(numbers(8), 3, drop_last=True)
    assert len(loader) == 2
    assert epoch(loader) == [[0, 1, 2], [3, 4, 5]]


def test_the_seed_and_the_epoch_determine_the_order() -> None:
    loader = shuffled(50)
    first, second = epoch(loader), epoch(loader)
    assert first != second
    again = shuffled(50)
    assert [epoch(again), epoch(again)] == [first, second]
    assert epoch(shuffled(50, seed=4)) != first


def test_a_seed_may_be_set_after_the_loader_is_made() -> None:
    orders, own = [], tinytorch.Generator()
    for seed in (1, 1, 2):
        loader = DataLoader(numbers(20), 20, shuffle=True)
        other = DataLoader(numbers(20), 20, shuffle=True, generator=own)
        tinytorch.manual_seed(seed)
        own.manual_seed(seed)
        orders.append((epoch(loader), epoch(other)))
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[2][0] and orders[0][1] != orders[2][1]


def test_a_loaded_state_draws_nothing() -> None:
    state = shuffled().state_dict()
    loader = DataLoader(numbers(10), 3, shuffle=True)
    tinytorch.manual_seed(5)
    loader.load_state_dict(state)
    assert epoch(loader) == epoch(shuffled())
    drawn = tinytorch.rand(1).item()
    tinytorch.manual_seed(5)
    assert tinytorch.rand(1).item() == drawn


def test_the_global_seed_determines_the_order_without_a_generator() -> None:
    def order(seed: int) -> list[list[int]]:
        tinytorch.manual_seed(seed)
        return epoch(DataLoader(numbers(50), 5, shuffle=True))

    assert order(1) == order(1) != order(2)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("stop", [0, 1, 3, 4, 5, 9, 12])
def test_resume_yields_what_an_uninterrupted_run_would_have(stop: int, prefetch: int) -> None:
    whole = [batch for loader in [shuffled()] for _ in range(3) for batch in epoch(loader)]
    loader = shuffled(prefetch=prefetch)
    taken: list[list[int]] = []
    while len(taken) < stop:
        for (batch,) in loader:
            taken.append(batch.tolist())
            if len(taken) == stop:
                break
    state = loader.state_dict()

    resumed = shuffled(seed=99, prefetch=prefetch)
    resumed.load_state_dict(state)
    while len(taken) < len(whole):
        taken += epoch(resumed)
    assert taken == whole


def test_a_state_after_the_loop_starts_the_next_epoch() -> None:
    loader = shuffled()
    epoch(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["taken"]) == (1, 0)
    resumed = shuffled(seed=99)
    resumed.load_state_dict(state)
    assert epoch(resumed) == epoch(loader)


def test_an_epoch_left_early_is_not_repeated() -> None:
    loader, reference = shuffled(), shuffled()
    for _ in loader:
        break
    epoch(reference)
    assert epoch(loader) == epoch(reference)


def test_iterations_side_by_side_have_orders_of_their_own() -> None:
    """`zip(loader, loader)` gave each batch twice: both began the same epoch."""
    loader, reference = shuffled(), shuffled()
    pairs = [(a.tolist(), b.tolist()) for (a,), (b,) in zip(loader, loader, strict=True)]
    first, second, third = (epoch(reference) for _ in range(3))
    assert [a for a, _ in pairs] == first
    assert [b for _, b in pairs] == second
    assert epoch(loader) == third


def test_no_order_comes_again_after_iterations_side_by_side() -> None:
    """`zip` does not come to the end of the second one, and three may be begun at once."""
    loader, reference = shuffled(), shuffled()
    orders = [epoch(reference) for _ in range(9)]
    for first in (0, 2):
        taken = [(a.tolist(), b.tolist()) for (a,), (b,) in zip(loader, loader, strict=False)]
        assert [a for a, _ in taken] == orders[first]
        assert [b for _, b in taken] == orders[first + 1]
    for (a,), (b,), (c,) in zip(loader, loader, loader, strict=False):
        assert [a.tolist(), b.tolist(), c.tolist()] == [order[0] for order in orders[4:7]]
        break
    assert epoch(loader) == orders[7]
    loader.load_state_dict(shuffled().state_dict())
    assert [epoch(loader), epoch(loader)] == orders[:2]


def test_a_state_may_go_back_to_an_epoch_that_was_begun() -> None:
    loader = shuffled()
    start = loader.state_dict()
    first = epoch(loader)
    second = epoch(loader)
    loader.load_state_dict(start)
    assert [epoch(loader), epoch(loader)] == [first, second]


def test_a_resumed_epoch_left_early_is_not_repeated() -> None:
    loader, reference = shuffled(), shuffled()
    loader.load_state_dict(loader.state_dict() | {"taken": 2})
    for _ in loader:
        break
    epoch(reference)
    assert epoch(loader) == epoch(reference)


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_transform_is_random_per_sample_and_epoch_and_can_be_resumed(
    prefetch: int, rng: np.random.Generator
) -> None:
    dataset = images(7, rng)
    augment = Compose([RandomCrop(6, padding=2), RandomHorizontalFlip()])

    def loader(seed: int, prefetch: int = 0) -> DataLoader:
        return DataLoader(dataset, 3, True, generator=seed, transform=augment, prefetch=prefetch)

    def pixels(loader: DataLoader) -> list[Array]:
        return [x.numpy() for x, _ in loader]

    plain = loader(1)
    first, second = pixels(plain), pixels(plain)
    assert first[0].dtype == np.float32

    other = loader(1, prefetch)
    next(iter(other))
    resumed = loader(2, prefetch)
    resumed.load_state_dict(other.state_dict())
    for a, b in zip(first[1:] + second, pixels(resumed) + pixels(resumed), strict=True):
        np.testing.assert_array_equal(a, b)
    same = TensorDataset(tinytorch.tensor(np.broadcast_to(pixels(plain)[0][:1], (6, 2, 6, 6))))
    one, two = (x.numpy() for (x,) in DataLoader(same, 3, generator=1, transform=augment))
    assert not np.array_equal(one, two)
    unshuffled = DataLoader(dataset, 7, generator=1, transform=augment)
    assert not np.array_equal(*(pixels(unshuffled)[0] for _ in range(2)))


def test_a_transform_leaves_the_dataset_as_it_was(rng: np.random.Generator) -> None:
    dataset = images(4, rng)
    before = dataset.tensors[0].numpy().copy()

    def darken(images: Array, generator: np.random.Generator) -> Array:
        images *= 0
        return images

    ((x, labels),) = DataLoader(dataset, 4, transform=darken)
    assert x.numpy().max() == 0 and labels.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(dataset.tensors[0].numpy(), before)


def test_batches_of_one_tensor_and_of_a_collate_fn() -> None:
    (batch,) = DataLoader([1, 2, 3], 3, transform=lambda x, generator: x * 2)
    assert batch.tolist() == [2, 4, 6]
    assert list(DataLoader(["a", "b", "c"], 2, collate_fn="".join)) == ["ab", "c"]
    with pytest.raises(TypeError, match="start with one, got str"):
        list(DataLoader(["a"], collate_fn="".join, transform=RandomHorizontalFlip()))


class Broken(Dataset[int]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        if index == 3:
            raise OSError("unreadable file")
        return index


@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_an_error_says_which_samples_and_leaves_a_loader_that_can_go_on(prefetch: int) -> None:
    loader = DataLoader(Broken(), 2, prefetch=prefetch)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1]
    with pytest.raises(OSError, match="unreadable file") as caught:
        next(batches)
    assert caught.value.__notes__ == ["in batch 1 of epoch 0: samples [2, 3]"]
    assert threading.active_count() == len(threading.enumerate())
    assert "tinytorch-prefetch" not in {t.name for t in threading.enumerate()}
    assert loader.state_dict()["taken"] == 1
    assert next(iter(loader)).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"samples": 11}, "samples is 10 here and 11 in the state"),
        ({"batch_size": 4}, "batch_size is 3 here and 4 in the state"),
        ({"shuffle": 0}, "shuffle is 1 here and 0 in the state"),
        ({"taken": 5}, "seed, epoch, taken are [3, 0, 5]"),
        ({"epoch": -1}, "seed, epoch, taken are [3, -1, 0]"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change: dict[str, int], text: str) -> None:
    loader = shuffled()
    state = loader.state_dict()
    with pytest.raises(DataError, match=re.escape(text)):
        loader.load_state_dict(state | change)
    with pytest.raises(DataError, match=re.escape("lacks ['epoch', 'seed']")):
        loader.load_state_dict({k: v for k, v in state.items() if k not in ("seed", "epoch")})
    assert loader.state_dict() == state


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, and an integer, got 0"),
        ({"batch_size": 2, "prefetch": -1}, "prefetch must be at least 0, got -1"),
        ({"num_workers": -1}, "num_workers must be at least 0, got -1"),
        ({"batch_size": 6, "drop_last": True}, "the dataset has 5 samples, batch_size is 6"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        DataLoader(numbers(5), **options)


def test_a_chain_of_datasets_without_a_length() -> None:
    class Counting(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    chain = ChainDataset([Counting(), Counting()])
    assert [b.tolist() for b in DataLoader(chain, batch_size=4)] == [[0, 1, 2, 0], [1, 2]]


@pytest.mark.parametrize("size", [2.5, "2", True, 0])
def test_a_batch_size_is_an_integer(size: Any) -> None:
    for make in (lambda: DataLoader(range(5), size), lambda: BatchSampler(range(5), size, False)):
        with pytest.raises(ValueError, match="batch_size must be at least 1, and an integer"):
            make()
    assert len(DataLoader(range(5), np.int64(2))) == 3


def test_a_batch_sampler_leaves_no_batch_size() -> None:
    loader = DataLoader(range(5), batch_sampler=[[0, 1], [4]])
    assert loader.batch_size is None and loader.drop_last is False
    assert [x.tolist() for x in loader] == [[0, 1], [4]]


def test_each_loader_has_a_sampler_but_of_a_stream() -> None:
    data = range(5)
    assert list(DataLoader(data, 2).sampler) == [0, 1, 2, 3, 4]  # type: ignore[arg-type]
    shuffled = DataLoader(data, 2, shuffle=True).sampler
    assert isinstance(shuffled, RandomSampler) and len(shuffled) == 5
    assert DataLoader(data, 2, sampler=[3, 1]).sampler == [3, 1]

    class Stream(IterableDataset):
        def __iter__(self) -> Any:
            return iter(data)

    assert DataLoader(Stream(), 2).sampler is None


def test_a_sampler_that_gives_fractions_is_refused() -> None:
    dataset = TensorDataset(tinytorch.arange(5))
    loaders = [DataLoader(dataset, 2, sampler=[1.7]), DataLoader(dataset, batch_sampler=[[1.7]])]
    for loader in loaders:
        with pytest.raises(IndexError, match=r"the sampler gave 1\.7"):
            list(loader)


def test_gradients_reach_the_tensors_of_a_dataset() -> None:
    latents = tinytorch.zeros(5, 2, requires_grad=True)
    subset = Subset(TensorDataset(latents, tinytorch.arange(5)), [4, 1, 0])
    for x, y in DataLoader(subset, batch_size=2):
        (x.sum(1) * y).sum().backward()
    assert latents.grad is not None and latents.grad[:, 0].tolist() == [0, 1, 0, 0, 4]
