"""`DataLoader`: batches of a dataset, in an order that can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from tinytorch.creation import from_numpy
from tinytorch.data.collate import collate
from tinytorch.data.dataset import Dataset
from tinytorch.data.prefetch import prefetch
from tinytorch.data.seeding import Randomness, as_seed, generator_at
from tinytorch.data.transforms import Transform
from tinytorch.errors import DataError
from tinytorch.tensor import Tensor


class DataLoader:
    """Iterates over `dataset` in batches; each iteration is one epoch.

    The order of epoch e is a function of the seed and e alone, and the random numbers of a
    transform one of the seed, e and the batch. So training that is resumed with `load_state_dict`
    sees the very batches that it would have seen, in whatever thread they are made.

    Args:
        dataset: a `Dataset`, or any sequence of samples.
        batch_size: samples per batch; the last batch of an epoch may be smaller.
        shuffle: a new random order in each epoch.
        drop_last: leave out a last batch that is smaller.
        generator: a seed, or a generator to draw it from; None means the default generator.
        collate_fn: makes a batch from a list of samples; by default `Dataset.get_batch`.
        transform: applied to the inputs of each batch (its first field, if it is a tuple), as
            `transform(array, generator)`; see `tinytorch.data.transforms`.
        prefetch: how many batches a background thread makes ahead; 0 makes each one on demand.
            Worth it where samples are costly (files, heavy transforms), not for arrays in memory.

    Raises:
        ValueError: batch_size < 1, prefetch < 0, or no batch would be left.

    >>> import tinytorch
    >>> from tinytorch.data import TensorDataset
    >>> loader = DataLoader(TensorDataset(tinytorch.arange(5)), batch_size=2)
    >>> [x.tolist() for x, in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Dataset[Any] | Sequence[Any],
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        drop_last: bool = False,
        generator: Randomness = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        transform: Transform | None = None,
        prefetch: int = 0,
    ) -> None:
        if batch_size < 1 or prefetch < 0:
            raise ValueError(
                f"batch_size must be at least 1 and prefetch at least 0, got {batch_size} "
                f"and {prefetch}"
            )
        if drop_last and len(dataset) < batch_size:
            raise ValueError(
                f"drop_last leaves no batch: the dataset has {len(dataset)} samples, "
                f"batch_size is {batch_size}"
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.collate_fn = collate_fn
        self.transform = transform
        self.prefetch = prefetch
        self.seed = as_seed(generator) if shuffle or transform is not None else 0
        self.epoch = 0  # of the iteration under way, or of the next one between two
        self._taken = 0  # batches handed out in that epoch
        self._resuming = False

    def __len__(self) -> int:
        """Batches per epoch."""
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        if self._taken and not self._resuming:  # the last iteration was left early
            self.epoch, self._taken = self.epoch + 1, 0
        self._resuming = False
        return self._iterate(self.epoch, self._taken)

    def _iterate(self, epoch: int, first: int) -> Iterator[Any]:
        batches = self._load(epoch, first)
        with closing(prefetch(batches, self.prefetch) if self.prefetch else batches) as batches:
            for taken, batch in enumerate(batches, first + 1):
                self._taken = taken
                yield batch
        self.epoch, self._taken = epoch + 1, 0

    def _load(self, epoch: int, first: int) -> Generator[Any]:
        order = self._order(epoch)
        for number in range(first, len(self)):
            indices = order[number * self.batch_size : (number + 1) * self.batch_size]
            try:
                batch = self._transformed(self._fetch(indices), epoch, number)
            except Exception as error:
                error.add_note(f"in batch {number} of epoch {epoch}: samples {list(indices)}")
                raise
            yield batch

    def _order(self, epoch: int) -> Sequence[int]:
        samples = len(self.dataset)
        if not self.shuffle:
            return range(samples)
        order: list[int] = generator_at(self.seed, epoch).permutation(samples).tolist()
        return order

    def _fetch(self, indices: Sequence[int]) -> Any:
        if self.collate_fn is None and isinstance(self.dataset, Dataset):
            return self.dataset.get_batch(indices)
        return (self.collate_fn or collate)([self.dataset[i] for i in indices])

    def _transformed(self, batch: Any, epoch: int, number: int) -> Any:
        if self.transform is None:
            return batch
        inputs, *rest = batch if isinstance(batch, tuple | list) else (batch,)
        if not isinstance(inputs, Tensor):
            raise TypeError(
                f"transform needs batches that are a tensor or start with one, got "
                f"{type(inputs).__name__}: transform in collate_fn instead"
            )
        array = self.transform(inputs.numpy(), generator_at(self.seed, epoch, number))
        inputs = from_numpy(np.ascontiguousarray(array))
        return (inputs, *rest) if isinstance(batch, tuple | list) else inputs

    def state_dict(self) -> dict[str, int]:
        """Where the iteration stands: after how many batches of which epoch, and of which order.

        Batches that a thread has made ahead do not count as taken. Between the last batch and the
        end of the loop all are taken; an epoch resumed there is empty.
        """
        return {"seed": self.seed, "epoch": self.epoch, "taken": self._taken, **self._layout()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Take over seed and place: the next iteration yields what is left of that epoch.

        Raises:
            DataError: the state is not complete, or of a loader with other batches.
        """
        missing = sorted(self.state_dict().keys() - state.keys())
        if missing:
            raise DataError(f"the DataLoader state lacks {missing}; it has {sorted(state)}")
        wrong = [
            f"{name} is {here} here and {state[name]} in the state"
            for name, here in self._layout().items()
            if state[name] != here
        ]
        if min(state["seed"], state["epoch"]) < 0 or not 0 <= state["taken"] <= len(self):
            wrong.append(f"seed, epoch, taken are {[state[k] for k in ('seed', 'epoch', 'taken')]}")
        if wrong:
            raise DataError(f"this DataLoader cannot continue from that state: {'; '.join(wrong)}")
        self.seed, self.epoch, self._taken = state["seed"], state["epoch"], state["taken"]
        self._resuming = True

    def _layout(self) -> dict[str, int]:
        """What the batches depend on, beside seed and place."""
        return {
            "samples": len(self.dataset),
            "batch_size": self.batch_size,
            "shuffle": int(self.shuffle),
            "drop_last": int(self.drop_last),
        }
