"""What the tenth module's parts do inside the package."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

import tinytorch
from tinytorch.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    random_split,
)
from tinytorch.data.transforms import Compose, Normalize, RandomCrop
from tito.checks import check, equal, raises


def flat(loader: Any) -> list[int]:
    """All numbers of an epoch, in the order in which they come."""
    return [i for (batch,) in loader for i in batch.tolist()]


def test_an_epoch_has_each_sample_once() -> None:
    """each epoch has all samples once, in an order of its own that the seed determines"""
    data = TensorDataset(tinytorch.arange(23))
    loaders = [DataLoader(data, 4, shuffle=True, generator=5, prefetch=n) for n in (0, 2)]
    epochs = [flat(loaders[0]) for _ in range(3)]
    check(all(sorted(epoch) == list(range(23)) for epoch in epochs), f"the epochs are {epochs}")
    check(epochs[0] != epochs[1] != epochs[2], "two epochs have the same order")
    equal([flat(loaders[1]) for _ in range(3)], epochs)
    equal((len(loaders[0]), len(DataLoader(data, 4, drop_last=True))), (6, 5))
    sampler = BatchSampler(RandomSampler(data, generator=3), 10, drop_last=False)
    equal(sorted(flat(DataLoader(data, batch_sampler=sampler))), list(range(23)))


def test_parts_have_nothing_in_common() -> None:
    """the parts of a split have no sample in common, and batches of them are had at once"""
    parts = random_split(TensorDataset(tinytorch.arange(20)), [0.75, 0.25], 1)
    seen = [flat(DataLoader(part, 6)) for part in parts]
    equal([len(part) for part in seen], [15, 5])
    equal(sorted(seen[0] + seen[1]), list(range(20)))


def test_samples_keep_their_structure() -> None:
    """nested samples become nested batches, and a stream is read as far as it goes"""

    class Nested(Dataset[Any]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return {"box": (np.float32(index), [index]), "name": "abc"[index]}

    class Stream(IterableDataset[float]):
        def __iter__(self) -> Iterator[float]:
            return iter([1.5, 2.5, 3.5])

    (batch,) = DataLoader(Nested(), 3)
    equal(batch["name"], ["a", "b", "c"])
    equal((batch["box"][0].tolist(), batch["box"][1][0].tolist()), ([0.0, 1.0, 2.0], [0, 1, 2]))
    equal([x.tolist() for x in DataLoader(Stream(), 2)], [[1.5, 2.5], [3.5]])


def test_a_run_goes_on_in_the_middle_of_an_epoch() -> None:
    """an epoch that was left goes on with the same batches, moved in the same way"""
    images = tinytorch.tensor(np.random.default_rng(0).random((12, 1, 5, 5), np.float32))
    move = Compose([RandomCrop(5, padding=2), Normalize(0.5, 0.25)])

    def loader() -> DataLoader:
        return DataLoader(TensorDataset(images), 3, True, generator=2, transform=move, prefetch=1)

    whole = [x.tolist() for (x,) in loader()]
    first = loader()
    for _, (batch,) in zip(range(2), first, strict=False):
        equal(batch.shape, (3, 1, 5, 5))
    second = loader()
    second.load_state_dict(first.state_dict())
    equal([x.tolist() for (x,) in second], whole[2:])


def test_errors_arrive_and_threads_end() -> None:
    """an error in a thread arrives with the place where it was, and no thread is left"""

    class Damaged(Dataset[int]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> int:
            if index == 3:
                raise OSError("file 3 is damaged")
            return index

    before = threading.active_count()
    raises(OSError, list, DataLoader(Damaged(), 2, prefetch=2), match="file 3 is damaged")
    try:
        list(DataLoader(Damaged(), 2, prefetch=2))
    except OSError as error:
        equal(error.__notes__, ["in batch 1 of epoch 0: samples [2, 3]"])
    for _ in DataLoader(TensorDataset(tinytorch.arange(50)), 1, prefetch=3):
        break
    equal(threading.active_count(), before)
