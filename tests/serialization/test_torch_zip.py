"""Files that PyTorch wrote are read; whatever is in them, nothing of it is run."""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import os
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch import DataError, Tensor, nn


def through(obj: Any) -> Any:
    stream = io.BytesIO()
    torch.save(obj, stream)
    stream.seek(0)
    return tinytorch.load(stream)


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, Tensor) and tuple(ours.shape) == tuple(theirs.shape)
        assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
        assert ours.requires_grad == theirs.requires_grad
        np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert_same(a, b)
    else:
        assert ours == theirs and type(ours) is type(theirs)


def test_a_checkpoint_of_a_whole_run() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    model(torch.randn(2, 3, 5, 5)).sum().backward()
    optimizer.step()
    saved = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "epoch": 3,
        "losses": [1.5, float("inf"), 2],
        "best": None,
        "args": {"name": "run", 7: (1, True)},
        "ordered": collections.OrderedDict(a=1),
    }
    assert_same(through(saved), saved)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "bool"])
def test_tensors_of_every_kind(dtype: str) -> None:
    base = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, dtype))
    assert_same(through([base]), [base])
    views = [
        base.permute(2, 0, 1),
        base[:, 1:, ::2],
        base[0, 0].expand(3, 4),
        base[1, 2, 3],
        base[:0],
    ]
    assert_same(through(views), views)


def test_tensors_that_share_memory_share_it_again() -> None:
    base = torch.zeros(4)
    ours = through({"all": base, "part": base[1:3]})
    ours["part"].fill_(1)
    assert ours["all"].tolist() == [0, 1, 1, 0]


def test_a_parameter_requires_a_gradient() -> None:
    saved = [torch.nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True)]
    ours = through([*saved, saved[0]])
    assert_same(ours, [*saved, saved[0]])
    assert type(ours[0]) is nn.Parameter and type(ours[1]) is tinytorch.Tensor
    assert ours[2] is ours[0]


def test_names_without_values_become_strings() -> None:
    saved = {"size": torch.Size([1, 2]), "dtype": torch.float32, "device": torch.device("cpu")}
    assert through(saved) == {"size": (1, 2), "dtype": "torch.float32", "device": "cpu"}


def test_the_state_of_a_model_goes_into_ours(tmp_path: Path) -> None:
    theirs = torch.nn.Linear(3, 2)
    torch.save(theirs.state_dict(), tmp_path / "model.pt")
    ours = tinytorch.nn.Linear(3, 2)
    ours.load_state_dict(
        tinytorch.load(tmp_path / "model.pt", map_location="cpu", weights_only=True)
    )
    x = np.ones((1, 3), np.float32)
    np.testing.assert_allclose(
        ours(tinytorch.tensor(x)).detach().numpy(), theirs(torch.tensor(x)).detach().numpy(), 1e-4
    )


# -- what is refused -------------------------------------------------------------------------------


class Runs:
    """An object whose pickle calls a function when it is loaded."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


def refused(stream: io.BytesIO, message: str) -> None:
    stream.seek(0)
    with pytest.raises(DataError, match=message):
        tinytorch.load(stream, weights_only=False)


def test_a_whole_model_is_refused_with_what_to_write() -> None:
    stream = io.BytesIO()
    torch.save(torch.nn.Linear(2, 2), stream)
    message = (
        "the file is refused: it holds an object of torch.nn.modules.linear.Linear, which is "
        "loaded by running code. Only dicts, lists, tuples, numbers, strings, None and tensors "
        "are read; where the file was made, write torch.save(model.state_dict(), path)"
    )
    refused(stream, re.escape(message))


@pytest.mark.parametrize(
    "hostile",
    [
        lambda path: Runs(os.system, f"touch {path}"),
        lambda path: Runs(eval, f"open({str(path)!r}, 'w')"),
        lambda path: Runs(open, str(path), "w"),
        lambda path: Runs(getattr, "text", "upper"),
        lambda path: {"deep": [(Runs(os.mkdir, str(path)),)]},
        lambda path: {Runs(os.mkdir, str(path)): 1},
    ],
)
def test_code_in_a_pickle_is_never_run(tmp_path: Path, hostile: Any) -> None:
    target = tmp_path / "was_here"
    stream = io.BytesIO()
    torch.save({"weights": torch.ones(2), "x": hostile(target)}, stream)
    refused(stream, r"is refused: it holds an object of (posix|builtins|__builtin__|io|_io)\.")
    assert not target.exists()


def archive(program: bytes, **storages: bytes) -> io.BytesIO:
    """A file like PyTorch's, with a pickle written by hand."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("archive/data.pkl", program)
        for key, data in storages.items():
            file.writestr(f"archive/data/{key}", data)
    return stream


@pytest.mark.parametrize(
    ("program", "message"),
    [
        # BUILD tries to replace what the next file's tensors are made by
        (b"ctorch._utils\n_rebuild_tensor_v2\n(N}X\x05\x00\x00\x00_callK\x01stb.", "is refused"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n}X\x05\x00\x00\x00_callK\x01sb.", "is refused"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n.", "it holds a _Function"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x00))tR.", "a tensor without a storage"),
        (b"ccollections\nOrderedDict\n)\x81.", "is refused"),
        (b"cbuiltins\neval\n(X\x01\x00\x00\x001tR.", "it holds an object of builtins.eval"),
        (b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.", "it holds an object of builtins.eval"),
        (b"ibuiltins\neval\n.", "is refused"),
        (b"\x82\x01.", "is refused"),  # EXT1: a registered extension
        (b"X\x01\x00\x00\x00aQ.", "is refused"),
        (b"(X\x01\x00\x00\x00aK\x01K\x01K\x01K\x01tQ.", "an unknown reference"),
        (b"C\x01a.", "it holds a bytes"),
        (b"K", "is damaged|is refused"),
    ],
)
def test_pickles_written_by_hand(program: bytes, message: str) -> None:
    refused(archive(program), message)
    saved = [torch.ones(2)]
    assert_same(through(saved), saved)  # and nothing of it remains


def tensor_program(offset: int, shape: int, stride: int, key: bytes = b"0") -> bytes:
    def number(n: int) -> bytes:
        return b"J" + n.to_bytes(4, "little", signed=True)

    pid = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00" + key
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n(" + pid + b"X\x03\x00\x00\x00cpuK\x04tQ"
        + number(offset) + number(shape) + b"\x85" + number(stride) + b"\x85\x89tR."
    )  # fmt: skip


def test_a_tensor_outside_of_its_storage_is_refused() -> None:
    data = np.arange(4, dtype=np.float32).tobytes()

    def load(*numbers: int) -> Any:
        stream = archive(tensor_program(*numbers), **{"0": data})
        stream.seek(0)
        return tinytorch.load(stream)

    assert load(1, 3, 1).tolist() == [1, 2, 3]
    for numbers in [(2, 3, 1), (0, 3, 2), (4, 1, 1), (0, 10**9, 1)]:
        with pytest.raises(DataError, match="does not fit into a storage of 4"):
            load(*numbers)
    for numbers in [(-1, 2, 1), (0, -2, 1), (3, 2, -1)]:
        with pytest.raises(DataError, match="is damaged: a tensor of shape"):
            load(*numbers)
    refused(archive(tensor_program(0, 4, 1), **{"0": data[:8]}), "2 of 4 elements are there")
    refused(archive(tensor_program(0, 4, 1)), "is refused|is damaged")


def test_every_damaged_file_is_refused(rng: np.random.Generator) -> None:
    stream = io.BytesIO()
    torch.save({"w": torch.arange(3.0), "n": [1, "two"]}, stream)
    whole = stream.getvalue()
    for place in rng.integers(0, len(whole), 300):
        changed = bytearray(whole)
        changed[place] ^= int(rng.integers(1, 256))
        with contextlib.suppress(DataError):
            tinytorch.load(io.BytesIO(bytes(changed)))
    for length in range(0, len(whole), 7):
        with pytest.raises(DataError):
            tinytorch.load(io.BytesIO(whole[:length]))


def test_other_files() -> None:
    stream = io.BytesIO()
    torch.save([torch.ones(1)], stream, _use_new_zipfile_serialization=False)
    refused(stream, "the file is a bare pickle, as torch.save wrote before 1.6")
    refused(io.BytesIO(pickle.dumps({"a": 1})), "bare pickle|no safetensors file")
    scripted = io.BytesIO()
    with zipfile.ZipFile(scripted, "w") as file:
        file.writestr("readme.txt", "hello")
    refused(scripted, "is a zip archive without data.pkl")
    namespace = io.BytesIO()
    torch.save({"args": argparse.Namespace(lr=0.1)}, namespace)
    refused(namespace, "it holds an object of argparse.Namespace")


def test_the_state_of_a_schedule_with_milestones() -> None:
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 1.0)
    saved = through(torch.optim.lr_scheduler.MultiStepLR(theirs, [4, 2, 2]).state_dict())
    optimizer = tinytorch.optim.SGD([tinytorch.ones(1)], 1.0)
    schedule = tinytorch.optim.lr_scheduler.MultiStepLR(optimizer, [9])
    schedule.load_state_dict(saved)
    assert schedule.milestones == [2, 2, 4]


def test_a_tensor_that_is_stored_with_the_other_sign_is_refused() -> None:
    stream = io.BytesIO()
    torch.save(torch.complex(torch.ones(2), torch.ones(2)).conj().imag, stream)
    stream.seek(0)
    refused(stream, "a tensor with .*neg.*; save tensor.resolve_neg()")
