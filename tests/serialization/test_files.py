"""`save` and `load`: what goes in comes out. (Damage to files: tests/training/test_checkpoint.)"""

from __future__ import annotations

import argparse
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import tinytorch
from tinytorch import nn, optim
from tinytorch.serialization import sharing


def through(obj: Any) -> Any:
    stream = io.BytesIO()
    tinytorch.save(obj, stream)
    stream.seek(0)
    return tinytorch.load(stream)


def test_a_run_is_saved_and_continued(tmp_path: Path, rng: np.random.Generator) -> None:
    x = tinytorch.tensor(rng.normal(size=(8, 3)).astype(np.float32))

    def make() -> Any:
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        optimizer = optim.Adam(model.parameters(), lr=0.1)
        return model, optimizer, optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def train(model: Any, optimizer: Any, schedule: Any, steps: int) -> list[float]:
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        return losses

    run = make()
    train(*run, 3)
    parts = ("model", "optimizer", "schedule")
    checkpoint = {name: part.state_dict() for name, part in zip(parts, run, strict=True)}
    tinytorch.save({**checkpoint, "epoch": 3}, tmp_path / "run.pt")
    expected = train(*run, 4)

    loaded = tinytorch.load(tmp_path / "run.pt", map_location=tinytorch, weights_only=True)
    assert loaded["epoch"] == 3
    again = make()
    for name, part in zip(parts, again, strict=True):
        part.load_state_dict(loaded[name])
    assert train(*again, 4) == expected


def test_kinds_of_values() -> None:
    saved = {
        "tuple": (1, [2.5, (None,)], "x"),
        1: {2: 3, None: 4, (5, 6): 7},
        "$tensor": "not one",
        "numbers": [math.inf, -0.0, 10**30, True],
        "numpy": np.float32(1.5),
        "": {"": tinytorch.ones(1)},
    }
    loaded = through(saved)
    assert loaded.pop("").pop("").tolist() == [1.0]
    del saved[""]
    assert loaded == saved and type(loaded["tuple"]) is tuple
    assert type(through(np.bool_(True))) is bool
    assert math.isnan(through(math.nan))


def test_arrays_and_gradients() -> None:
    array = through(np.arange(6).reshape(2, 3).T)
    assert isinstance(array, np.ndarray) and array.tolist() == [[0, 3], [1, 4], [2, 5]]
    p = through(nn.Parameter(tinytorch.ones(2)))
    assert type(p) is nn.Parameter and p.requires_grad and p.tolist() == [1, 1]
    frozen = through(nn.Parameter(tinytorch.ones(2), False))
    assert type(frozen) is nn.Parameter and not frozen.requires_grad
    a, b, view = through((p, p, p.detach()))
    assert type(a) is nn.Parameter and a is b and type(view) is tinytorch.Tensor
    view.fill_(2)
    assert a.tolist() == [2, 2]
    assert not through(tinytorch.ones(2)).requires_grad


def test_names_that_would_be_one_are_made_two() -> None:
    loaded = through({"a.b": tinytorch.ones(1), "a": {"b": tinytorch.zeros(1)}})
    assert loaded["a.b"].item() == 1 and loaded["a"]["b"].item() == 0
    assert through({"__metadata__": tinytorch.ones(1)})["__metadata__"].item() == 1


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float16", "float32", "float64"])
def test_other_programs_read_and_write_the_format(tmp_path: Path, dtype: str) -> None:
    arrays = {"a": np.array([[0, 1, 2]]).astype(dtype), "b.c": np.array(1).astype(dtype)}
    path = tmp_path / "x.safetensors"
    tinytorch.save({"a": tinytorch.tensor(arrays["a"]), "b": [tinytorch.ones(2)]}, path)
    theirs = safetensors.numpy.load_file(path)
    assert theirs["a"].tolist() == arrays["a"].tolist() and theirs["a"].dtype == dtype
    safetensors.numpy.save_file(arrays, path)
    loaded = tinytorch.load(path)
    assert {k: v.tolist() for k, v in loaded.items()} == {k: v.tolist() for k, v in arrays.items()}
    assert loaded["a"].dtype.name == dtype


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (nn.Linear(2, 2), "cannot hold a Linear (the whole of it): .*; save its state_dict()"),
        ({"opt": optim.SGD([tinytorch.ones(1)])}, "a SGD (opt): .*; save its state_dict()"),
        ({"args": argparse.Namespace(lr=1)}, "a Namespace (args): .*; save vars(args)"),
        ([{"f": {1, 2}}], "a set (0.f): .*; save it as a list"),
        ({"x": np.zeros(2, np.uint16)}, "cannot hold a ndarray of uint16 (x): it has dicts"),
        ([print], "a builtin_function_or_method (0): it has dicts, lists, tuples"),
    ],
)
def test_what_cannot_be_saved_says_what_to_save(obj: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=re.escape(message).replace(r"\.\*", ".*")):
        tinytorch.save(obj, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        tinytorch.load(tmp_path / "none")
    (tmp_path / "text").write_text("a text that is long enough to have a header")
    with pytest.raises(tinytorch.DataError, match="text is truncated, or no safetensors file"):
        tinytorch.load(tmp_path / "text")


def test_a_checkpoint_with_one_wrong_bit_is_no_file_of_another_program() -> None:
    stream = io.BytesIO()
    tinytorch.save({"a": tinytorch.tensor([1.0, 2.0]), "n": 3}, stream)
    data = bytearray(stream.getvalue())
    for bit in range(8 * (len(data) - 8)):  # the last 8 bytes are the numbers
        data[bit // 8] ^= 1 << bit % 8
        try:
            found = tinytorch.load(io.BytesIO(bytes(data)))
            assert found["n"] == 3 and found["a"].tolist() == [1, 2]
        except tinytorch.DataError:
            pass
        data[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("key", ["tree", "sha256", "tinytorch.checkpoint"])
def test_a_file_of_another_program_may_have_one_of_our_keys(key: str, tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    safetensors.numpy.save_file({"w": np.ones(2, np.float32)}, path, {key: "x"})
    assert tinytorch.load(path)["w"].tolist() == [1, 1]


class Halves(io.RawIOBase):
    """A stream that takes a part of what is written to it, as the system may."""

    def __init__(self) -> None:
        self.taken = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)[:50]
        self.taken += part
        return len(part)


def test_streams_without_a_buffer_get_all_of_it() -> None:
    stream = Halves()
    tinytorch.save({"a": tinytorch.arange(100)}, stream)
    loaded = tinytorch.load(io.BytesIO(bytes(stream.taken)))
    assert loaded["a"].tolist() == list(range(100)) and not stream.closed


def test_anything_that_names_a_path(tmp_path: Path) -> None:
    class Named:
        def __fspath__(self) -> str:
            return str(tmp_path / "x")

    tinytorch.save([1], Named())
    assert tinytorch.load(Named()) == [1]


def test_tensors_that_share_memory_share_it_again() -> None:
    x = tinytorch.arange(6.0).reshape(2, 3)
    flat = tinytorch.arange(8)
    saved = {
        "row": x[1], "x": x, "turned": [x.T, x.detach()], "again": x, "one": x[:1, 2:],
        "wide": x[0].expand(2, 3), "low": flat[:5], "high": flat[3:], "other": tinytorch.ones(6),
    }  # fmt: skip
    loaded = through(saved)
    assert str(loaded) == str(saved) and loaded["again"] is loaded["x"]
    for nest in (saved, loaded):
        nest["x"].mul_(10.0)
        nest["low"].add_(100)
        nest["other"][0] = 7.0
    assert str(loaded) == str(saved)
    weight = nn.Parameter(tinytorch.ones(2))
    first, second = through([weight, weight.detach()])
    assert first.requires_grad and not second.requires_grad


def test_what_shares_no_element_is_saved_as_before() -> None:
    array = np.arange(8, dtype=np.float32)
    halves = [tinytorch.from_numpy(array[i : i + 4]) for i in (4, 0)]
    assert sharing.places({"a": halves[0], "b": halves[1], "c": tinytorch.ones(0)}) == {}
    assert sharing.places({"a": halves[0], "b": tinytorch.from_numpy(array.view(np.int32))}) == {}


@pytest.mark.parametrize(
    "place", [[0, 3, 1, 1], [0, 3, -1, 1], [0, 10**15, 0, 1], [0, 3, 0], [0, -1, 0, 1], ["x"], "no"]
)
def test_a_crafted_place_leaves_no_memory(place: Any) -> None:
    tensors = {"a": tinytorch.ones(3)}
    with pytest.raises(tinytorch.DataError, match=r"damaged|does not fit"):
        sharing.share(tensors, {"a": place})


@pytest.mark.parametrize(
    ("spans", "is_whole"),
    [
        ([(0, 4), (4, 8)], True),
        ([(4, 8), (0, 4)], True),
        ([(0, 4), (0, 4)], False),  # one twice, and four bytes that are nobody's
        ([(0, 4), (8, 12)], False),
        ([(0, 4), (2, 6), (6, 8)], False),
    ],
)
def test_each_byte_of_a_file_belongs_to_one_tensor(
    spans: list[tuple[int, int]], is_whole: bool
) -> None:
    header = {
        f"t{i}": {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}
        for i, (start, end) in enumerate(spans)
    }
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(range(8))
    if is_whole:
        ours, theirs = tinytorch.load(io.BytesIO(data)), safetensors.numpy.load(data)
        assert {name: t.tolist() for name, t in ours.items()} == {
            name: array.tolist() for name, array in theirs.items()
        }
        return
    with pytest.raises(safetensors.SafetensorError):
        safetensors.numpy.load(data)
    with pytest.raises(tinytorch.DataError, match="is truncated, or no safetensors file"):
        tinytorch.load(io.BytesIO(data))
