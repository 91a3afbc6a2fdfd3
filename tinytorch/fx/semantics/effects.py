"""What a node of a torch.fx graph does besides computing its value.

The answers come from operator schemas and tags where there are some, and from short tables where
there are none. What is not known is taken to do everything: to have effects, to write its inputs
and to return them.
"""

from __future__ import annotations

import builtins
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
from torch import nn
from torch._library.custom_ops import OPDEFS
from torch._ops import OpOverload, OpOverloadPacket
from torch.fx import Node

aten = torch.ops.aten
KNOWN_NAMESPACES = ("aten", "prims", "mkldnn", "quantized_decomposed")
# they write their running statistics in training, and their schemas do not say so
HIDDEN_WRITERS = ("native_batch_norm", "batch_norm", "_batch_norm_impl_index", "instance_norm",
                  "cudnn_batch_norm", "miopen_batch_norm")  # fmt: skip
HIDDEN_VIEWS = ("_unsafe_view", "lift")
#: Ops made of others whose result is nevertheless never an input.
FRESH = {
    "linear", "matmul", "linalg_matmul", "inner", "outer", "tensordot", "bilinear", "batch_norm",
    "_batch_norm_impl_index", "native_batch_norm", "layer_norm", "group_norm", "rms_norm",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "_convolution", "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "scaled_dot_product_attention", "softmax",
    "log_softmax", "cross_entropy_loss", "nll_loss", "nll_loss_nd", "l1_loss", "kl_div",
    "cosine_similarity", "embedding_bag", "relu6", "selu", "prelu", "log_sigmoid", "square",
    "multiply", "divide", "subtract", "true_divide", "negative", "absolute", "clip", "greater",
    "greater_equal", "less", "less_equal", "not_equal", "where", "isclose", "isfinite", "argsort",
    "one_hot", "std", "std_mean", "var", "var_mean", "concat", "concatenate", "hstack", "vstack",
    "dstack", "tile", "repeat_interleave",
}  # fmt: skip
FRESH_MODULES = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d,
    nn.LayerNorm, nn.GroupNorm, nn.Embedding, nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh,
    nn.Softmax, nn.MaxPool2d, nn.AvgPool2d,
)  # fmt: skip
OPERATORS = {
    "abs", "add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "inv", "invert", "is_", "is_not",
    "le", "lshift", "lt", "matmul", "mod", "mul", "ne", "neg", "not_", "or_", "pos", "pow",
    "rshift", "sub", "truediv", "xor", "contains", "index", "truth",
}  # fmt: skip
# functions of torch.nn.functional without an ATen op of the same name
FUNCTIONAL = {
    "cross_entropy", "interpolate", "normalize", "softmin", "local_response_norm", "unfold", "fold",
    "max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "gaussian_nll_loss", "triplet_margin_loss",
}  # fmt: skip
METHODS = {"size", "dim", "float", "double", "half", "bfloat16", "int", "long", "bool", "cpu",
           "cuda", "item"}  # fmt: skip


class Effects(NamedTuple):
    """The effects of a node.

    Attributes:
        pure: nothing but to compute its value.
        random: equal arguments do not mean equal values.
        writes: inputs that it writes in place.
        views: inputs whose memory its value may share.
    """

    pure: bool
    random: bool = False
    writes: tuple[Node, ...] = ()
    views: tuple[Node, ...] = ()


PURE = Effects(True)


def effects(node: Node) -> Effects:
    """The effects of a node."""
    if node.op in ("placeholder", "output"):
        return Effects(False)
    if node.op == "get_attr":
        first = node.graph.find_nodes(op="get_attr", target=node.target)[0]
        return Effects(True, views=() if first is node else (first,))
    if node.op == "call_module":
        return _module_effects(node)
    if node.op == "call_method":
        return _method_effects(node, str(node.target))
    target: Any = node.target
    if isinstance(target, OpOverload):
        return _overload_effects(node, target, node.args, node.kwargs)
    if isinstance(target, OpOverloadPacket):
        return _packet_effects(node, target)
    if getattr(target, "is_pure", False):  # a fused function of ours
        return PURE
    return _function_effects(node, target)


def unknown(node: Node) -> Effects:
    """Anything may happen."""
    inputs = tuple(node.all_input_nodes)
    return Effects(False, True, inputs, inputs)


def _overload_effects(
    node: Node, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> Effects:
    schema, given = op._schema, _bind(op, args, kwargs)
    if given is None or not (op.namespace in KNOWN_NAMESPACES or _is_declared(schema)):
        return unknown(node)
    returned = {s for r in schema.returns if r.alias_info for s in r.alias_info.before_set}
    writes, views = [], []
    for argument in schema.arguments:
        nodes = _nodes(given.get(argument.name))
        info = argument.alias_info
        if info is not None and info.is_write:
            writes += nodes
        if info is not None and (info.before_set & returned or "*" in info.after_set):
            views += nodes
    name = schema.name.removeprefix("aten::")
    if name in HIDDEN_WRITERS and (given.get("training") or given.get("use_input_stats")):
        writes += _nodes([given.get("running_mean"), given.get("running_var")])
    if _is_declared(schema):
        return Effects(False, True, tuple(writes), tuple(views))
    if not returned and (name in HIDDEN_VIEWS or not _is_fresh(op)):
        views += node.all_input_nodes
    random = torch.Tag.nondeterministic_seeded in op.tags and not _is_switched_off(given)
    does_something = bool(writes) or random or not schema.returns or _has_effect(name)
    return Effects(not does_something, random, tuple(writes), tuple(views))


def _is_declared(schema: Any) -> bool:
    """An operator made by `torch.library.custom_op`: PyTorch holds it to what it declares to write,
    and to results of their own. Whether it draws random numbers, or prints, nobody knows."""
    return schema.name in OPDEFS


_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def _has_effect(name: str) -> bool:
    return "assert" in name or name.startswith(("sym_constrain", "_print"))


def _is_switched_off(given: dict[str, Any]) -> bool:
    """A dropout that drops nothing, though its op is tagged as random."""
    if given.get("training") is False or given.get("train") is False:
        return True
    rate = given.get("dropout_p", given.get("p") if "train" in given else None)
    return rate is not None and rate == 0


def _is_fresh(op: OpOverload) -> bool:
    """The result has memory of its own. Schemas do not say when an op made of others returns an
    input as it is (dropout that drops nothing, an einsum that only transposes)."""
    return op._opname in FRESH or not op.has_kernel_for_dispatch_key(_COMPOSITE)


def is_view(node: Node) -> bool:
    """Whether a node computes nothing: its value is another look at the memory of an input."""
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, OpOverload):
        return target is operator.getitem
    infos = [r.alias_info for r in target._schema.returns]
    is_annotated = bool(infos) and all(i is not None and not i.is_write for i in infos)
    return is_annotated or target._opname in HIDDEN_VIEWS


def _bind(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments by their names, with defaults; None if they do not fit the schema."""
    arguments = op._schema.arguments
    names = [a.name for a in arguments]
    if len(args) > len(names) or any(k not in names for k in kwargs):
        return None
    given = {a.name: a.default_value for a in arguments if a.has_default_value()}
    given.update(zip(names, args, strict=False))
    given.update(kwargs)
    return given if len(given) == len(names) else None


def _nodes(value: Any) -> list[Node]:
    if isinstance(value, Node):
        return [value]
    if isinstance(value, (list, tuple)):
        return [n for each in value for n in _nodes(each)]
    return []


def _packet_effects(node: Node, packet: OpOverloadPacket) -> Effects:
    """Of an op whose overload is chosen by the arguments: whatever one that fits them may do."""
    found = []
    names: Any = packet.overloads  # untyped in torch
    for name in names():
        overload = getattr(packet, name)
        if not torch._C._dispatch_has_kernel(overload.name()):
            continue  # of TorchScript, for numbers and lists
        is_out = torch.Tag.out_variant in overload.tags or "out" in name.split("_")
        if is_out == ("out" in node.kwargs) and _bind(overload, node.args, node.kwargs) is not None:
            found.append(_overload_effects(node, overload, node.args, node.kwargs))
    return _union(found) if found else unknown(node)


def _union(found: Sequence[Effects]) -> Effects:
    return Effects(
        all(e.pure for e in found),
        any(e.random for e in found),
        tuple(dict.fromkeys(n for e in found for n in e.writes)),
        tuple(dict.fromkeys(n for e in found for n in e.views)),
    )


def _packet(name: str) -> OpOverloadPacket | None:
    return getattr(aten, name, None) if name.isidentifier() else None


def _method_effects(node: Node, name: str) -> Effects:
    if name in METHODS:
        return Effects(True, views=tuple(_nodes(node.args[:1])))
    packet = _packet(name)
    return unknown(node) if packet is None else _packet_effects(node, packet)


def _function_effects(node: Node, target: Callable[..., Any]) -> Effects:
    name, module = getattr(target, "__name__", ""), getattr(target, "__module__", None) or ""
    if module in ("_operator", operator.__name__):
        return _operator_effects(node, name)
    if target is builtins.getattr:
        return Effects(True, views=tuple(_nodes(node.args[:1])))
    if module == math.__name__ or name.startswith("sym_") or target in (max, min, len, int, float):
        return PURE
    if inspect.isfunction(target) and module == nn.functional.__name__:
        return _functional_effects(node, target, name)
    is_torchs = module.startswith(("torch", "None")) or target is getattr(torch, name, None)
    packet = _packet(name) if is_torchs else None
    return unknown(node) if packet is None else _packet_effects(node, packet)


def _operator_effects(node: Node, name: str) -> Effects:
    first = tuple(_nodes(node.args[:1]))
    if name in OPERATORS:
        return Effects(True, views=first if name == "getitem" else ())
    if name in ("setitem", "delitem") or (name[0] == "i" and name[1:] in OPERATORS):
        return Effects(False, False, first, first)
    return unknown(node)


def _functional_effects(node: Node, target: Callable[..., Any], name: str) -> Effects:
    """Of a Python function of torch.nn.functional, by its arguments."""
    try:
        bound = inspect.signature(target).bind(*node.args, **node.kwargs)
    except TypeError:
        return unknown(node)
    bound.apply_defaults()
    given = bound.arguments
    first = tuple(_nodes(node.args[:1]))
    if given.get("inplace"):
        return Effects(False, False, first, first)
    if given.get("max_norm") is not None:
        return Effects(False, False, tuple(_nodes(given.get("weight"))))
    if name in ("batch_norm", "instance_norm"):
        training = given.get("training") or given.get("use_input_stats")
        stats = _nodes([given["running_mean"], given["running_var"]]) if training else []
        return Effects(not stats, False, tuple(stats))
    if "dropout" in name or name == "rrelu":
        is_random = given["training"] and given.get("p") != 0
        return Effects(not is_random, is_random, (), () if is_random else first)
    packet = _packet(name)
    if name not in FUNCTIONAL and (packet is None or "training" in given):
        return unknown(node)
    is_fresh = name in FRESH or (packet is not None and _is_fresh(packet.default))
    return PURE if is_fresh else Effects(True, views=tuple(node.all_input_nodes))


def _module_effects(node: Node) -> Effects:
    owner = node.graph.owning_module
    module = owner.get_submodule(str(node.target)) if owner is not None else None
    if module is None or not all(map(_is_known, module.modules())):
        return unknown(node)
    inputs = tuple(node.all_input_nodes)
    writes: list[Node] = []
    if any(getattr(m, "inplace", False) for m in module.modules()):
        writes += inputs
    for name, inner in module.named_modules(prefix=str(node.target)):
        if inner.training and getattr(inner, "running_mean", None) is not None:
            writes += [n for n in node.graph.find_nodes(op="get_attr")
                       if str(n.target).startswith(f"{name}.")]  # fmt: skip
    stateful = any(
        m.training and getattr(m, "running_mean", None) is not None for m in module.modules()
    )
    random = any(m.training and _drops(m) for m in module.modules())
    views = () if isinstance(module, FRESH_MODULES) and not writes else inputs
    return Effects(not (writes or stateful or random), random, tuple(writes), views)


def _drops(module: nn.Module) -> bool:
    if isinstance(module, nn.RReLU):
        return True
    return bool(getattr(module, "p" if isinstance(module, _DROPOUTS) else "dropout", 0))


_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout,
             nn.FeatureAlphaDropout)  # fmt: skip
_RANDOM_OR_WRITING = ("FractionalMaxPool2d", "FractionalMaxPool3d", "Module")


def _is_known(module: nn.Module) -> bool:
    """A module of torch itself, without hooks, that does what its class says."""
    hooks: Iterable[Any] = (
        module._forward_hooks, module._forward_pre_hooks, module._backward_hooks,
        module._backward_pre_hooks,
    )  # fmt: skip
    kind = type(module)
    return (
        kind.__module__.startswith("torch.nn.modules.")
        and kind.__name__ not in _RANDOM_OR_WRITING
        and getattr(module, "max_norm", None) is None
        and not any(hooks)
    )
