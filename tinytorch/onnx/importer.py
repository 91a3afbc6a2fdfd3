"""`import_onnx`: an ONNX model as a Module of Tensor code.

The model's nodes are run one after the other as Tensor code (`operators/`), so the import is an
interpreter: eager it computes, `trace` of it gives our graph, `tinytorch.compile` compiles it, and
its initializers are parameters that can be trained further. What shapes depend on is computed at
once, outside of any trace, as far as it is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tinytorch.backends import find_backend
from tinytorch.errors import DTypeError
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.onnx.errors import DamagedOnnxError, UnsupportedOnnxError
from tinytorch.onnx.library import dtype_of, onnx_package
from tinytorch.onnx.operators import OPERATORS, Operator
from tinytorch.onnx.operators.movement import constant
from tinytorch.state import State, StateContext
from tinytorch.tensor import Tensor

DEFAULT_DOMAIN = ("", "ai.onnx")


class OnnxStep:
    """A node of the model, ready to run.

    Attributes:
        inputs, outputs: names of values; "" for one that is left out.
    """

    def __init__(self, node: Any, opset: int) -> None:
        self.name = node.name or node.op_type
        self.inputs, self.outputs = list(node.input), list(node.output)
        self.attributes = {a.name: _attribute(a, self.name) for a in node.attribute}
        self.operator = _find_operator(node, opset)
        if "num_outputs" in self.operator.attributes:  # Split has this option since version 18
            self.attributes.setdefault("num_outputs", len(self.outputs))
        unknown = self.attributes.keys() - self.operator.attributes
        if unknown:
            raise UnsupportedOnnxError(
                f"{node.op_type} with attribute {', '.join(sorted(unknown))} is not supported"
            )

    def run(self, env: dict[str, Any]) -> None:
        """Compute the outputs from the inputs, all in `env`."""
        given = [env[name] if name else None for name in self.inputs]
        while given and given[-1] is None:
            given.pop()
        known = all(value is None or isinstance(value, np.ndarray) for value in given)
        if known:
            with StateContext(State(None, None, find_backend("numpy"), False, "forward")):
                results = [t._data for t in self._call(given)]
        else:
            results = list(self._call(given))
            if self.operator.of_shapes:
                results = [t._data for t in results]
        wanted = list(self.outputs)
        while wanted and not wanted[-1]:
            wanted.pop()
        if len(wanted) > len(results):
            raise UnsupportedOnnxError(f"result {wanted[len(results)]} of {self.name}")
        env.update(zip(wanted, results, strict=False))

    def _call(self, given: list[Any]) -> tuple[Tensor, ...]:
        for i in self.operator.static:
            if i < len(given) and isinstance(given[i], Tensor):
                raise UnsupportedOnnxError(
                    f"input {self.inputs[i]} of {self.name} decides on shapes and is computed from "
                    f"data; give its value in `constants`"
                )
        args = [
            constant(value) if isinstance(value, np.ndarray) and i not in self.operator.static
            else value
            for i, value in enumerate(given)
        ]  # fmt: skip
        try:
            results = self.operator.function(*args, **self.attributes)
        except DTypeError as error:
            raise UnsupportedOnnxError(f"{self.name}: {error}") from error
        return results if isinstance(results, tuple) else (results,)


def _find_operator(node: Any, opset: int) -> Operator:
    if node.domain not in DEFAULT_DOMAIN or node.op_type not in OPERATORS:
        full = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        raise UnsupportedOnnxError(
            f"operator {full} is not supported; supported are {', '.join(sorted(OPERATORS))}"
        )
    found = OPERATORS[node.op_type]
    schema = onnx_package().defs.get_schema(node.op_type, opset, "")
    if schema.since_version < found.since:
        raise UnsupportedOnnxError(
            f"{node.op_type} of operator set {opset} means something else than from {found.since} "
            f"on, which is supported: convert the model with onnx.version_converter"
        )
    return found


def _attribute(attribute: Any, node: str) -> Any:
    """The value of an attribute in Python: numbers, strings, tuples, arrays; a type as a DType."""
    onnx = onnx_package()
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if attribute.type == onnx.AttributeProto.TENSOR:
        return _array(value, f"{attribute.name} of {node}")
    if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        raise UnsupportedOnnxError(f"{node} holds a graph; control flow is not supported")
    if attribute.name in ("to", "dtype"):
        return dtype_of(value, f"{attribute.name} of {node}")
    return tuple(value) if attribute.type == onnx.AttributeProto.INTS else value


def _array(proto: Any, where: str) -> Any:
    dtype_of(proto.data_type, where)
    # a copy: the array from the file may be read-only
    return np.array(onnx_package().numpy_helper.to_array(proto))


class OnnxModule(Module):
    """An ONNX model. Call it with tensors in the order of `input_names`.

    Initializers with dimensions, of a floating type, that no shape depends on are parameters, under
    their own names with dots replaced.

    Attributes:
        input_names, output_names: of the model.
    """

    def __init__(self, model: Any, constants: Mapping[str, Any]) -> None:
        super().__init__()
        opset = max(
            (o.version for o in model.opset_import if o.domain in DEFAULT_DOMAIN), default=1
        )
        self._steps = [OnnxStep(node, opset) for node in model.graph.node]
        self._constants = {name: np.asarray(value) for name, value in constants.items()}
        self._parameter_names: dict[str, str] = {}
        decisive = {
            s.inputs[i] for s in self._steps for i in s.operator.static if i < len(s.inputs)
        }
        for proto in model.graph.initializer:
            self._add_initializer(proto, decisive)
        self.input_names = [
            value.name
            for value in model.graph.input
            if value.name not in self._constants and value.name not in self._parameter_names
        ]
        self.output_names = [value.name for value in model.graph.output]
        for value in (*model.graph.input, *model.graph.output):
            if not value.type.HasField("tensor_type"):
                raise UnsupportedOnnxError(f"{value.name} is not a tensor")
            dtype_of(value.type.tensor_type.elem_type, value.name)

    def _add_initializer(self, proto: Any, decisive: set[str]) -> None:
        array = _array(proto, proto.name)
        if array.dtype.kind != "f" or array.ndim == 0 or proto.name in decisive:
            self._constants.setdefault(proto.name, array)
            return
        attribute = "p_" + re.sub(r"\W", "_", proto.name)
        while hasattr(self, attribute):
            attribute += "_"
        setattr(self, attribute, Parameter(constant(array)))
        self._parameter_names[proto.name] = attribute

    def forward(self, *inputs: Tensor) -> Any:
        """The model's outputs: a tensor, or a tuple if there are several."""
        if len(inputs) != len(self.input_names):
            raise TypeError(
                f"the model takes {len(self.input_names)} tensors "
                f"({', '.join(self.input_names)}), not {len(inputs)}"
            )
        env: dict[str, Any] = dict(self._constants)
        env |= {name: getattr(self, stored) for name, stored in self._parameter_names.items()}
        env |= zip(self.input_names, inputs, strict=True)
        for step in self._steps:
            step.run(env)
        results = [env[name] for name in self.output_names]
        tensors = [constant(value) if isinstance(value, np.ndarray) else value for value in results]
        return tensors[0] if len(tensors) == 1 else tuple(tensors)


def import_onnx(model: Any, constants: Mapping[str, Any] | None = None) -> OnnxModule:
    """An ONNX model as a Module.

    Args:
        model: a path, or an `onnx.ModelProto`.
        constants: values for inputs that are to be fixed, such as those that decide on shapes.

    Raises:
        UnsupportedOnnxError: the model has an operator, a number type or an option that TinyTorch
            has not; the message names it.
        DamagedOnnxError: the file is cut, or no ONNX model.
        MissingExtraError: onnx is not installed.
    """
    if isinstance(model, (str, Path)):
        model = _load(Path(model))
    return OnnxModule(model, constants or {})


def _load(path: Path) -> Any:
    """The model of a file, which is whole.

    Raises:
        DamagedOnnxError: it is cut, or no model at all.
    """
    onnx = onnx_package()
    size = path.stat().st_size  # an error of the file system says what it is
    try:
        model = onnx.load(str(path))
        if not (model.graph.output and model.opset_import):
            raise ValueError("it has no outputs, or names no operator set")
    except Exception as error:  # protobuf and onnx each have their own
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DamagedOnnxError(
            f"{path} ({size:,} bytes) is no whole ONNX model: {reason:.200}; export it, or "
            f"copy it, again"
        ) from error
    return model
