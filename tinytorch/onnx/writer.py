"""`OnnxWriter`: what lowerings write to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch.dtypes import Array, DType, bfloat16
from tinytorch.onnx.errors import UnsupportedOnnxError
from tinytorch.onnx.library import code_of, onnx_package


class OnnxWriter:
    """Collects the nodes and initializers of a model.

    Args:
        shares: whether there is one constant of each value.
    """

    def __init__(self, shares: bool = True) -> None:
        self._onnx = onnx_package()
        self._shares = shares
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._replaced: set[str] = set()
        self._state: dict[str, Array] = {}
        self._constants: dict[Any, str] = {}
        self._constant_count = 0
        self._count = 0

    def node(
        self, op_type: str, inputs: Sequence[str], output: str | None = None, **attributes: Any
    ) -> str:
        """Add a node with one result; returns the result's name."""
        if output is None:
            self._count += 1
            output = f"value_{self._count}"
        self.nodes.append(self._onnx.helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def second(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node with two results; returns the second one's name."""
        self._count += 1
        unused, wanted = f"unused_{self._count}", f"value_{self._count}"
        node = self._onnx.helper.make_node(op_type, inputs, [unused, wanted], **attributes)
        self.nodes.append(node)
        return wanted

    def constant(self, values: Any, dtype: DType | None = None) -> str:
        """A constant by value, written down once; without a dtype int64, as shapes are."""
        array = np.asarray(values, np.int64 if dtype is None else dtype.dtype)
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self._constants or not self._shares:
            self._constants[key] = self.initializer(f"constant_{self._constant_count}", array)
            self._constant_count += 1
        return self._constants[key]

    def initializer(self, name: str, array: Any) -> str:
        """A value that is stored in the model."""
        contiguous = np.array(array, order="C")
        self.initializers.append(self._onnx.numpy_helper.from_array(contiguous, name))
        return name

    def state(self, name: str, array: Array, dtype: DType) -> None:
        """A parameter or buffer: an initializer whose values lowerings may ask for.

        Args:
            array: of bfloat16, which NumPy has not, the bits.
        """
        self._state[name] = array
        if dtype is bfloat16:
            kind, data = self._onnx.TensorProto.BFLOAT16, array.astype("<u2").tobytes()
            stored = self._onnx.helper.make_tensor(name, kind, array.shape, data, raw=True)
            self.initializers.append(stored)
        else:
            self.initializer(name, array)

    def state_of(self, name: str) -> Array:
        """The values of a parameter or buffer.

        Raises:
            UnsupportedOnnxError: it is computed, or an argument.
        """
        if name not in self._state:
            raise UnsupportedOnnxError(
                f"{name} must be a buffer of the model: the exported model stores its codes"
            )
        return self._state[name]

    def replace_state(self, name: str, tensor: Any) -> str:
        """Store a parameter or buffer in another form, an `onnx.TensorProto`; its name."""
        self._replaced.add(name)
        if all(known.name != tensor.name for known in self.initializers):
            self.initializers.append(tensor)
        return str(tensor.name)

    def stored(self) -> list[Any]:
        """The initializers, without those that were replaced and are read by no node."""
        unread = self._replaced.difference(*(node.input for node in self.nodes))
        return [known for known in self.initializers if known.name not in unread]

    def cast(self, name: str, dtype: DType) -> str:
        """The value in another dtype."""
        return self.node("Cast", [name], to=code_of(dtype))
