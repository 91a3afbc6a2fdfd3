"""Loaders, samplers and datasets as programs for PyTorch write them, run with both libraries."""

from __future__ import annotations

import collections
import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data

import tinytorch
import tinytorch.data

LIBRARIES = [(tinytorch, tinytorch.data), (torch, torch.utils.data)]
Point = collections.namedtuple("Point", "x y")


def plain(value: Any, library: Any) -> Any:
    """The same structure with (dtype, values) for tensors."""
    if isinstance(value, library.Tensor):
        return (str(value.dtype).split(".")[-1], value.tolist())
    if isinstance(value, dict):
        return {key: plain(v, library) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [plain(v, library) for v in value]
        return (type(value).__name__, items)
    return value


SAMPLES = [
    lambda i, t: (t.tensor([i, 2 * i]), i),
    lambda i, t: {"x": np.full((2, 2), i, np.float32), "name": f"sample {i}", "y": [i, 0.5 * i]},
    lambda i, t: Point(i, (True, b"bytes")),
    lambda i, t: [np.int64(i), np.float32(i), (i / 2, {"deep": ("a", t.tensor(1.5))})],
    lambda i, t: i / 3,
    lambda i, t: "text",
]


def map_style(library: Any, module: Any, sample: Any, length: int) -> Any:
    class Items(module.Dataset):
        def __len__(self) -> int:
            return length

        def __getitem__(self, index: int) -> Any:
            return sample(index, library)

    return Items()


def stream(library: Any, module: Any, sample: Any, length: int) -> Any:
    class Stream(module.IterableDataset):
        def __iter__(self) -> Any:
            return (sample(i, library) for i in range(length))

    return Stream()


@pytest.mark.parametrize("kind", [map_style, stream])
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("options", [{"batch_size": 3}, {"batch_size": None}, {}])
def test_batches(kind: Any, sample: Any, options: dict[str, Any]) -> None:
    ours, theirs = (
        [plain(b, t) for b in m.DataLoader(kind(t, m, sample, 5), **options)] for t, m in LIBRARIES
    )
    assert ours == theirs


@pytest.mark.parametrize(
    "options",
    [
        lambda m: {"sampler": m.SequentialSampler(range(10)), "batch_size": 4},
        lambda m: {"sampler": [3, 1, 2], "batch_size": 2, "drop_last": True},
        lambda m: {"sampler": m.SubsetRandomSampler([5]), "batch_size": 2},
        lambda m: {"batch_sampler": [[1, 2], [0], [9, 9, 9]]},
        lambda m: {
            "batch_sampler": m.BatchSampler(m.SequentialSampler(range(7)), 3, drop_last=False)
        },
        lambda m: {"sampler": m.WeightedRandomSampler([0, 0, 1.0], 5), "batch_size": 2},
        lambda m: {"batch_size": 4, "drop_last": True, "shuffle": False, "pin_memory": False},
        lambda m: {"batch_size": 5, "collate_fn": lambda batch: sum(batch), "timeout": 0},
    ],
)
def test_orders(options: Any) -> None:
    seen = []
    for t, m in LIBRARIES:
        loader = m.DataLoader(map_style(t, m, lambda i, t: i, 10), **options(m))
        batches = [plain(batch, t) for batch in loader]
        assert len(loader) == len(batches)
        seen.append([batches, [plain(batch, t) for batch in loader]])
    assert seen[0] == seen[1]


def test_a_dataset_without_a_length_is_read_by_a_sampler() -> None:
    for t, m in LIBRARIES:

        class Endless(m.Dataset):  # type: ignore[name-defined,misc]
            def __getitem__(self, index: int) -> int:
                return index * index

        loader = m.DataLoader(Endless(), sampler=[2, 4], batch_size=2)
        assert [plain(batch, t) for batch in loader] == [("int64", [4, 16])]
        with pytest.raises(TypeError):
            list(m.DataLoader(Endless(), batch_size=2))
    with pytest.raises(TypeError, match=r"Endless has no __len__, .* define it, pass a sampler"):
        next(iter(tinytorch.data.DataLoader(tinytorch_endless())))


def tinytorch_endless() -> Any:
    class Endless(tinytorch.data.Dataset[int]):
        def __getitem__(self, index: int) -> int:
            return index

    return Endless()


def test_a_stream_has_the_length_that_it_says() -> None:
    for t, m in LIBRARIES:
        endless = stream(t, m, lambda i, t: i, 5)
        with pytest.raises(TypeError):
            len(m.DataLoader(endless, 2))
        type(endless).__len__ = lambda self: 5
        assert len(m.DataLoader(endless, 2)) == 3
        with pytest.raises(ValueError):
            m.DataLoader(endless, 2, shuffle=True)
        with pytest.raises(ValueError):
            m.DataLoader(endless, 2, sampler=[1])


def test_datasets_one_after_another() -> None:
    for t, m in LIBRARIES:
        a, b = (map_style(t, m, lambda i, t, k=k: k + i, 3) for k in (0, 10))
        both = a + b
        assert isinstance(both, m.ConcatDataset)
        assert [both[i] for i in range(6)] == [0, 1, 2, 10, 11, 12] and both[-1] == 12
        assert both.cumulative_sizes == [3, 6]
        chained = m.ChainDataset([stream(t, m, lambda i, t: i, 2)] * 2)
        assert list(chained) == [0, 1, 0, 1]
        part = m.Subset(a, np.array([2, 0]))
        assert [part[i] for i in range(2)] == [2, 0]
        ((batch,),) = [m.DataLoader(m.Subset(both, range(1, 5)), 4)]
        assert batch.tolist() == [1, 2, 10, 11]


def test_tensor_datasets_give_lists_and_may_require_gradients() -> None:
    for t, m in LIBRARIES:
        x = t.tensor([[1.0], [2.0]], requires_grad=True)
        (batch,) = m.DataLoader([x[0], x[1]], 2)
        batch.sum().backward()
        assert x.grad.tolist() == [[1], [1]]
        (pair,) = m.DataLoader(m.TensorDataset(t.ones(2), t.zeros(2)), 2)
        assert type(pair) is list


@pytest.mark.parametrize(
    ("replacement", "num_samples"), [(False, None), (False, 25), (True, None), (True, 30)]
)
def test_random_samplers(replacement: bool, num_samples: int | None) -> None:
    sampler = tinytorch.data.RandomSampler(range(10), replacement, num_samples, 3)
    order = list(sampler)
    assert len(order) == len(sampler) == (num_samples or 10)
    assert all(type(i) is int and 0 <= i < 10 for i in order)
    if not replacement:
        assert sorted(order[:10]) == list(range(10)) and order[:10] != list(range(10))


def test_samplers_draw_from_their_generator() -> None:
    generator = tinytorch.Generator().manual_seed(3)
    sampler = tinytorch.data.RandomSampler(range(50), generator=generator)
    first, second = list(sampler), list(sampler)
    generator.manual_seed(3)
    assert list(sampler) == first != second
    tinytorch.manual_seed(1)
    one = list(tinytorch.data.SubsetRandomSampler(range(50)))
    tinytorch.manual_seed(1)
    assert list(tinytorch.data.SubsetRandomSampler(range(50))) == one


def test_weights_are_followed() -> None:
    weights = [1.0, 0.0, 3.0]
    drawn = list(tinytorch.data.WeightedRandomSampler(weights, 4000, generator=0))
    counts = np.bincount(drawn, minlength=3) / 4000
    np.testing.assert_allclose(counts, [0.25, 0, 0.75], atol=0.03)
    once = tinytorch.data.WeightedRandomSampler(weights, 2, replacement=False, generator=0)
    assert sorted(once) == [0, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d.WeightedRandomSampler([1, -1], 2), "at least 0 and not all 0, got [1.0, -1."),
        (lambda d: d.WeightedRandomSampler([0, 1], 2, False), "at most the 1 samples whose weight"),
        (lambda d: d.WeightedRandomSampler([1, float("inf")], 2), "weights must be finite"),
        (lambda d: d.RandomSampler([1], num_samples=0), "num_samples must be at least 1, and an "),
        (lambda d: d.RandomSampler([1], num_samples=2.5), "and an integer, got 2.5"),
        (lambda d: d.WeightedRandomSampler([1.0], 2.5), "and an integer, got 2.5"),
        (
            lambda d: d.BatchSampler([1], 0, False),
            "batch_size must be at least 1, and an integer, got 0",
        ),
        (lambda d: d.ConcatDataset([]), "needs at least one dataset"),
        (lambda d: d.DataLoader([1], shuffle=True, sampler=[0]), "sampler and shuffle with list"),
        (
            lambda d: d.DataLoader([1], 2, batch_sampler=[[0]]),
            "batch_sampler is in place of batch_size",
        ),
        (
            lambda d: d.DataLoader([1], None, drop_last=True),
            "drop_last without batches: batch_size is None",
        ),
    ],
)
def test_what_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make(tinytorch.data)


def test_workers_are_answered_with_prefetch() -> None:
    called = []
    with pytest.warns(UserWarning, match=r"num_workers=4 starts no processes: .* prefetch=4"):
        loader = tinytorch.data.DataLoader(
            range(4), 2, num_workers=4, worker_init_fn=called.append, persistent_workers=True
        )
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3]] and called == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tinytorch.data.DataLoader(range(4), num_workers=0)
    assert tinytorch.data.get_worker_info() is None


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_sampler_draws_where_the_loop_stands(prefetch: int) -> None:
    def numbers() -> list[list[int]]:
        tinytorch.manual_seed(5)
        sampler = tinytorch.data.RandomSampler(range(20))
        loader = tinytorch.data.DataLoader(range(20), 4, sampler=sampler, prefetch=prefetch)
        seen = []
        for batch in loader:
            tinytorch.rand(1)
            seen.append(batch.tolist())
        return seen

    assert numbers() == numbers()


def test_training_with_a_sampler_resumes_between_epochs_only() -> None:
    def loader() -> tinytorch.data.DataLoader:
        return tinytorch.data.DataLoader(range(4), 2, sampler=[3, 2, 1, 0])

    one = loader()
    list(one)
    two = loader()
    two.load_state_dict(one.state_dict())
    assert two.epoch == 1
    next(iter(one))
    with pytest.raises(tinytorch.DataError, match="the sampler does not give again"):
        two.load_state_dict(one.state_dict())


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        tinytorch.data.no_such_name  # noqa: B018


def test_the_arguments_stand_where_pytorch_has_them() -> None:
    import inspect

    for name in ("DataLoader", "RandomSampler", "WeightedRandomSampler", "BatchSampler"):
        ours = list(inspect.signature(getattr(tinytorch.data, name)).parameters)
        theirs = list(inspect.signature(getattr(torch.utils.data, name)).parameters)
        assert ours[: len(theirs)] == theirs
