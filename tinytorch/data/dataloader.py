"""`DataLoader`: batches of a dataset, in an order that can be resumed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from tinytorch.creation import from_numpy
from tinytorch.data.collate import collate, convert
from tinytorch.data.dataset import ChainDataset, IterableDataset, batch_of
from tinytorch.data.prefetch import prefetch
from tinytorch.data.sampler import (
    RandomSampler,
    SequentialSampler,
    batch_count,
    batched,
    check_count,
    check_index,
)
from tinytorch.data.seeding import Randomness, as_seed, generator_at, shuffled
from tinytorch.data.transforms import Transform
from tinytorch.errors import DataError
from tinytorch.tensor import Tensor


class DataLoader:
    """Iterates over `dataset` in batches; each iteration is one epoch.

    The order of epoch e is a function of the seed and e alone, and the random numbers of a
    transform one of the seed, e and the batch. So training that is resumed with `load_state_dict`
    sees the very batches that it would have seen, in whatever thread they are made. (With a sampler
    of your own the order is the sampler's; training can then be resumed between epochs only.)

    Args:
        dataset: a `Dataset`, any sequence of samples, or an `IterableDataset`.
        batch_size: samples per batch; the last batch of an epoch may be smaller. None: single
            samples, with arrays as tensors, and no batches.
        shuffle: a new random order in each epoch.
        sampler: gives the numbers of the samples, in place of `shuffle`.
        batch_sampler: gives lists of numbers, in place of batch_size, shuffle, sampler, drop_last.
        num_workers: taken, with a warning: batches are made in this process. `prefetch` has them
            made ahead.
        collate_fn: makes a batch from a list of samples; by default `Dataset.get_batch`.
        pin_memory, timeout, worker_init_fn, multiprocessing_context, prefetch_factor,
        persistent_workers, pin_memory_device, in_order: of PyTorch's workers and devices, which
            there are not: taken, without effect.
        drop_last: leave out a last batch that is smaller.
        generator: a seed, or a generator to draw it from when the first epoch begins; None means
            the default generator.
        transform: applied to the inputs of each batch (its first field, if it is a tuple), as
            `transform(array, generator)`; see `tinytorch.data.transforms`.
        prefetch: how many batches a background thread makes ahead; 0 makes each one on demand.
            Worth it where samples are costly (files, heavy transforms), not for arrays in memory.

    Raises:
        ValueError: batch_size is no integer from 1 up, prefetch < 0, no batch would be left, or
            options exclude each other.

    >>> import tinytorch
    >>> from tinytorch.data import TensorDataset
    >>> loader = DataLoader(TensorDataset(tinytorch.arange(5)), batch_size=2)
    >>> [x.tolist() for x, in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Randomness = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transform: Transform | None = None,
        prefetch: int = 0,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = bool(shuffle)
        self._sampler = sampler
        self.batch_sampler = batch_sampler
        self.drop_last = drop_last
        self.prefetch = prefetch
        self._check_options(num_workers)
        self.num_workers, self.worker_init_fn = num_workers, worker_init_fn
        self.collate_fn = collate_fn
        self.transform = transform
        self.generator = generator
        self._seed = as_seed(generator) if isinstance(generator, int | np.integer) else None
        if batch_sampler is not None:
            self.batch_size = None
        self.epoch = 0  # of the iteration under way, or of the next one between two
        self._taken = 0  # batches handed out in that epoch
        self._unread = False  # an iteration was begun of which nobody has asked for a batch yet
        self._beside = -1  # the last epoch that was begun beside another
        self._resuming = False

    def _check_options(self, num_workers: int) -> None:
        size, samples = self.batch_size, _length(self.dataset)
        streamed = isinstance(self.dataset, IterableDataset)
        samplers = {"sampler": self._sampler, "batch_sampler": self.batch_sampler}
        given = [name for name, sampler in samplers.items() if sampler is not None]
        others = [*given, *["shuffle"] * self.shuffle]
        if self.batch_sampler is not None and (size != 1 or self.drop_last or len(others) > 1):
            raise ValueError(
                "batch_sampler is in place of batch_size, shuffle, sampler and drop_last: "
                "leave those out"
            )
        if len(others) > 1 or (streamed and others):
            raise ValueError(
                f"{' and '.join(others)} with {type(self.dataset).__name__}: "
                + ("an IterableDataset has an order of its own" if streamed else "give one of them")
            )
        if size is not None:
            check_count("batch_size", size)
        for name, number in (("prefetch", self.prefetch), ("num_workers", num_workers)):
            if number < 0:
                raise ValueError(f"{name} must be at least 0, got {number}")
        if self.drop_last and size is None:
            raise ValueError("drop_last without batches: batch_size is None")
        if self.drop_last and size and not given and samples is not None and samples < size:
            raise ValueError(
                f"drop_last leaves no batch: the dataset has {samples} samples, "
                f"batch_size is {size}"
            )
        if num_workers:
            warnings.warn(
                f"num_workers={num_workers} starts no processes: batches are made in this one. To "
                f"have them made ahead, in a thread, pass prefetch={max(num_workers, 2)}",
                stacklevel=3,
            )

    @property
    def seed(self) -> int:
        """The seed of orders and transforms. It is drawn when it is first needed, so that
        `manual_seed` may be called after the loader is made."""
        if self._seed is None:
            used = self.shuffle or self.transform is not None
            self._seed = as_seed(self.generator) if used else 0
        return self._seed

    @property
    def sampler(self) -> Iterable[int] | None:
        """The sampler that was given, or one of the samples there are; None for a stream."""
        if self._sampler is not None or isinstance(self.dataset, IterableDataset):
            return self._sampler
        if self.shuffle:
            return RandomSampler(self.dataset, generator=self.seed)
        return SequentialSampler(self.dataset)

    def __len__(self) -> int:
        """Batches per epoch.

        Raises:
            TypeError: the dataset, or the sampler, has no length.
        """
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        samples = len(self.dataset if self._sampler is None else self._sampler)  # type: ignore[arg-type]
        return batch_count(samples, self.batch_size or 1, self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        if not self._resuming:
            self._move_on()
        self._resuming, self._unread = False, True
        _ = self.seed  # here and not in the thread, which must not draw from the default generator
        numbers = self._read(self._numbers(self.epoch))
        return self._iterate(self.epoch, self._taken, numbers)

    def _move_on(self) -> None:
        """To an epoch that is not begun yet: the last one may have been left early, or be under way
        beside this one, as in `zip(loader, loader)`."""
        if self._taken or self._unread:
            self.epoch, self._taken = self.epoch + 1, 0
        if self._unread:
            self._beside = self.epoch
        else:
            self.epoch = max(self.epoch, self._beside + 1)

    def _read(self, numbers: Iterator[Any]) -> Iterator[Any]:
        """What `numbers` gives; from the first one on, the iteration is under way."""
        self._unread = False
        yield from numbers

    def _iterate(self, epoch: int, first: int, numbers: Iterator[Any]) -> Iterator[Any]:
        """The batches of an epoch from number `first` on, and the place in it for `state_dict`.

        The batches are those of `self._load(epoch, first, numbers)`, a generator; if
        `self.prefetch` is not 0, that many are made ahead by `prefetch`. Whichever generator it is:
        it is closed when the loop over this one is left, by `break` too (`closing`).

        Before batch i is handed out, `self._taken` is i + 1. After the last one `self.epoch` is
        the number of the next epoch, and `self._taken` is 0.
        """
        batches = self._load(epoch, first, numbers)
        with closing(prefetch(batches, self.prefetch) if self.prefetch else batches) as batches:
            for taken, batch in enumerate(batches, first + 1):
                self._taken = taken
                yield batch
        self.epoch, self._taken = epoch + 1, 0

    def _load(self, epoch: int, first: int, numbers: Iterator[Any]) -> Generator[Any]:
        """The batches of an epoch, one after another, but for those before number `first`.

        `numbers` gives for each batch what `self._fetch(...)` makes it of. It goes through
        `self._transformed(batch, epoch, number)`, since what a transform draws depends on its place
        in the run alone. Batches before `first` are not made.

        An error in one of the two gets the note (`add_note`) "in batch 3 of epoch 0: samples
        [7, 2]", with what `numbers` gave; of an `IterableDataset` without ": samples [7, 2]".
        """
        for number, wanted in enumerate(numbers):
            if number < first:
                continue
            try:
                batch = self._transformed(self._fetch(wanted), epoch, number)
            except Exception as error:
                what = "" if isinstance(self.dataset, IterableDataset) else f": samples {wanted}"
                error.add_note(f"in batch {number} of epoch {epoch}{what}")
                raise
            yield batch

    def _numbers(self, epoch: int) -> Iterator[Any]:
        """For each batch the numbers of its samples; of an IterableDataset, the samples."""
        if self.batch_sampler is not None:
            return ([check_index(i) for i in numbers] for numbers in self.batch_sampler)
        if isinstance(self.dataset, IterableDataset):
            order = iter(self.dataset)
        elif self._sampler is not None:
            order = map(check_index, self._sampler)
        else:
            order = iter(self._order(epoch))
        if self.batch_size is None:
            return order
        return batched(order, self.batch_size, self.drop_last)

    def _order(self, epoch: int) -> Sequence[int]:
        samples = _length(self.dataset)
        if samples is None:
            raise TypeError(
                f"{type(self.dataset).__name__} has no __len__, so the loader does not know which "
                f"samples there are: define it, pass a sampler, or make it an IterableDataset"
            )
        return shuffled(samples, self.seed, epoch) if self.shuffle else range(samples)

    def _fetch(self, wanted: Any) -> Any:
        streamed = isinstance(self.dataset, IterableDataset)
        if self.batch_size is None and self.batch_sampler is None:
            sample = wanted if streamed else self.dataset[wanted]
            return (self.collate_fn or convert)(sample)
        if streamed:
            return (self.collate_fn or collate)(wanted)
        if self.collate_fn is None:
            return batch_of(self.dataset, wanted)
        at_once = getattr(self.dataset, "__getitems__", None)
        return self.collate_fn(at_once(wanted) if at_once else [self.dataset[i] for i in wanted])

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
        """The state of the iteration: after how many batches of which epoch, and of which order.

        Batches that a thread has made ahead do not count as taken. Between the last batch and the
        end of the loop all are taken; an epoch resumed there is empty.
        """
        return {"seed": self.seed, "epoch": self.epoch, "taken": self._taken, **self._layout()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Take over seed and place: the next iteration yields what is left of that epoch.

        Raises:
            DataError: the state is not complete, or of a loader with other batches.
        """
        missing = sorted({"seed", "epoch", "taken", *self._layout()} - state.keys())
        if missing:
            raise DataError(f"the DataLoader state lacks {missing}; it has {sorted(state)}")
        wrong = [
            f"{name} is {here} here and {state[name]} in the state"
            for name, here in self._layout().items()
            if state[name] != here
        ]
        batches = state["taken"] if _length(self.dataset) is None else len(self)
        if min(state["seed"], state["epoch"]) < 0 or not 0 <= state["taken"] <= batches:
            wrong.append(f"seed, epoch, taken are {[state[k] for k in ('seed', 'epoch', 'taken')]}")
        if state["taken"] and (self._sampler is not None or self.batch_sampler is not None):
            wrong.append("it was left within an epoch, whose order the sampler does not give again")
        if wrong:
            raise DataError(f"this DataLoader cannot continue from that state: {'; '.join(wrong)}")
        self._seed, self.epoch, self._taken = state["seed"], state["epoch"], state["taken"]
        self._resuming, self._unread, self._beside = True, False, -1

    def _layout(self) -> dict[str, int]:
        """What the batches depend on, beside seed and place."""
        return {
            "samples": -1 if (samples := _length(self.dataset)) is None else samples,
            "batch_size": self.batch_size or 0,
            "shuffle": int(self.shuffle),
            "drop_last": int(self.drop_last),
        }


def _length(dataset: Any) -> int | None:
    """The number of samples, or None if the dataset does not say."""
    if isinstance(dataset, ChainDataset) and None in map(_length, dataset.datasets):
        return None
    return len(dataset) if hasattr(dataset, "__len__") else None
