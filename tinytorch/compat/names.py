"""Which file of this room has which of PyTorch's names, and the answer for the others."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from tinytorch import nn
from tinytorch.compat import functions
from tinytorch.compat.answers import answer
from tinytorch.compat.constructors import TYPES
from tinytorch.compat.modules import OVERRIDES, find_module, has_own
from tinytorch.compat.tensors import ModuleNames, TensorNames
from tinytorch.tensor import Tensor

#: A file of this room -> the names of `torch` that it has.
_FILES = {
    "devices": "device set_default_device get_default_device",
    "tensors": "Variable strided contiguous_format preserve_format channels_last channels_last_3d "
    "is_tensor is_storage is_complex is_floating_point numel",
    "functions": "newaxis default_generator clamp_min clamp_max positive clone detach fill asarray "
    "scalar_tensor rsub vdot fmax fmin isposinf isneginf isreal is_nonzero is_same_size is_signed "
    "get_device broadcast_shapes promote_types result_type can_cast block_diag cartesian_prod "
    "trapezoid trapz hann_window hamming_window",
    "amp": "autocast GradScaler is_autocast_enabled",
    "accelerators": "get_device_module",
    "scripting": "typename use_deterministic_algorithms are_deterministic_algorithms_enabled "
    "get_num_interop_threads get_float32_matmul_precision",
    "settings": "set_default_dtype get_default_dtype set_default_tensor_type seed initial_seed "
    "get_rng_state set_rng_state dtype layout memory_format set_printoptions",
}
#: PyTorch's name -> (file, name in it), where either differs.
PROVIDED: dict[str, tuple[str, str]] = {
    **{f"torch.{name}": (file, name) for file, names in _FILES.items() for name in names.split()},
    **{f"torch.{name}": ("constructors", name) for name in TYPES},
    "torch.autograd.Variable": ("tensors", "Variable"),
    "torch.nn.DataParallel": ("layers", "DataParallel"),
    "torch.nn.parallel": ("layers", ""),
    **{
        f"torch.nn.init._calculate_{name}": ("layers", f"_calculate_{name}")
        for name in ("fan_in_and_fan_out", "correct_fan")
    },
    "torch.random.fork_rng": ("settings", "fork_rng"),
    "torch.set_flush_denormal": ("scripting", "do_nothing"),
    "torch.set_float32_matmul_precision": ("scripting", "do_nothing"),
    "torch.set_num_interop_threads": ("scripting", "do_nothing"),
    "torch.set_deterministic_debug_mode": ("scripting", "do_nothing"),
    **{
        f"torch.autograd.{name}": ("gradients", name)
        for name in ("set_detect_anomaly", "detect_anomaly")
    },
    **{
        f"torch.autograd.function.{name}": ("gradients", name)
        for name in ("once_differentiable", "FunctionCtx")
    },
}
#: Functions of `torch` that are those of `torch.nn.functional`.
_LAYERS = frozenset(
    [
        "adaptive_avg_pool1d",
        "adaptive_max_pool1d",
        "avg_pool1d",
        "bilinear",
        "celu",
        "conv1d",
        "conv2d",
        "conv_transpose1d",
        "conv_transpose2d",
        "cosine_similarity",
        "max_pool1d",
        "max_pool2d",
        "pairwise_distance",
        "pixel_shuffle",
        "pixel_unshuffle",
        "prelu",
        "rrelu",
        "selu",
        "threshold",
        "kl_div",
        "triplet_margin_loss",
    ]
)
#: Functions of `compat.functions` that are methods too.
_METHODS = frozenset(
    [
        "clamp_min",
        "clamp_max",
        "positive",
        "vdot",
        "fmax",
        "fmin",
        "isposinf",
        "isneginf",
        "isreal",
        "is_nonzero",
        "is_same_size",
        "is_signed",
    ]
)
#: Methods that PyTorch has in place as well, with a result of the same shape.
_IN_PLACE = frozenset(
    """abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr arccos arccosh arcsin
    arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh baddbmm bitwise_and
    bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max
    clamp_min clip copysign cos cosh cumprod cumsum deg2rad div divide eq erf erfc erfinv exp exp2
    expm1 fix float_power floor floor_divide fmod frac ge greater greater_equal gt heaviside hypot
    index_add index_copy index_fill le lerp less less_equal log log10 log1p log2 logical_and
    logical_not logical_or logical_xor logit lt masked_fill masked_scatter mul multiply nan_to_num
    ne neg negative not_equal pow rad2deg reciprocal relu remainder round rsqrt scatter scatter_add
    sgn sigmoid sign sin sinc sinh sqrt square sub subtract tan tanh tril triu true_divide trunc
    xlogy""".split()  # noqa: SIM905
)
_CLASSES = {"torch.Tensor": TensorNames, "torch.nn.Module": ModuleNames}


def module_name(owner: str, name: str) -> Any:
    """What PyTorch's module `owner`, such as "torch.nn", has as `name`.

    Raises:
        AttributeError: nothing here; for a name of PyTorch's the message says what to write.
    """
    if (entry := PROVIDED.get(f"{owner}.{name}")) is not None:
        module = importlib.import_module(f"tinytorch.compat.{entry[0]}")
        return getattr(module, entry[1]) if entry[1] else module
    if owner == "torch" and name in _LAYERS:
        return getattr(nn.functional, name)
    if owner == "torch" and name.endswith("_") and _is_in_place(name):
        return lambda input, *args, **keywords: getattr(input, name)(*args, **keywords)
    path = f"{owner}.{name}".partition(".")[2]
    if (found := find_module(path, below=False)) is not None:
        return found
    if path in OVERRIDES:
        if has_own(path):  # a room of TinyTorch's that has not been loaded yet
            return importlib.import_module(f"tinytorch.{path}")
        return find_module(path, as_torch=True)
    own = owner.partition(".")[2]
    if own in OVERRIDES and hasattr(instead := find_module(own, as_torch=True), name):
        return getattr(instead, name)
    raise AttributeError(answer(owner, name))


def _is_in_place(name: str) -> bool:
    """`name` without its `_` is a method whose result can be written into its tensor."""
    base = name[:-1]
    return name[-1] == "_" and base in _IN_PLACE and (base in _METHODS or hasattr(Tensor, base))


def attribute(value: Any, owner: str, name: str) -> Any:
    """What an instance of PyTorch's class `owner` has as attribute or method `name`.

    Raises:
        AttributeError: nothing here; for a name of PyTorch's the message says what to write.
    """
    if owner == "torch.Tensor" and name in _METHODS:
        return functools.partial(getattr(functions, name), value)
    if owner == "torch.Tensor" and _is_in_place(name):
        return functions.in_place(value, name[:-1])
    found = vars(_CLASSES[owner]).get(name)
    if found is None or name in ("__module__", "__doc__", "__dict__", "__weakref__"):
        text = answer(owner, name)
        known, own = owner.rpartition(".")[2], type(value).__name__
        raise AttributeError(text.replace(f"{known!r} object", f"{own!r} object"))
    return found.__get__(value, type(value)) if hasattr(found, "__get__") else found
