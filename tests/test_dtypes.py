from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import tinytorch
from tinytorch import dtypes
from tinytorch.dtypes import DTYPES, as_dtype, is_narrower, promote, tensor_meta
from tinytorch.errors import DTypeError


def test_one_object_for_each():
    for name, dtype in DTYPES.items():
        assert as_dtype(name) is as_dtype(dtype) is dtype
        assert name == "bfloat16" or as_dtype(np.dtype(name)) is dtype
        assert pickle.loads(pickle.dumps(dtype)) is dtype
        assert repr(dtype) == f"tinytorch.{name}"
        assert name == "bfloat16" or np.zeros(1, dtype).dtype == name
        assert getattr(tinytorch, name) is dtype
    assert as_dtype(float) is dtypes.float32
    assert as_dtype(int) is dtypes.int64
    assert as_dtype(bool) is dtypes.bool_


@pytest.mark.parametrize("wrong", ["complex64", np.uint16, "nosuch", None, [], object()])
def test_unknown_dtypes(wrong):
    with pytest.raises(DTypeError, match="is not a TinyTorch dtype; there are bool, uint8, int8"):
        as_dtype(wrong)


def _torch_operand(name: str, kind: str):
    if kind == "scalar":
        return {"bool": True, "int64": 1, "float32": 1.0}[name]
    return torch.ones((2,) if kind == "tensor" else (), dtype=getattr(torch, name))


def _operand(name: str, kind: str):
    if kind == "scalar":
        return {"bool": bool, "int64": int, "float32": float}[name]
    return tensor_meta((2,) if kind == "tensor" else (), as_dtype(name))


KINDS = [(n, k) for n in DTYPES for k in ("tensor", "0-d")]
KINDS += [(n, "scalar") for n in ("bool", "int64", "float32")]


SCALARS = {("bool", "scalar"), ("int64", "scalar"), ("float32", "scalar")}


@pytest.mark.parametrize(
    "a, b", [(a, b) for a, b in product(KINDS, KINDS) if not {a, b} <= SCALARS]
)
def test_promotion_like_pytorch(a, b):
    wanted = torch.result_type(_torch_operand(*a), _torch_operand(*b))
    assert f"torch.{promote(_operand(*a), _operand(*b)).name}" == str(wanted)


@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
def test_promotion_does_not_depend_on_the_order(kinds):
    operands = [_operand(*k) for k in kinds]
    assert promote(*operands) is promote(*reversed(operands))


def test_narrower():
    assert is_narrower(dtypes.bool_, dtypes.int32)
    assert is_narrower(dtypes.int64, dtypes.float16)
    assert not is_narrower(dtypes.float16, dtypes.float64)
    assert not is_narrower(dtypes.int32, dtypes.int64)


def test_metas_are_shared():
    a, b = tensor_meta((2, 3), dtypes.float32), tensor_meta([2, 3], dtypes.float32)
    assert a is b and pickle.loads(pickle.dumps(a)) is a
    assert (a.ndim, a.size, a.nbytes, repr(a)) == (2, 6, 24, "float32[2, 3]")


def test_the_table_of_metas_does_not_grow_without_bound(monkeypatch):
    monkeypatch.setattr(dtypes, "_METAS", {})
    monkeypatch.setattr(dtypes, "_METAS_LIMIT", 10)
    for n in range(100):
        assert tensor_meta((n,), dtypes.float32).shape == (n,)
    assert len(dtypes._METAS) <= 10
