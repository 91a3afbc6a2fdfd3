"""`OptimizedModule`: the module that `GraphOptimizer` returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_unflatten

from tinytorch.fx.capture.open_sizes import OTHER_SIZES
from tinytorch.fx.optimize.captured_state import (
    FrozenState,
    ModelParts,
    Modes,
    OptimizedModuleError as OptimizedModuleError,
)
from tinytorch.fx.optimize.relaid import Relaid, has_layout_of


@dataclass
class FlatCall:
    """A graph as it is called: its inputs in a row, without the form of the model's call.

    Attributes:
        forward: of the module of which it was made, which is another after `recompile`.
        expected: the placeholders; dtype, device, shape and strides of those whose sizes are
            fixed.
        run: takes the inputs in a row, and returns what the model returns.
    """

    forward: Any
    expected: list[tuple[torch.fx.Node, Any]]
    run: Callable[..., Any]

    @staticmethod
    def of(module: torch.fx.GraphModule) -> FlatCall:
        """The graph of a module; it uses the module's state."""
        nodes = module.graph.find_nodes(op="placeholder")
        expected = [(n, _described(n.meta["val"])) for n in nodes]
        return FlatCall(type(module).forward, expected, _flat_function(module))


def _flat_function(module: torch.fx.GraphModule) -> Callable[..., Any]:
    flat = torch.fx.Graph()
    results = flat.graph_copy(module.graph, {})
    code: Any = module.graph._codegen
    spec = code.pytree_info.out_spec if hasattr(code, "pytree_info") else None
    is_single = spec is not None and spec.is_leaf()
    flat.output(results[0] if is_single else results)  # type: ignore[index]
    run: Callable[..., Any] = torch.fx.GraphModule(module, flat).forward
    if spec is None or is_single:
        return run
    return lambda *inputs: tree_unflatten(run(*inputs), spec)


class OptimizedModule(nn.Module):
    """A model whose forward runs optimized graphs. It is called like the model.

    If it is frozen, weights are folded and packed into its one graph, for inference: it computes no
    gradients and has no training mode, and refuses calls once the model's weights have changed,
    of which it would see a part. (But writes through `.data` or NumPy are not seen: PyTorch counts
    the others.) Else it has a graph for training and one for evaluation,
    which use the model's own parameters and buffers, and can be trained; it refuses calls while a
    part of the model is in another mode than in the capture.

    Either refuses calls once a layer, a parameter or a buffer of the model is another object. Hooks
    and plain attributes, such as the rate of a dropout, stay as they were captured.

    Args:
        model: whose graphs they are.
        graphs: by mode, "train" and "eval"; if frozen only the latter.
        inputs: a dict of keyword arguments or a tuple of positional ones, as captured.
        modes: by mode, those of the model's parts in the capture; none are checked if frozen.
    """

    def __init__(
        self,
        model: nn.Module,
        graphs: dict[str, torch.fx.GraphModule],
        inputs: Any,
        frozen: bool,
        modes: dict[str, Modes],
    ) -> None:
        super().__init__()
        self.frozen = frozen
        if not frozen:
            self.model = model  # its parameters are ours
        self.names = tuple(inputs) if isinstance(inputs, dict) else None
        # not as modules: the graphs hold no state beside the model's
        object.__setattr__(self, "graphs", graphs)
        object.__setattr__(self, "_last", None)
        object.__setattr__(self, "_frozen_state", None)
        self._parts = ModelParts(model)
        self._modes = {} if frozen else modes
        self.training = model.training and not frozen  # a part of the model may be otherwise

    graphs: dict[str, torch.fx.GraphModule]
    _last: FlatCall | None
    _frozen_state: FrozenState | None

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse copies and pickles: packed weights and guards cannot be copied.

        Raises:
            OptimizedModuleError: always.
        """
        raise OptimizedModuleError(
            "an optimized module cannot be copied or pickled: copy or save the model it was made "
            "of (its state_dict()), and optimize that where it is to run"
        )

    def train(self, mode: bool = True) -> OptimizedModule:
        """Choose between the training and the evaluation graph.

        Raises:
            OptimizedModuleError: it is frozen, and there is no training graph.
        """
        if mode and self.frozen:
            raise OptimizedModuleError(
                "this module is frozen for inference; to train, optimize the model with "
                "frozen=False"
            )
        super().train(mode)
        return self

    @property
    def graph_module(self) -> torch.fx.GraphModule:
        """The graph that runs in the present mode."""
        return self.graphs["train" if self.training else "eval"]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's result.

        Raises:
            OptimizedModuleError: other arguments, shapes or dtypes than captured, or gradients
                are asked of a frozen module, or the weights that it is frozen with have changed,
                or the model has other parts, or a part in another mode, than captured.
        """
        self._parts.check()
        if not self.frozen:
            self._modes["train" if self.training else "eval"].check()
        if self._frozen_state is not None:
            self._frozen_state.check()
        last = self._flat_call()
        leaves, relaid = self._checked(last.expected, args, kwargs)
        check_sizes(self.graph_module, leaves)
        result = self._run(last, leaves)
        for each in relaid:
            each.write_back()
        return result

    def _run(self, last: FlatCall, leaves: Sequence[Any]) -> Any:
        if not self.frozen or not torch.is_grad_enabled():
            return last.run(*leaves)
        with torch.no_grad():
            return last.run(*leaves)

    def freeze(self, state: Sequence[Tensor]) -> None:
        """Refuse calls from now on when one of these tensors has changed."""
        object.__setattr__(self, "_frozen_state", FrozenState(state))

    def _checked(
        self,
        expected: list[tuple[torch.fx.Node, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[Sequence[Any], Sequence[Relaid]]:
        """The inputs in a row, in the order of the capture; those that are copies of what is given,
        in its memory layout."""
        names = self.names
        if kwargs or names:
            if (args and names) or kwargs.keys() != set(names or ()):
                raise OptimizedModuleError(self._wrong_call(len(args), kwargs))
            kwargs = {name: kwargs[name] for name in names or ()}
        leaves = args if names is None else tuple(kwargs.values())
        if len(leaves) != len(expected) or any(map(_is_nested, leaves)):
            leaves = tuple(tree_leaves((args, kwargs)))
        if len(leaves) != len(expected):
            raise OptimizedModuleError(
                f"captured with {len(expected)} inputs, but called with {len(leaves)}"
            )
        is_watched = self.frozen and torch.is_grad_enabled()
        relaid: dict[int, Relaid] = {}
        for i, ((node, described), leaf) in enumerate(zip(expected, leaves, strict=True)):
            if described is not None and isinstance(leaf, Tensor):
                same = (leaf.dtype, leaf.device, leaf.shape, leaf.stride()) == described
                if same and not (is_watched and leaf.requires_grad):
                    continue
            self._check_input(node, leaf)
            if isinstance(leaf, Tensor) and not has_layout_of(leaf, node.meta["val"]):
                relaid[i] = Relaid.like(leaf, node.meta["val"])
        if not relaid:
            return leaves, ()
        copied = [relaid[i].copy if i in relaid else leaf for i, leaf in enumerate(leaves)]
        return copied, list(relaid.values())

    def _wrong_call(self, count: int, keywords: dict[str, Any]) -> str:
        wanted = f"({', '.join(f'{n}=...' for n in self.names)})" if self.names else "(...)"
        return (
            f"captured as a call with {wanted}, but called with {count} positional arguments and "
            f"the keywords {', '.join(keywords) or 'none'}"
        )

    def _flat_call(self) -> FlatCall:
        """The graph of the present mode, ready to be called."""
        module, last = self.graph_module, self._last
        if last is None or last.forward is not type(module).forward:
            # the mode has changed, a pass was undone, or the graph was compiled anew
            last = FlatCall.of(module)
            object.__setattr__(self, "_last", last)
        return last

    def _check_input(self, node: torch.fx.Node, given: Any) -> None:
        expected = node.meta["val"]
        if not isinstance(expected, Tensor):
            if not _are_same(given, expected):
                raise OptimizedModuleError(f"{node.name} was {expected!r}, but is {given!r}")
            return
        if not isinstance(given, Tensor):
            raise OptimizedModuleError(f"{node.name} is {type(given).__name__}, not a tensor")
        fits = given.ndim == expected.ndim and all(
            not isinstance(size, int) or size == own
            for own, size in zip(given.shape, expected.shape, strict=True)
        )
        if not fits or given.dtype != expected.dtype or given.device != expected.device:
            raise OptimizedModuleError(
                f"{node.name} is {given.dtype}{list(given.shape)} on {given.device}, but was "
                f"captured as {expected.dtype}{list(expected.shape)} on {expected.device}; "
                "optimize for this input, or leave sizes open with dynamic_dims"
            )
        if self.frozen and given.requires_grad and torch.is_grad_enabled():
            raise OptimizedModuleError(
                f"{node.name} requires a gradient, which a frozen module does not compute; call it "
                "under no_grad, or optimize with frozen=False"
            )


def _are_same(given: Any, expected: Any) -> bool:
    """Whether a value that is no tensor is that of the capture: True is not 1, and 1 not 1.0."""
    if type(given) is not type(expected):
        return False
    return bool(given == expected or (given != given and expected != expected))  # both NaN


def check_sizes(module: torch.fx.GraphModule, leaves: Sequence[Any]) -> None:
    """Check that the model does with these inputs what the graph does.

    Raises:
        OptimizedModuleError: it takes another branch for their sizes.
    """
    guards = module.meta.get("size_guards")
    if guards is not None and (why := guards.failure(leaves)) is not None:
        raise OptimizedModuleError(f"{OTHER_SIZES} ({why}): optimize it for them")


def _is_nested(value: Any) -> bool:
    return not isinstance(value, Tensor) and isinstance(value, (tuple, list, dict))


def _described(expected: Any) -> tuple[Any, ...] | None:
    """What a tensor must be; None where a size is open, or for what is no tensor."""
    if not isinstance(expected, Tensor) or not all(isinstance(n, int) for n in expected.shape):
        return None
    return expected.dtype, expected.device, expected.shape, expected.stride()
