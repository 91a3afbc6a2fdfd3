"""Structured pruning: channels that are really removed, in every tensor that has them.

A channel is a row of the layer that makes it, an entry of each bias and running statistic, and a
column of each layer that reads it. Which those are is found in the model's graph (`axes.py`). What
is left is a smaller dense model, and so a faster one on any backend.

Source: H. Li and others, "Pruning filters for efficient ConvNets", ICLR 2017; the groups are those
of G. Fang and others, "DepGraph: towards any structural pruning", CVPR 2023.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from tinytorch.compression.axes import Axis, Label, Labels, label_values, roots
from tinytorch.dtypes import Array, Shape
from tinytorch.errors import ShapeError
from tinytorch.graph.bindings import StateBinding
from tinytorch.graph.ir import Graph, Node
from tinytorch.graph.trace import trace
from tinytorch.graph.traced import TracedFunction
from tinytorch.nn import Linear, Module, MultiheadAttention, Parameter
from tinytorch.nn.batch_norm import _NormBase
from tinytorch.nn.conv import _Conv
from tinytorch.nn.evaluation import evaluating
from tinytorch.nn.gpt import CausalSelfAttention
from tinytorch.tensor import Tensor


@dataclass(frozen=True)
class Part:
    """A dimension of a tensor of the model, from index `start` on, in which each channel has
    `repeat` neighbours."""

    tensor: str
    dim: int
    repeat: int
    start: int = 0

    def indices(self, channels: Sequence[int] | Array) -> Array:
        """Where these channels are."""
        first = np.asarray(channels, np.int64)[:, None] * self.repeat
        return (self.start + first + np.arange(self.repeat)).ravel()


@dataclass(frozen=True)
class Channels:
    """Channels that can only be removed together, from all tensors that have them.

    Attributes:
        name: the tensor whose rows make them, the first if there are several; with a range of its
            rows where others make other channels.
        size: how many there are.
        parts: where they are.
        fixed: why none can be removed; None if they can.
    """

    name: str
    size: int
    parts: tuple[Part, ...]
    fixed: str | None


Importance = Callable[[Channels, Mapping[str, Array]], Array]


def magnitude(channels: Channels, tensors: Mapping[str, Array]) -> Array:
    """The magnitude of a channel's weights: in each matrix its norm over the mean norm, summed.

    Args:
        tensors: all of the model's, by name.

    Returns:
        A number for each channel.
    """
    total = np.zeros(channels.size)
    for part in channels.parts:
        x = np.asarray(tensors[part.tensor], np.float64)
        if x.ndim > 1:
            x = np.moveaxis(x.take(part.indices(range(channels.size)), part.dim), part.dim, 0)
            norms = np.sqrt((x.reshape(channels.size, -1) ** 2).sum(1))
            total += norms / max(norms.mean(), np.finfo(np.float64).tiny)
    return total


def find_channels(model: Module, *examples: Tensor) -> list[Channels]:
    """All groups of channels that a model makes inside, in the order in which it makes them.

    Args:
        examples: inputs of the model; nothing is computed with them, their shapes count.

    Raises:
        TraceError: the model asks for values, or does something else that has no graph.

    >>> import tinytorch
    >>> from tinytorch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> for c in find_channels(net, tinytorch.ones(1, 4)):
    ...     print(c.name, c.size, [p.tensor for p in c.parts], c.fixed)
    0.weight 8 ['0.weight', '0.bias', '2.weight'] None
    2.weight 3 ['2.weight', '2.bias'] it is a result of the model
    """
    found = _find(model, examples)
    gc.collect()  # a trace refers to itself, and would keep weights alive that are soon removed
    return found


def _find(model: Module, examples: tuple[Tensor, ...]) -> list[Channels]:
    _, labels, owned = _labelled(model, examples)
    groups: dict[Axis, list[Part]] = {}
    for node, name in owned.items():
        for dim, label in enumerate(labels[node]):
            start = 0
            for axis, repeat in roots(label or ()):
                groups.setdefault(axis, []).append(Part(name, dim, repeat, start))
                start += axis.size * repeat
    made = {axis: part for axis, parts in groups.items() if (part := _maker(model, parts))}
    often = Counter(part.tensor for part in made.values())
    found = []
    for axis, part in made.items():
        rows = f"[{part.start}:{part.start + axis.size * part.repeat}]"
        name = part.tensor + (rows if often[part.tensor] > 1 else "")
        fixed = axis.fixed or ("there is one" if axis.size == 1 else None)
        found.append(Channels(name, axis.size, tuple(groups[axis]), fixed))
    return found


def _labelled(
    model: Module, examples: tuple[Tensor, ...]
) -> tuple[Graph, dict[Node, Labels], dict[Node, str]]:
    """The model's graph, labels of its values, and which of its inputs are which tensors."""
    traced = _trace(model, examples)
    names = {id(tensor._data): name for name, tensor in _tensors(model).items()}
    inputs = traced.graph.find_nodes(op="placeholder")
    owned = {
        node: names[id(binding.tensor._data)]
        for node, binding in zip(inputs, traced.signature.inputs, strict=True)
        if isinstance(binding, StateBinding) and id(binding.tensor._data) in names
    }
    return traced.graph, label_values(traced.graph, _shape, owned.__contains__), owned


def _shape(node: Node) -> Shape:
    return node.meta["tensor_meta"].shape  # type: ignore[no-any-return]


def _maker(model: Module, parts: list[Part]) -> Part | None:
    """The first part whose rows make these channels; None if they come from outside."""
    tensors = _tensors(model)
    return next((p for p in parts if p.dim == 0 and tensors[p.tensor].ndim > 1), None)


def prune_channels_(
    model: Module,
    *examples: Tensor,
    amount: float | Mapping[str, float] = 0.5,
    multiple_of: int = 1,
    importance: Importance = magnitude,
    skip: Collection[str] = (),
) -> dict[str, list[int]]:
    """Remove the least important channels of each group, in place.

    The model's parameters are new ones afterwards, so an optimizer is made after this, and the
    model is trained on a little, to win back accuracy.

    Args:
        examples: inputs of the model, for their shapes.
        amount: which part of the channels is removed, or that of each group, by its name as
            `find_channels` gives it. At least one channel stays.
        multiple_of: so many channels stay, or a multiple: of a vector's width, for instance.
        importance: a number for each channel; the smallest are removed.
        skip: names of groups of which nothing is removed.

    Returns:
        For each group that shrank the channels that were kept, in order.

    Raises:
        ValueError: an amount is not in [0, 1); a name is of no group, or of one that cannot shrink,
            with the reason.
        ShapeError: the smaller model does not run, as its code has a size written into it. The
            model is then as it was.

    >>> import tinytorch
    >>> from tinytorch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> kept = prune_channels_(net, tinytorch.ones(1, 4), amount=0.75)
    >>> [tuple(p.shape) for p in net.parameters()]
    [(2, 4), (2,), (3, 2), (3,)]
    """
    if multiple_of < 1:
        raise ValueError(f"multiple_of must be at least 1, got {multiple_of}")
    groups = find_channels(model, *examples)
    shares = _shares(groups, amount, skip)
    arrays = {name: tensor.detach().numpy() for name, tensor in _tensors(model).items()}
    keep: dict[str, list[int]] = {}
    for group in groups:
        count = group.size - int(shares.get(group.name, 0.0) * group.size)
        count = min(group.size, max(1, -(-count // multiple_of) * multiple_of))
        if count < group.size:
            scores = importance(group, arrays)
            if np.shape(scores) != (group.size,):
                raise ValueError(
                    f"importance gave shape {np.shape(scores)} for the {group.size} channels of "
                    f"{group.name}; it must be a number for each"
                )
            order = np.argsort(-np.asarray(scores), kind="stable")
            keep[group.name] = sorted(order[:count].tolist())
    keep_channels_(model, *examples, keep=keep, groups=groups)
    return keep


def _shares(
    groups: list[Channels], amount: float | Mapping[str, float], skip: Collection[str]
) -> dict[str, float]:
    """For each group that is to shrink, which part of it goes."""
    known = {group.name: group for group in groups}
    free = [group.name for group in groups if group.fixed is None]
    named = amount if isinstance(amount, Mapping) else dict.fromkeys(free, amount)
    for name in (*named, *skip):
        if name not in known:
            raise ValueError(f"there are no channels {name!r}; there are {', '.join(known)}")
    for name, share in named.items():
        if not 0 <= share < 1:
            raise ValueError(
                f"the amount to remove of {name} must be at least 0 and below 1, got {share}"
            )
        _check_free(known[name])
    return {name: share for name, share in named.items() if name not in skip}


def _check_free(group: Channels) -> None:
    if group.fixed is not None:
        raise ValueError(f"no channel of {group.name} can be removed: {group.fixed}")


def keep_channels_(
    model: Module,
    *examples: Tensor,
    keep: Mapping[str, list[int]],
    groups: list[Channels] | None = None,
) -> None:
    """Remove all but these channels of the groups that are named, in place.

    Args:
        keep: for each group, by name, the channels that stay.
        groups: what `find_channels` gave, if it was called already.

    Raises:
        ValueError, ShapeError: as for `prune_channels_`.
    """
    _keep(model, examples, keep, groups)
    gc.collect()  # see find_channels


def _keep(
    model: Module,
    examples: tuple[Tensor, ...],
    keep: Mapping[str, list[int]],
    groups: list[Channels] | None,
) -> None:
    graph, labels, owned = _labelled(model, examples)
    known = {g.name: g for g in (_find(model, examples) if groups is None else groups)}
    tensors = _tensors(model)
    stays = {name: [np.ones(n, bool) for n in x.shape] for name, x in tensors.items()}
    for name, channels in keep.items():
        group = known.get(name)
        if group is None:
            raise ValueError(f"there are no channels {name!r}; there are {', '.join(known)}")
        _check_free(group)
        if not channels or min(channels) < 0 or max(channels) >= group.size:
            raise ValueError(
                f"{name} has channels 0 to {group.size - 1}; one at least must stay: {channels}"
            )
        for part in group.parts:
            gone = np.setdiff1d(np.arange(group.size), channels)
            stays[part.tensor][part.dim][part.indices(gone)] = False
    new = {}
    for name, tensor in tensors.items():
        if not all(kept.all() for kept in stays[name]):
            new[id(tensor)] = _like(tensor, tensor.detach().numpy()[np.ix_(*stays[name])])
    sizes = _sizes_left(labels, owned, stays)
    before = [(module, dict(vars(module))) for module in model.modules()]
    _exchange(model, new)
    try:
        _check_runs(_trace(model, examples).graph, graph, sizes)
    except Exception as error:  # the model's own code may raise anything
        for module, attributes in before:
            vars(module).update(attributes)
        raise ShapeError(
            f"the model does not run with fewer channels of {', '.join(keep)}, so a size is "
            f"written into its code: {error}; take sizes from tensors (x.shape, flatten, chunk), "
            f"or name the group in skip"
        ) from error


def _sizes_left(
    labels: Mapping[Node, Labels],
    owned: Mapping[Node, str],
    stays: Mapping[str, list[Array]],
) -> dict[Node, list[list[int] | None]]:
    """Where the indices of each value's dimensions are afterwards: how many stay before each."""
    left: dict[Axis, Array] = {}
    for node, name in owned.items():
        for label, kept in zip(labels[node], stays[name], strict=True):
            start = 0
            for axis, repeat in roots(label or ()):
                stop = start + axis.size * repeat
                left[axis] = kept[start:stop:repeat]
                start = stop

    def before(label: Label) -> list[int]:
        kept = [np.repeat(left.get(a, np.ones(a.size, bool)), n) for a, n in roots(label)]
        return [0, *np.concatenate(kept).cumsum().tolist()]

    return {n: [before(x) if x else None for x in each] for n, each in labels.items()}


def _check_runs(small: Graph, whole: Graph, sizes: Mapping[Node, list[list[int] | None]]) -> None:
    """Refuse a smaller model whose values are not those channels of the whole one's that stayed."""
    for now, node in zip(small.nodes, whole.nodes, strict=False):
        if node.op == "output" and now.op == "output":
            return
        name = getattr(node.target, "name", node.op)
        where = f"{name} at {node.stack_trace}" if node.stack_trace else name
        if (now.op, getattr(now.target, "name", now.op)) != (node.op, name):
            raise ShapeError(f"{where} is not computed any more")
        shape = tuple(
            n if places is None else places[-1]
            for n, places in zip(_shape(node), sizes[node], strict=True)
        )
        if _shape(now) != shape:
            raise ShapeError(f"{where} gives {_shape(now)}, where {shape} is left")
        if name == "slice":
            places = sizes[cast(Node, node.args[0])]
            for at, (first, *_), (start, *_) in zip(
                places, now.kwargs["bounds"], node.kwargs["bounds"], strict=True
            ):
                if at is not None and first != at[start]:
                    raise ShapeError(f"{where} begins at {first}, where {at[start]} is meant")


def _like(tensor: Tensor, array: Array) -> Tensor:
    """A tensor of the same kind, with memory of its own, so that the old one's can be freed."""
    array = np.ascontiguousarray(array)
    if isinstance(tensor, Parameter):
        return Parameter(Tensor.from_numpy(array), tensor.requires_grad)
    return Tensor.from_numpy(array)


def _exchange(model: Module, new: Mapping[int, Tensor]) -> None:
    """Put new tensors in the place of old ones, by id, wherever a module has them."""
    for module in model.modules():
        for name, tensor in (*module.own_parameters(), *module.own_buffers()):
            if id(tensor) in new:
                setattr(module, name, new[id(tensor)])
    for module in model.modules():  # attention's are those of its parts
        _set_sizes(module)


def _set_sizes(module: Module) -> None:
    """Let what a layer says of its sizes be those of its tensors."""
    if isinstance(module, Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, _Conv) and not module.transposed:
        if 1 < module.groups == module.in_channels == module.out_channels:  # depthwise
            module.groups = module.weight.shape[0]
        module.out_channels = module.weight.shape[0]
        module.in_channels = module.weight.shape[1] * module.groups
    elif isinstance(module, _NormBase):
        for tensor in (module.weight, module.running_mean):
            if tensor is not None:
                module.num_features = tensor.shape[0]
    elif isinstance(module, MultiheadAttention):
        module.num_heads = module.out_proj.weight.shape[1] // module.head_dim
        if module.in_proj_weight is not None:
            module.embed_dim = module.kdim = module.vdim = module.in_proj_weight.shape[1]
        else:
            q, k, v = (getattr(module, f"{name}_proj_weight") for name in "qkv")
            module.embed_dim, module.kdim, module.vdim = q.shape[1], k.shape[1], v.shape[1]
    elif isinstance(module, CausalSelfAttention):
        width = module.config.head_width
        module.heads = module.out.weight.shape[1] // width
        module.kv_heads = (module.qkv.weight.shape[0] // width - module.heads) // 2


def _tensors(model: Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _trace(model: Module, examples: tuple[Tensor, ...]) -> TracedFunction:
    """The graph of the model in evaluation mode."""
    with evaluating(model):
        return trace(model, *examples, decompose=False)
