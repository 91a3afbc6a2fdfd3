"""Dynamic axes: an ONNX model in which some sizes are known only when it runs.

The function is traced at several sizes, and each trace exported. What is the same in all of them
stays; whole numbers (and factors 1 / n) that differ are polynomials of the sizes, found from all
traces but the last and checked on that one. The model computes them from the shapes of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tinytorch.dispatch import wrap
from tinytorch.dtypes import Array, tensor_meta
from tinytorch.graph.bindings import ArgumentBinding
from tinytorch.graph.facts import Contents, Same
from tinytorch.graph.pytree import tree_unflatten
from tinytorch.graph.traced import TracedFunction
from tinytorch.onnx.errors import UnsupportedOnnxError
from tinytorch.onnx.library import onnx_package
from tinytorch.tensor import Tensor

Axes = Mapping[str, Mapping[int, str]]
Sizes = dict[str, int]
Polynomial = dict[tuple[str, ...], Fraction]  # for each product of sizes its coefficient
MOST = 3  # names; every one doubles the traces
SMALL = 6  # sizes below it are tried upwards, for a size of 1 broadcasts


def export_dynamic(
    traced: TracedFunction, axes: Axes, export: Callable[[TracedFunction], Any]
) -> Any:
    """The model that `export` makes of the trace, with sizes by name where `axes` has one.

    Raises:
        UnsupportedOnnxError: something depends on a size in a way that ONNX cannot be told.
        ValueError: an axis that there is not.
    """
    positions = _positions(traced)
    sizes = _sizes(traced, axes, positions)
    if len(sizes) > MOST:
        raise ValueError(f"dynamic_axes: at most {MOST} names, not {', '.join(sizes)}")
    steps = [{n: _tried(size)[i] for n, size in sizes.items()} for i in range(3)]
    points = [
        {name: steps[i][name] for name, i in zip(sizes, which, strict=True)}
        for which in product((0, 1), repeat=len(sizes))
    ]
    models = [export(_at(traced, axes, positions, at)) for at in (*points, steps[2])]
    model = models[0]
    writer = _Writer(axes)
    _check_nodes(models)
    initializers = []
    for each in zip(*(m.graph.initializer for m in models), strict=True):
        arrays = [onnx_package().numpy_helper.to_array(proto) for proto in each]
        if all(a.shape == arrays[0].shape and np.array_equal(a, arrays[0]) for a in arrays):
            initializers.append(each[0])
        else:
            writer.computed(each[0].name, arrays, points, steps[2])
    for value in model.graph.input:
        for axis, name in axes.get(value.name, {}).items():
            value.type.tensor_type.shape.dim[axis].dim_param = name
    for i, value in enumerate(model.graph.output):
        _name_output(value, [m.graph.output[i] for m in models], points, steps[2])
    nodes = [*writer.nodes, *model.graph.node]
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend([*initializers, *writer.initializers])
    model.graph.node.extend(nodes)
    del model.graph.value_info[:]
    return model


# -- traces at other sizes -------------------------------------------------------------------------


def _positions(traced: TracedFunction) -> dict[str, int]:
    """For each argument that is a tensor its position among the leaves."""
    nodes = traced.graph.find_nodes(op="placeholder")
    return {
        node.name: binding.position
        for node, binding in zip(nodes, traced.signature.inputs, strict=True)
        if isinstance(binding, ArgumentBinding)
    }


def _sizes(traced: TracedFunction, axes: Axes, positions: dict[str, int]) -> Sizes:
    sizes: Sizes = {}
    for argument, names in axes.items():
        if argument not in positions:
            raise ValueError(
                f"dynamic_axes: there is no argument {argument!r}; there are {', '.join(positions)}"
            )
        shape = traced.signature.in_leaves[positions[argument]][0].shape
        for axis, name in names.items():
            if not 0 <= axis < len(shape):
                raise ValueError(f"dynamic_axes: {argument} of shape {shape} has no axis {axis}")
            if sizes.setdefault(name, shape[axis]) != shape[axis]:
                raise ValueError(f"dynamic_axes: {name} is both {sizes[name]} and {shape[axis]}")
    return sizes


def _tried(size: int) -> tuple[int, int, int]:
    """Two sizes, and one to check with; models with a longest length are traced at it."""
    return (size, size - 1, size - 4) if size >= SMALL else (size + 7, size + 8, size + 11)


def _at(
    traced: TracedFunction, axes: Axes, positions: dict[str, int], sizes: Sizes
) -> TracedFunction:
    """A trace of the same function at these sizes."""
    s = traced.signature
    leaves = [_example(leaf) for leaf in s.in_leaves]
    for argument, names in axes.items():
        old = leaves[positions[argument]]
        shape = tuple(sizes[names[i]] if i in names else n for i, n in enumerate(old.shape))
        leaves[positions[argument]] = _zeros(shape, old)
    args, kwargs = tree_unflatten(leaves, s.in_spec)
    if traced.again is None:
        raise ValueError("dynamic_axes: give what trace() returned")
    return traced.again(*args, **kwargs)


def _example(leaf: Any) -> Any:
    if isinstance(leaf, Same):
        return leaf.value
    if isinstance(leaf, Contents):
        return leaf.holder
    if not isinstance(leaf, tuple):
        return leaf
    meta, requires_grad = leaf
    example = wrap(np.broadcast_to(np.zeros((), meta.dtype.dtype), meta.shape), meta)
    example.requires_grad = requires_grad
    return example


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return _example((tensor_meta(shape, like.dtype), like.requires_grad))  # type: ignore[no-any-return]


# -- what depends on sizes -------------------------------------------------------------------------


def _check_nodes(models: Sequence[Any]) -> None:
    """The models must be the same but for constants."""
    for model in models[1:]:
        if len(model.graph.node) != len(models[0].graph.node):
            raise UnsupportedOnnxError("a size decides on which ops run; fix it")
        for a, b in zip(models[0].graph.node, model.graph.node, strict=True):
            if a != b:
                raise UnsupportedOnnxError(
                    f"an attribute of {a.op_type} ({a.output[0]}) depends on a dynamic size; fix it"
                )


def _fit(values: Sequence[Fraction], points: Sequence[Sizes]) -> Polynomial:
    """The polynomial, linear in each size, that has these values at the corners `points`."""
    names = list(points[0])
    found: Polynomial = {}
    for chosen in product((False, True), repeat=len(names)):
        term = tuple(n for n, c in zip(names, chosen, strict=True) if c)
        total = Fraction(0)
        for value, at in zip(values, points, strict=True):
            factor = Fraction(1)  # of the Lagrange polynomials of this corner
            for name in names:
                low, high = points[0][name], points[-1][name]
                other = high if at[name] == low else low
                factor *= Fraction(1 if name in term else -other, at[name] - other)
            total += value * factor
        if total:
            found[term] = total
    return found


def _value(polynomial: Polynomial, at: Sizes) -> Fraction:
    return sum((c * prod(at[n] for n in term) for term, c in polynomial.items()), Fraction(0))


def _whole(values: Sequence[Any], points: Sequence[Sizes], check: Sizes) -> Polynomial | None:
    """A polynomial with whole coefficients that has the values, the last of them at `check`."""
    polynomial = _fit([Fraction(int(v)) for v in values[:-1]], points)
    if any(c.denominator != 1 for c in polynomial.values()):
        return None
    return polynomial if _value(polynomial, check) == int(values[-1]) else None


def _name_output(value: Any, outputs: Sequence[Any], points: Sequence[Sizes], check: Sizes) -> None:
    """Sizes of a result that differ are named: by a size, or as an expression."""
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        sizes = [o.type.tensor_type.shape.dim[axis].dim_value for o in outputs]
        if len(set(sizes)) > 1:
            polynomial = _whole(sizes, points, check) or {}
            text = " + ".join("*".join([*([] if c == 1 and t else [str(c)]), *t])
                              for t, c in polynomial.items())  # fmt: skip
            dim.dim_param = text or f"unknown_{axis}"


class _Writer:
    """Nodes that compute constants from the shapes of inputs."""

    def __init__(self, axes: Axes) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._axes = axes
        self._known: dict[Any, str] = {}

    def computed(
        self, name: str, arrays: Sequence[Array], points: Sequence[Sizes], check: Sizes
    ) -> None:
        """Nodes whose result, of this name, has the arrays' values."""
        first = arrays[0]
        is_number = first.dtype.kind == "f" or first.dtype == np.int64
        if any(a.shape != first.shape for a in arrays) or first.ndim > 1 or not is_number:
            raise UnsupportedOnnxError(
                f"a constant of shape {first.shape} depends on a dynamic size; compute it outside, "
                f"or fix the size"
            )
        if first.dtype.kind == "f":
            self._float(name, arrays, points, check)
            return
        parts = [
            self._vector(column, points, check)
            for column in zip(*map(np.ravel, arrays), strict=True)
        ]
        if first.ndim:
            self._node("Concat", parts, name, axis=0)
        else:
            self._node("Squeeze", parts, name)

    def _float(
        self, name: str, arrays: Sequence[Array], points: Sequence[Sizes], check: Sizes
    ) -> None:
        """n or 1 / n, as in a mean."""
        dtype, values = arrays[0].dtype, [float(a.ravel()[0]) for a in arrays if a.size == 1]
        is_whole = all(v == round(v) for v in values)
        wholes = [round(v if is_whole or not v else 1 / v) for v in values]
        pairs = zip(wholes, values, strict=True)
        exact = is_whole or all(w and dtype.type(1 / w) == v for w, v in pairs)
        if len(values) != len(arrays) or not exact:
            raise UnsupportedOnnxError(
                f"the number {arrays[0].ravel()[:3]} depends on a dynamic size; fix the size"
            )
        kind = onnx_package().helper.np_dtype_to_tensor_dtype(dtype)
        result = self._node("Cast", [self._vector(wholes, points, check)], to=kind)
        if not is_whole:
            result = self._node("Reciprocal", [result])
        self._node("Identity" if arrays[0].ndim else "Squeeze", [result], name)

    def _vector(self, values: Sequence[Any], points: Sequence[Sizes], check: Sizes) -> str:
        """A whole number as a vector of one element."""
        polynomial = _whole(values, points, check)
        if polynomial is None:
            raise UnsupportedOnnxError(
                f"the sizes {', '.join(str(int(v)) for v in values)} are no polynomial of the "
                f"dynamic sizes ({', '.join(map(str, [*points, check]))}); fix one of them"
            )
        terms = []
        for term, coefficient in polynomial.items():
            factors = [self._size(n) for n in term]
            if coefficient != 1 or not factors:
                factors.append(self._number(int(coefficient)))
            terms.append(self._fold("Mul", factors))
        return self._fold("Add", terms) if terms else self._number(0)

    def _fold(self, op: str, parts: list[str]) -> str:
        result, *rest = parts
        for each in rest:
            result = self._node(op, [result, each])
        return result

    def _size(self, name: str) -> str:
        """The size of this name, read from the shape of an input that has it."""
        if name not in self._known:
            argument, axis = next(
                (a, i) for a, names in self._axes.items() for i, n in names.items() if n == name
            )
            shape = self._node("Shape", [argument])
            self._known[name] = self._node("Gather", [shape, self._number(axis)], axis=0)
        return self._known[name]

    def _number(self, value: int) -> str:
        if value not in self._known:
            name = f"dynamic_constant_{len(self.initializers)}"
            array = np.array([value], np.int64)
            self.initializers.append(onnx_package().numpy_helper.from_array(array, name))
            self._known[value] = name
        return self._known[value]

    def _node(
        self, op: str, inputs: Sequence[str], output: str | None = None, **attributes: Any
    ) -> str:
        output = output or f"dynamic_{len(self.nodes)}"
        self.nodes.append(onnx_package().helper.make_node(op, inputs, [output], **attributes))
        return output
