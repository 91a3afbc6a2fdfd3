"""Functions that turn a function into that of its derivatives: PyTorch's `torch.func`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinytorch.absent import names_of
from tinytorch.autograd.engine import captured_by, grad as gradients_of
from tinytorch.dispatch import is_tensor
from tinytorch.errors import AutogradError
from tinytorch.state import grad_mode


def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The function that gives the gradient of `func` and its result, as a pair; see `grad`."""

    def both(*args: Any, **options: Any) -> Any:
        chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        if not chosen or not all(-len(args) <= i < len(args) for i in chosen):
            raise ValueError(f"func.grad: argnums is {argnums}, of {len(args)} arguments")
        values = list(args)
        with grad_mode(True):
            for i in chosen:
                values[i] = _map(_watched, args[i])
            result = func(*values, **options)
            if has_aux and not (isinstance(result, tuple) and len(result) == 2):
                raise TypeError("func.grad: with has_aux the function returns a pair (tensor, aux)")
            y = result[0] if has_aux else result
            if not is_tensor(y) or y.numel() != 1:
                what = f"shape {y.shape}" if is_tensor(y) else f"type {type(y).__name__}"
                raise AutogradError(
                    f"func.grad: the result has {what}, not one element of a tensor"
                )
            leaves = [x for i in chosen for x in _leaves(values[i])]
            found: Any = [None] * len(leaves)  # of what depends on none of them
            if y.requires_grad:
                found = gradients_of(y.reshape(()), leaves, None, None, True, allow_unused=True)
            pairs = zip(leaves, found, strict=True)
            whole = iter([x * 0 if g is None else g for x, g in pairs])
        gradient = tuple(_map(lambda _: next(whole), values[i]) for i in chosen)
        given = (gradient[0] if isinstance(argnums, int) else gradient), result
        return _without_history_of(leaves, given)

    return both


def _without_history_of(leaves: list[Any], tree: Any) -> Any:
    """The tree, in which what was computed from these leaves alone requires no gradient."""
    own = set(map(id, leaves))

    def depends(*tensors: Any) -> bool:
        return any(id(leaf) not in own for leaf in captured_by(list(tensors), 0))

    others = depends(*filter(is_tensor, _leaves(tree)))  # one walk, where there are none
    return _map(lambda x: x.detach() if is_tensor(x) and not (others and depends(x)) else x, tree)


def grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The function that gives the gradient of `func` for one argument, or several.

    Args:
        func: returns a tensor of one element; with `has_aux` a pair of it and anything else.
        argnums: for which argument, a tensor, or a dictionary, list or tuple of tensors, as its
            gradient then is; a tuple for a tuple of gradients.
        has_aux: give a pair of the gradient and the second part of the result.

    Raises:
        AutogradError: (the returned function) the result has several elements.

    >>> from tinytorch import tensor
    >>> grad(lambda x: x * x)(tensor(3.0)), grad(grad(lambda x: x * x * x))(tensor(3.0))
    (tensor(6.), tensor(18.))
    """
    both = grad_and_value(func, argnums, has_aux)

    def gradient(*args: Any, **options: Any) -> Any:
        g, result = both(*args, **options)
        return (g, result[1]) if has_aux else g

    return gradient


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: dict[str, Any] | Sequence[dict[str, Any]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other tensors in place of its parameters and buffers.

    Args:
        module: a `nn.Module`; it is as before afterwards.
        parameter_and_buffer_dicts: name, as in `state_dict`, -> tensor; or several such.
        args: the arguments, a tuple; or the only one.
        kwargs: the arguments by keyword.
        tie_weights: what is given for a tensor that the module has in several places is put into
            all of them.
        strict: every parameter and buffer must be given.

    Raises:
        KeyError: the module has no such parameter or buffer, or, with `strict`, one is not given.
        ValueError: one is given twice, or with `tie_weights` two tensors for one.

    >>> from tinytorch import nn, ones
    >>> functional_call(nn.Linear(2, 1), {"weight": ones(1, 2), "bias": ones(1)}, ones(1, 2)).item()
    3.0
    """
    given = _given(parameter_and_buffer_dicts)
    known = dict(module.named_parameters(remove_duplicate=False))
    known |= module.named_buffers(remove_duplicate=False)
    tied = _tied(given, known) if tie_weights else given
    wrong = sorted(given.keys() - known.keys() | (known.keys() - tied.keys() if strict else set()))
    if wrong:
        raise KeyError(f"functional_call: {wrong} of {sorted(given)}; the module has {list(known)}")
    own = []
    try:
        for path, value in tied.items():
            owner, _, name = path.rpartition(".")
            attributes = vars(module.get_submodule(owner))
            own.append((attributes, name, attributes[name]))
            attributes[name] = value
        arguments = () if args is None else args if isinstance(args, tuple) else (args,)
        return module(*arguments, **(kwargs or {}))
    finally:
        for attributes, name, value in own:
            attributes[name] = value


def _given(dicts: dict[str, Any] | Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One dictionary of several, which have different names."""
    given: dict[str, Any] = {}
    for each in [dicts] if isinstance(dicts, dict) else dicts:
        if twice := sorted(given.keys() & each.keys()):
            raise ValueError(f"functional_call: {twice} are in several dictionaries")
        given |= each
    return given


def _tied(given: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """What is given, under all names of the tensors that it is in place of."""
    by_tensor: dict[int, Any] = {}
    for name in given.keys() & known.keys():
        if by_tensor.setdefault(id(known[name]), given[name]) is not given[name]:
            raise ValueError(f"functional_call: {name} is one tensor with another that is given")
    return {name: by_tensor[id(t)] for name, t in known.items() if id(t) in by_tensor}


def _watched(x: Any) -> Any:
    """A tensor of the same value for which gradients are computed."""
    return x.reshape(x.shape) if x.requires_grad else x.detach().requires_grad_()


def _map(function: Callable[[Any], Any], tree: Any) -> Any:
    """`function` of each tensor in dictionaries, lists and tuples, in the same form."""
    if isinstance(tree, dict):
        return {key: _map(function, value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        items = [_map(function, value) for value in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return function(tree)


def _leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    _map(found.append, tree)
    return found


__getattr__ = names_of("torch.func")  # names of PyTorch's that are not here
