"""NumPy's functions of elements, such as `numpy.sqrt`, called with tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.creation import tensor
from tinytorch.dispatch import is_tensor

#: What an operator between an array and a tensor calls -> the name of the tensor's method, and of
#: the one for operands exchanged.
_OPERATORS: dict[Any, tuple[str, str]] = {
    **{
        getattr(np, function): (f"__{name}__", f"__r{name}__")
        for function, name in (
            ("add", "add"),
            ("subtract", "sub"),
            ("multiply", "mul"),
            ("true_divide", "truediv"),
            ("floor_divide", "floordiv"),
            ("remainder", "mod"),
            ("power", "pow"),
            ("matmul", "matmul"),
            ("bitwise_and", "and"),
            ("bitwise_or", "or"),
            ("bitwise_xor", "xor"),
            ("left_shift", "lshift"),
            ("right_shift", "rshift"),
        )
    },
    np.less: ("__lt__", "__gt__"),
    np.less_equal: ("__le__", "__ge__"),
    np.greater: ("__gt__", "__lt__"),
    np.greater_equal: ("__ge__", "__le__"),
    np.equal: ("__eq__", "__eq__"),
    np.not_equal: ("__ne__", "__ne__"),
}


def array_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What NumPy is to give for `ufunc.method(*inputs, **options)` with a tensor among the inputs.

    An operator is the tensor's own, with its gradient; other functions are computed by NumPy from
    the values, and give tensors.

    Raises:
        AutogradError: such a tensor requires a gradient.

    >>> np.sqrt(tensor([1.0, 4.0]))
    tensor([1., 2.])
    """
    if method == "__call__" and not options and ufunc in _OPERATORS:
        a, b = inputs
        name, exchanged = _OPERATORS[ufunc]
        return getattr(a, name)(b) if is_tensor(a) else getattr(b, exchanged)(a)
    arrays = [x.numpy() if is_tensor(x) else x for x in inputs]
    result = getattr(ufunc, method)(*arrays, **options)
    if options.get("out") is not None or result is None:
        return result
    return tuple(map(tensor, result)) if isinstance(result, tuple) else tensor(result)
