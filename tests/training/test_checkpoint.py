"""Checkpoint files: what goes in comes out, damage is noticed, a crash leaves the old file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

import tinytorch
from tinytorch import DataError, Tensor
from tinytorch.training import load_checkpoint, save_checkpoint

TREE = {
    "epoch": 3,
    "rate": 0.1,
    "name": "a\u00e9",
    "nothing": None,
    "model": {"0.weight": tinytorch.tensor([[1.0, 2.0]]), "0.bias": tinytorch.tensor(3.5)},
    "list": [1, {"x": tinytorch.tensor([1, 2, 3])}, True],
}

keys = st.text(st.characters(codec="utf-8"), max_size=5) | st.integers() | st.sampled_from("$.a")
arrays = hnp.arrays(
    st.sampled_from(["bool", "int32", "int64", "float16", "float32", "float64"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | arrays
trees = st.recursive(
    leaves,
    lambda t: (
        st.lists(t, max_size=3)
        | st.lists(t, max_size=3).map(tuple)
        | st.dictionaries(keys, t, max_size=3)
    ),
)


def as_tensors(tree: Any) -> Any:
    if isinstance(tree, np.ndarray):
        return tinytorch.from_numpy(tree)
    if isinstance(tree, dict):
        return {key: as_tensors(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(as_tensors(value) for value in tree)
    return tree


def comparable(tree: Any) -> Any:
    """With bits in place of numbers, so that NaN equals itself and -0.0 is not 0.0.

    A Python number passes through JSON, which has one NaN only.
    """
    if isinstance(tree, Tensor):
        return ("tensor", tree.meta, tree.numpy().tobytes())
    if isinstance(tree, dict):
        return {key: comparable(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(comparable(value) for value in tree)
    if isinstance(tree, float):
        return "nan" if tree != tree else np.float64(tree).tobytes()
    return tree


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@settings(max_examples=50)
@given(st.dictionaries(keys, trees, max_size=3))
def test_what_goes_in_comes_out(folder: Path, content: dict[str, Any]) -> None:
    tree = as_tensors(content)
    save_checkpoint(folder / "tree", tree)
    assert comparable(load_checkpoint(folder / "tree")) == comparable(tree)


def test_tensors_are_read_and_written_in_order_whatever_their_strides(tmp_path: Path) -> None:
    base = tinytorch.tensor(np.arange(6.0).reshape(2, 3))
    tree = {"t": base.T, "flipped": base[:, ::2], "wide": base[0].expand(4, 3)}
    save_checkpoint(tmp_path / "a", tree)
    assert comparable(load_checkpoint(tmp_path / "a")) == comparable(tree)


def test_loaded_tensors_can_be_written_in_place(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a", TREE)
    assert load_checkpoint(tmp_path / "a")["model"]["0.weight"].add_(1).tolist() == [[2.0, 3.0]]


def test_other_programs_find_the_tensors_by_their_names(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    save_checkpoint(tmp_path / "a", TREE)
    assert sorted(load_file(tmp_path / "a")) == ["list.1.x", "model.0.bias", "model.0.weight"]


def test_every_truncated_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save_checkpoint(path, TREE)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 5), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="a is truncated, or no safetensors file"):
            load_checkpoint(path)


def test_every_changed_byte_is_noticed(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "a"
    save_checkpoint(path, TREE)
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[place] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        with pytest.raises(DataError, match=r"truncated|was changed since|no checkpoint of"):
            load_checkpoint(path)


def test_a_changed_number_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save_checkpoint(path, TREE)
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(DataError, match="a was changed since it was written: its sha256 differs"):
        load_checkpoint(path)


def test_a_file_of_another_origin(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"w": np.ones(2)}, tmp_path / "a", {"format": "pt"})
    message = "no checkpoint of a TinyTorch trainer (its header has format)"
    with pytest.raises(DataError, match=re.escape(message)):
        load_checkpoint(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        load_checkpoint(tmp_path / "b")


@pytest.mark.parametrize(
    ("tree", "error", "message"),
    [
        ({"a": [{2}]}, TypeError, "a checkpoint cannot hold a set (a.0): it has dicts, lists"),
        ({"a": {object(): 2}}, TypeError, "a checkpoint cannot hold a object (a.key): it has"),
    ],
)
def test_what_cannot_be_saved(tmp_path: Path, tree: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        save_checkpoint(tmp_path / "a", tree)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_an_error_while_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    save_checkpoint(tmp_path / "a", TREE)
    before = (tmp_path / "a").read_bytes()

    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync", fail) if moment == "fsync" else (Path, "replace", fail)))
        with pytest.raises(OSError, match="No space left"):
            save_checkpoint(tmp_path / "a", {"epoch": 4})
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == before


def test_a_process_that_dies_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save_checkpoint(path, TREE)
    script = (
        "import os, sys; from tinytorch.training import save_checkpoint\n"
        "os.fsync = lambda number: os._exit(9)\n"
        "save_checkpoint(sys.argv[1], {'epoch': 4})"
    )
    root = str(Path(tinytorch.__file__).parent.parent)
    died = subprocess.run(
        [sys.executable, "-c", script, str(path)], env={**os.environ, "PYTHONPATH": root}
    )
    assert died.returncode == 9
    assert load_checkpoint(path)["epoch"] == 3
