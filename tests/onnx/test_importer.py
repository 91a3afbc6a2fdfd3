"""Import from ONNX, by ONNX's own backend node tests.

A test whose operators and number types TinyTorch claims must pass, eagerly, through the interpreter
of its trace and compiled; any other must be refused with an error that says why.
"""

from __future__ import annotations

import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tinytorch
from tinytorch.graph import trace
from tinytorch.onnx import DamagedOnnxError, UnsupportedOnnxError, import_onnx
from tinytorch.onnx.operators import OPERATORS
from tinytorch.onnx.operators.movement import constant

# Options of operators that are otherwise claimed, by what the error says of them.
REFUSED = {
    r"Attention with|of Attention": ("attention_",),
    r"random numbers": ("training_dropout",),
    r"over 3 dimensions": ("convtranspose_3d",),
    r"result . of MaxPool": ("maxpool_with_argmax",),
    r"with reduction '(mul|max|min)'": ("scatter_elements_with_reduction", "scatternd_m"),
    r"not a tensor": ("identity_sequence", "identity_opt"),
    # composed operators whose functions compute shapes from the values of inputs
    r"decides on shapes": ("center_crop_pad", "blackmanwindow", "hammingwindow", "hannwindow"),
}
LEAST = 1080  # so many cases of onnx 1.23 pass; fewer means that something was lost


@cache
def node_tests() -> dict[str, Any]:
    """ONNX's backend node tests, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cases overflow on purpose
        from onnx.backend.test.loader import load_model_tests

        return {case.name: case for case in load_model_tests(kind="node")}


def _is_claimed(model: Any) -> bool:
    return all(n.domain in ("", "ai.onnx") and n.op_type in OPERATORS for n in model.graph.node)


def _arrays(values: Any) -> list[Any]:
    return [onnx.numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for v in values]


def _decisive(model: Any) -> set[str]:
    """Inputs that operators must know the values of."""
    return {
        node.input[i]
        for node in model.graph.node
        for i in OPERATORS[node.op_type].static
        if i < len(node.input)
    }


def _check(case: Any) -> None:
    """Run one case three ways."""
    names = [value.name for value in case.model.graph.input]
    decisive = _decisive(case.model)
    for inputs, expected in case.data_sets:
        given = dict(zip(names, _arrays(inputs), strict=True))
        module = import_onnx(case.model, {k: v for k, v in given.items() if k in decisive})
        args = [constant(np.asarray(given[name])) for name in module.input_names]
        for run in (module, trace(module, *args), tinytorch.compile(module)):
            results = run(*args)
            results = results if isinstance(results, tuple) else (results,)
            for result, wanted in zip(results, _arrays(expected), strict=False):
                actual, wanted = result.detach().numpy(), np.asarray(wanted)
                assert (actual.shape, actual.dtype) == (wanted.shape, wanted.dtype), case.name
                atol = max(case.atol, 1e-7)
                np.testing.assert_allclose(
                    actual, wanted, rtol=case.rtol, atol=atol, err_msg=case.name
                )


def _check_all(cases: list[Any]) -> int:
    """Check cases; returns how many passed, the others having been refused for a good reason."""
    passed = 0
    with tinytorch.using_backend("numpy"), np.errstate(all="ignore"):
        for case in cases:
            try:
                _check(case)
            except UnsupportedOnnxError as error:
                assert _may_refuse(case.name, str(error)), f"{case.name}: {error}"
            else:
                passed += 1
    return passed


def _claimed_cases() -> list[Any]:
    return [case for case in node_tests().values() if _is_claimed(case.model)]


@pytest.mark.slow
def test_node_tests_of_claimed_operators_pass() -> None:
    assert _check_all(_claimed_cases()) >= LEAST


@pytest.mark.slow
def test_other_node_tests_are_refused_with_the_reason() -> None:
    for case in node_tests().values():
        if not _is_claimed(case.model):
            with pytest.raises(UnsupportedOnnxError, match=r"is not supported|is of type"):
                import_onnx(case.model)


def _may_refuse(name: str, message: str) -> bool:
    if re.search(
        r" is of type .*; TinyTorch has |float16 is for storage only|pool2d takes fl", message
    ):
        return True
    return any(
        re.search(reason, message) and any(part in name for part in parts)
        for reason, parts in REFUSED.items()
    )


# -- by hand ---------------------------------------------------------------------------------------


def _model(op_type: str, inputs: dict[str, tuple[int, ...]], opset: int = 18) -> Any:
    node = helper.make_node(op_type, list(inputs), ["y"])
    values = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in inputs.items()
    ]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one", values, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def test_an_unknown_operator_is_named_with_those_there_are() -> None:
    with pytest.raises(UnsupportedOnnxError, match="Det is not supported; supported are Abs,"):
        import_onnx(_model("Det", {"x": (2, 2)}))


def test_an_operator_that_meant_something_else_is_refused() -> None:
    with pytest.raises(UnsupportedOnnxError, match="Softmax of operator set 11 means"):
        import_onnx(_model("Softmax", {"x": (2, 2)}, opset=11))


def test_a_shape_that_is_data_must_be_given() -> None:
    module = import_onnx(_model("Reshape", {"x": (4,), "shape": (2,)}))
    x, shape = tinytorch.ones(4), tinytorch.tensor([2, 2])
    with pytest.raises(UnsupportedOnnxError, match="input shape of Reshape decides on shapes"):
        module(x, shape)
    fixed = import_onnx(_model("Reshape", {"x": (4,), "shape": (2,)}), {"shape": np.array([2, 2])})
    assert fixed.input_names == ["x"]
    assert fixed(x).shape == (2, 2)


def test_the_number_of_inputs_is_checked() -> None:
    module = import_onnx(_model("Add", {"a": (2,), "b": (2,)}))
    with pytest.raises(TypeError, match=r"the model takes 2 tensors \(a, b\), not 1"):
        module(tinytorch.ones(2))


def test_a_model_is_read_from_a_file(tmp_path: Path) -> None:
    onnx.save(_model("Relu", {"x": (3,)}), tmp_path / "relu.onnx")
    module = import_onnx(tmp_path / "relu.onnx")
    assert module(tinytorch.tensor([-1.0, 0.0, 2.0])).tolist() == [0.0, 0.0, 2.0]


@pytest.mark.parametrize("damage", ["cut", "empty", "text"])
def test_a_damaged_file_names_itself(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_model("Relu", {"x": (3,)}), path)
    whole = path.read_bytes()
    path.write_bytes(
        {"cut": whole[: len(whole) // 2], "empty": b"", "text": b"not a model"}[damage]
    )
    with pytest.raises(DamagedOnnxError, match=r"model\.onnx \(\d+ bytes\) is no whole ONNX model"):
        import_onnx(path)


def test_a_missing_file_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        import_onnx(tmp_path / "nowhere.onnx")


def test_what_is_resized_has_gradients() -> None:
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    values = [
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 1, 2, 2)),
        helper.make_tensor_value_info("scales", onnx.TensorProto.FLOAT, (4,)),
    ]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one", values, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    module = import_onnx(model, {"scales": np.array([1, 1, 2, 2], np.float32)})
    x = tinytorch.ones(1, 1, 2, 2, requires_grad=True)
    module(x).sum().backward()
    assert x.grad.tolist() == [[[[4.0, 4.0], [4.0, 4.0]]]]
