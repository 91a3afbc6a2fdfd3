"""`backward` and `grad`: gradients by walking the recorded history from results to leaves.

Reverse-mode automatic differentiation. Source: A. Griewank, A. Walther, "Evaluating derivatives",
2nd edition, 2008, section 3.2.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.autograd import slices
from tinytorch.autograd.listeners import BackwardListener, leaves_when_ready, listeners
from tinytorch.backends import reference
from tinytorch.backends.base import ComputeBackend
from tinytorch.dispatch import apply, is_tensor, unaliased, wrap, write
from tinytorch.errors import AutogradError, DTypeError, ShapeError
from tinytorch.functions.reductions import sum_to
from tinytorch.history import Record, owner_of, set_grad, write_clock
from tinytorch.jit.buffers import own
from tinytorch.replay.gradients import Gradients
from tinytorch.replay.steps import backend_with_programs, run_program
from tinytorch.replay.walks import Engine, walks_from
from tinytorch.state import STATE, backward_state, grad_mode, no_mode_active

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

# What a gradient belongs to: a Record, or a leaf Tensor. Hashed by identity.
Source = Any

_leaf_lock = threading.Lock()


def backward(
    tensor: Tensor | Iterable[Tensor],
    gradient: Tensor | Iterable[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Iterable[Tensor] | None = None,
) -> None:
    """Add the gradient of `tensor` to `.grad` of every leaf that it was computed from.

    Args:
        tensor: or several, the gradients of which are added up in one walk.
        gradient: the gradient of `tensor` itself, of several one for each; may be left out (or
            None) for a single element, where it is 1.
        retain_graph: keep the values that gradients read, so that backward can be called again.
            As `create_graph` unless given.
        create_graph: record the computation of the gradients, so that they can be differentiated.
        inputs: add to the `.grad` of these only, leaves or not.

    A `.grad` that there is already is added to in place, so that what shares it sees the sum.

    Raises:
        AutogradError: nothing here needs a gradient; the tensor has several elements and no
            gradient is given; the history was freed by an earlier backward; a value that a
            gradient reads was overwritten in place; or `inputs` is empty or has a tensor that
            requires no gradient.
        ShapeError: a `.grad` that there is already has another shape.

    >>> import tinytorch
    >>> x = tinytorch.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """
    wanted = None
    if inputs is not None:
        wanted = {_source(t): t for t in _listed(inputs)}
        if not wanted or not all(t._requires_grad for t in wanted.values()):
            raise AutogradError(
                "backward: `inputs` must be tensors that require a gradient, at least one; leave "
                "it out for all leaves"
            )
    outputs, listening = _listed(tensor), tuple(listeners)
    seeds = [None] * len(outputs) if gradient is None else _listed(gradient, gaps=True)
    try:
        sources = None if wanted is None else set(wanted)
        gradients = _propagate(outputs, seeds, retain_graph, create_graph, sources, listening)
        for listener in listening:
            listener.end(gradients)
    except BaseException:
        for listener in listening:
            listener.abandon()
        raise
    shared = {id(owner_of(seed._data)) for seed in seeds if seed is not None}
    with _leaf_lock:
        for source, g in gradients.items():
            leaf = source if wanted is None else wanted[source]
            if leaf._requires_grad:  # not frozen since
                _accumulate(leaf, g, shared, create_graph)


def grad(
    outputs: Tensor | Iterable[Tensor],
    inputs: Tensor | Iterable[Tensor],
    grad_outputs: Tensor | Iterable[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    only_inputs: bool = True,
    *,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of `outputs` for `inputs`; no `.grad` is changed.

    Args:
        grad_outputs: the gradient of each output; None for 1 (outputs of one element).
        allow_unused: give None for an input that the outputs do not depend on.
        only_inputs: True, as in PyTorch: no other gradients are kept.
        materialize_grads: give zeros for such an input.

    Returns:
        One gradient for each input, of its shape.

    Raises:
        AutogradError: as `backward`; or an input was not used and `allow_unused` is False.
        ValueError: `only_inputs` is False; or `allow_unused` beside `materialize_grads`.
    """
    if materialize_grads and allow_unused is False:
        raise ValueError("grad: materialize_grads=True gives zeros: leave out allow_unused=False")
    if not only_inputs:
        raise ValueError("grad: only_inputs=False was taken out of PyTorch; use backward()")
    many_outputs, many_inputs = _listed(outputs), _listed(inputs)
    seeds: list[Tensor | None]
    seeds = [None] * len(many_outputs) if grad_outputs is None else _listed(grad_outputs, gaps=True)
    for i, tensor in enumerate(many_inputs):
        if not tensor._requires_grad:
            raise AutogradError(f"grad: input {i} (shape {tensor.shape}) does not require grad")
    sources = [t.history or t for t in many_inputs]
    found = _propagate(many_outputs, seeds, retain_graph, create_graph, set(sources))
    result: list[Tensor | None] = []
    for i, source in enumerate(sources):
        g, like = found.get(source), many_inputs[i].meta
        if g is None and materialize_grads:
            g = apply(ops.full, shape=like.shape, value=0.0, dtype=like.dtype)
        if g is None and not allow_unused:
            raise AutogradError(
                f"grad: input {i} (shape {many_inputs[i].shape}) was not used to compute the "
                f"outputs; pass allow_unused=True to get None for it"
            )
        result.append(g)
    return tuple(result)


def _listed(tensors: Any, *, gaps: bool = False) -> list[Any]:
    """The tensors of an iterable, such as `parameters()`, or the one there is.

    Args:
        gaps: whether None may be among them.
    """
    if is_tensor(tensors):  # quicker than to ask for an Iterable
        return [tensors]
    found = list(tensors) if isinstance(tensors, Iterable) else [tensors]
    for each in found:
        if not is_tensor(each) and not (gaps and each is None):
            raise TypeError(f"a gradient is of tensors and for tensors, not {type(each).__name__}")
    return found


def _source(tensor: Tensor) -> Source:
    return tensor.history or tensor


def _propagate(
    outputs: list[Tensor],
    seeds: list[Tensor | None],
    retain_graph: bool | None,
    create_graph: bool,
    wanted: set[Source] | None,
    listening: tuple[BackwardListener, ...] = (),
) -> dict[Source, Tensor]:
    """Gradients of the leaves, or of the sources in `wanted`."""
    if len(seeds) != len(outputs):
        raise AutogradError(f"{len(outputs)} outputs need as many gradients, not {len(seeds)}")
    free = not (create_graph if retain_graph is None else retain_graph)
    token = STATE.set(backward_state(create_graph))  # a context costs as much as a small kernel
    try:
        backend = backend_with_programs(create_graph)
        roots = [(_source(t), _seed(t, seed)) for t, seed in zip(outputs, seeds, strict=True)]
        walks = None
        if backend is not None and wanted is None and not listening and len(roots) == 1:
            walks = walks_from(roots[0][0], backend)
            if walks is not None and (known := walks.run(*roots[0], free)) is not None:
                return known
        order = _topological_order([source for source, _ in roots])
        if walks is not None and backend is not None:
            walks.note(order, backend, _ENGINE)
        if listening:
            order = leaves_when_ready(order)
        return _through(order, roots, backend, free, wanted, listening)
    finally:
        STATE.reset(token)


def _through(
    order: list[Source],
    roots: list[tuple[Source, Tensor]],
    backend: ComputeBackend | None,
    free: bool,
    wanted: set[Source] | None,
    listening: tuple[BackwardListener, ...],
) -> dict[Source, Tensor]:
    """Gradients of the sources in `wanted`, or of the leaves, by a walk from the end of `order`."""
    found: dict[Source, Tensor] = {}
    pending = _Pending()
    for source, g in roots:
        pending[source] = pending[source] + g if source in pending else g
    relevant = None if wanted is None else _leading_to(order, wanted)
    for source in reversed(order):
        if source not in pending or (relevant is not None and source not in relevant):
            continue
        g = pending.take(source) if pending.parts else pending.pop(source)
        if source.hooks:
            g = _call_hooks(source, g)
        is_leaf = type(source) is not Record
        if is_leaf if wanted is None else source in wanted:
            found[source] = g
            for listener in listening:
                listener.ready(source, g)
        if not is_leaf:
            if source.inputs is None or source.clock != write_clock.now:
                _check_usable(source, g)
            if source.op is ops.slice_ and slices.may_wait(source, g):
                pending.add_part(source, g)
            elif backend is None or not run_program(
                backend, source, g, pending, relevant, _whole_step
            ):
                _step(source, _shared(source, g), pending, relevant)
            if free:
                source.inputs = None
                source.output = None
    return found


class _Pending(dict[Source, Any]):
    """The gradient so far of each source.

    Attributes:
        parts: of a source of slices, the gradients of these, which are not among the others: what
            is pending for it is the gradient without them, or None.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[Source, list[slices.Part]] = {}

    def take(self, source: Source) -> Tensor:
        """What is pending for a source, which is then no longer pending."""
        g: Tensor = self.pop(source)
        parts = self.parts.pop(source, None)
        return g if parts is None else slices.joined(g, parts)

    def add_part(self, record: Record, g: Tensor) -> None:
        """Add the gradient of a slice to that of what it was taken from, when that is taken."""
        (edge,) = record.edges
        self.setdefault(edge, None)
        self.parts.setdefault(edge, []).append((record, g))


def _seed(output: Tensor, seed: Tensor | None) -> Tensor:
    if not output._requires_grad:
        raise AutogradError(
            "backward: this tensor has no history: nothing that it was computed from requires a "
            "gradient, or it was computed under no_grad()"
        )
    if seed is None:
        if output.meta.size != 1:
            raise AutogradError(
                f"backward: a gradient is only implied for a single element, and this tensor has "
                f"shape {output.shape}; reduce it first (loss.mean()) or pass gradient="
            )
        meta = output.meta
        if no_mode_active():  # nobody would see the op, which takes as long as ten of these lines
            if meta.shape == () and meta.dtype.dtype.kind == "f":  # at a sixth of the time
                return wrap(np.array(1.0, meta.dtype.dtype), meta)
            return wrap(reference.full(shape=meta.shape, value=1.0, dtype=meta.dtype), meta)
        return apply(ops.full, shape=meta.shape, value=1.0, dtype=meta.dtype)
    if seed.meta is output.meta:
        return seed
    if seed.shape != output.shape:
        raise ShapeError(
            f"backward: the gradient has shape {seed.shape}, the tensor {output.shape}"
        )
    return seed.to(output.dtype)


def _topological_order(roots: list[Source]) -> list[Source]:
    """Every source once, and before those that were computed from it.

    A loop, not a recursion, so that depth is no limit: a chain of 100,000 ops works.

    Args:
        roots: the sources to begin with; the list stays as it is. A `Record` has `edges`: the
            sources of its inputs, and None for an input that needs no gradient. Any other source
            is a leaf, without edges.

    Returns:
        The roots and all that can be reached from them, each behind everything it came from.
    """
    order: list[Source] = []
    seen: set[Source] = set()
    stack: list[Source | None] = list(roots)
    while stack:
        source = stack.pop()
        if source is None:  # all inputs of the record below it are done
            order.append(stack.pop())
        elif source not in seen:
            seen.add(source)
            if type(source) is Record:
                stack += (source, None)
                stack += [edge for edge in source.edges if edge is not None and edge not in seen]
            else:
                order.append(source)
    return order


def captured_by(tensors: list[Tensor], since: int) -> list[Tensor]:
    """What tensors were computed from: leaves, and results of ops that ran before `since`.

    Args:
        since: a time of the write clock, which ticked before the first op that is looked into.
    """
    found: dict[Source, Tensor] = {}
    seen: set[Source] = set()
    waiting = [_source(t) for t in tensors if t._requires_grad]
    while waiting:
        source = waiting.pop()
        if source is None or source in seen:
            continue
        seen.add(source)
        if type(source) is not Record:
            found[source] = source
        elif source.clock < since:
            found[source] = _output_of(source)
        else:
            waiting += source.edges
    return list(found.values())


def _leading_to(order: list[Source], wanted: set[Source]) -> set[Source]:
    """The sources through which a wanted one is reached."""
    relevant: set[Source] = set()
    for source in order:
        is_between = type(source) is Record and not relevant.isdisjoint(source.edges)
        if is_between or source in wanted:
            relevant.add(source)
    return relevant


def _shared(record: Record, g: Tensor) -> Any:
    """What the vjps of an op get for `g`: where one computation serves all inputs, its result."""
    op = record.op
    if op.shared_vjp is None:
        return g
    return op.shared_vjp(g, record, _output_of(record) if op.saves_output else None, 0)


def _whole_step(record: Record, g: Tensor, pending: dict[Source, Tensor]) -> None:
    _step(record, _shared(record, g), pending, None)


def _step(
    record: Record, g: Tensor, pending: dict[Source, Tensor], relevant: set[Source] | None
) -> None:
    """Hand the gradient of a result on to the inputs: pending[edge] += vjp(g).

    The gradient of input i is `vjp(g, record, output, i)`. The `vjp` is `record.op.vjps[i]`; an op
    with any number of inputs has one, which stands for all of them. The `output` is
    `_output_of(record)` if `record.op.saves_output`, else None. There is no gradient if the vjp is
    None or returns None. That of an elementwise op (`record.op.kind`) is summed to the shape of the
    input, `record.metas[i].shape`, as broadcasting may have repeated it.

    Args:
        record: of the op; `record.edges` has for each input the source that its gradient belongs
            to, or None.
        g: the gradient of the result.
        pending: the gradient so far of each source that has one; added to.
        relevant: the sources whose gradients are wanted; None for all of them.
    """
    op = record.op
    vjps = op.vjps
    assert vjps is not None
    output = _output_of(record) if op.saves_output else None
    for i, edge in enumerate(record.edges):
        if edge is None or (relevant is not None and edge not in relevant):
            continue
        vjp = vjps[i if len(vjps) > i else -1]  # the last stands for all inputs of a variadic op
        if vjp is None:
            continue
        gradient = vjp(g, record, output, i)
        if gradient is None:
            continue
        if op.kind == "elementwise" and gradient.meta is not record.metas[i]:
            gradient = sum_to(gradient, record.metas[i].shape)
        before = pending.get(edge)
        pending[edge] = gradient if before is None else before + gradient


def _output_of(record: Record) -> Tensor:
    """The result that a record made. It does not hold the tensor, which would make a cycle."""
    output = wrap(record.output, record.meta)
    output._requires_grad = True
    output.history = record
    return output


def _check_usable(record: Record, g: Tensor) -> None:
    """Every value that the gradient reads is still there, and still what the op saw."""
    if record.inputs is None:
        raise AutogradError(
            f"backward: the history of {record.op.name} was freed by an earlier backward; pass "
            f"retain_graph=True to that one to call it twice"
        )
    program = Gradients.behind(record.op)
    read = record.inputs if program is None else program.read(g, record)
    for data in [*(t._data for t in read if is_tensor(t)), record.output]:
        if data is not None and write_clock.last_write(data) > record.clock:
            raise AutogradError(
                f"backward: a value of shape {data.shape} that the gradient of {record.op.name} "
                f"needs was overwritten in place after it was used; write into a copy, or call "
                f"backward before writing"
            )


def _call_hooks(source: Source, g: Tensor) -> Tensor:
    for hook in list(source.hooks):
        replacement = hook(g)
        if replacement is not None:
            if replacement.shape != g.shape:
                raise ShapeError(
                    f"a hook returned a gradient of shape {replacement.shape} for {g.shape}"
                )
            if replacement.dtype != g.dtype:
                raise DTypeError(
                    f"a hook returned a {replacement.dtype.name} gradient for {g.dtype.name}"
                )
            g = replacement
    return g


def _can_add(before: Tensor, g: Tensor) -> bool:
    """Both have one shape and dtype, and the memory, if there is any yet, may be written."""
    if before.requires_grad or before.meta is not g.meta:
        return False
    return not isinstance(before._data, np.ndarray) or before._data.flags.writeable


def _accumulate(leaf: Tensor, g: Tensor, shared: set[int], create_graph: bool) -> None:
    """leaf.grad += g; at first a copy of what something else holds too."""
    if leaf.grad is not None:
        _add_to_grad(leaf, leaf.grad, g, create_graph)
        return
    if create_graph:
        pass  # the gradient has a history, and is not written in place
    elif not isinstance(g._data, np.ndarray):  # in a trace
        g = unaliased(g)
    else:
        data = g._data
        owner = data if data.base is None else owner_of(data)
        known = id(owner)
        is_view = data.base is not None
        if known in shared or (is_view and (0 in data.strides or not own(data, owner))):
            g = wrap(np.array(data), g.meta)
        shared.add(known)
    leaf.grad = g


def _add_to_grad(leaf: Tensor, before: Tensor, g: Tensor, create_graph: bool) -> None:
    """leaf.grad += g, where there is a gradient `before`: in place, if that can be."""
    if before.shape != g.shape:
        raise ShapeError(
            f"backward: .grad has shape {before.shape}, the gradient {g.shape}; set it to "
            f"None or to a tensor of the leaf's shape"
        )
    if create_graph or not _can_add(before, g):
        with grad_mode(create_graph):
            leaf.grad = before + g
    elif not no_mode_active():
        write(before, ops.add, before, g)
    else:
        np.add(before._data, g._data, before._data)
        write_clock.write(before._data)


_ENGINE = Engine(_whole_step, _check_usable, slices.may_wait, slices.joined)
set_grad(grad)
