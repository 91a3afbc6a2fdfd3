"""Does a module do what another does? Values, gradients, and everything beside the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from tinytorch.fx.capture.comparison import difference, largest
from tinytorch.fx.capture.layouts import same_layout
from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.diagnosis.reasons import explain
from tinytorch.fx.models import call, call_with_state
from tinytorch.fx.optimize.devices import devices_of, generators_kept, seed_generators
from tinytorch.fx.semantics.buffers import model_buffers_kept
from tinytorch.fx.semantics.semantics import TorchSemantics
from tinytorch.graph.ir import GraphError

WORSE = 4.0  # times the error of the original against float64 that a change may make


class ForwardSemantics(TorchSemantics):
    """The semantics of a model's forward, for passes.

    Args:
        frozen: for inference: weights are constant, and nothing is differentiated.
    """

    def is_closed(self, graph: torch.fx.Graph) -> bool:
        return self.frozen or super().is_closed(graph)

    def gradients(self, graph: torch.fx.Graph, inputs: Sequence[Any], seed: int) -> list[Any]:
        return [] if self.frozen else super().gradients(graph, inputs, seed)


@dataclass
class Behaviour:
    """The observable behaviour of one call of a module.

    Attributes:
        spec: the form of its result.
        leaves: of the result.
        sharing: names of results and inputs, in pairs, that share memory.
        inputs: the tensors of the batch after the call.
        buffers: of the module after the call.
        generator: state of torch's generator after the call.
        gradients: of inputs and parameters.
    """

    spec: Any
    leaves: list[Any]
    sharing: set[tuple[str, str]]
    inputs: list[Any]
    buffers: list[Tensor]
    generator: Tensor
    gradients: list[Tensor | None]


def observe(
    module: nn.Module, state: nn.Module, batch: Any, seed: int, gradients: bool
) -> Behaviour:
    """Call a module on a copy of a batch, and see what that does. State is put back afterwards.

    Args:
        state: the module that has the buffers and the parameters.
        gradients: of the sum of all results, each weighted at random.
    """
    inputs = tree_map(lambda x: x.detach().clone() if isinstance(x, Tensor) else x, batch)
    tensors = [x for x in tree_leaves(inputs) if isinstance(x, Tensor)]
    devices = devices_of(state)
    with (
        generators_kept(devices),
        model_buffers_kept(state),
        torch.set_grad_enabled(gradients),
    ):
        seed_generators(seed, devices)
        leaves, spec = tree_flatten(call(module, inputs))
        results = [x for x in leaves if isinstance(x, Tensor)]
        after = [b.clone() for b in state.buffers()]  # it may have assigned others
        generator = torch.get_rng_state()
        found = _gradients(results, list(state.parameters()), seed) if gradients else []
    return Behaviour(spec, leaves, _sharing(results, tensors), tensors, after, generator, found)


def _gradients(
    results: list[Tensor], parameters: list[nn.Parameter], seed: int
) -> list[Tensor | None]:
    sources = [y for y in results if y.requires_grad]
    leaves = [p for p in parameters if p.requires_grad]
    if not sources or not leaves:
        return []
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(y.shape, generator=generator).to(y) for y in sources]
    try:
        return list(torch.autograd.grad(sources, leaves, weights, allow_unused=True))
    except RuntimeError as error:
        reason = explain(error)
        if "torch.utils.checkpoint" not in reason.text:  # else the error says enough
            raise
        raise CaptureError.because(reason) from error


def _sharing(results: list[Tensor], inputs: list[Tensor]) -> set[tuple[str, str]]:
    named = [(f"input {i}", x) for i, x in enumerate(inputs)]
    pairs = set()
    for i, result in enumerate(results):
        for name, other in named:
            if other.untyped_storage()._cdata == result.untyped_storage()._cdata:
                pairs.add((name, f"output {i}"))
        named.append((f"output {i}", result))
    return pairs


def compare(expected: Behaviour, found: Behaviour) -> None:
    """Raises GraphError at the first difference beyond rounding."""
    if found.spec != expected.spec:
        raise GraphError(f"the result has the form {found.spec}, and had {expected.spec}")
    for i, (a, b) in enumerate(zip(found.leaves, expected.leaves, strict=True)):
        _check(f"output {i}", a, b)
    if found.sharing - expected.sharing:
        raise GraphError(f"these share memory now: {sorted(found.sharing - expected.sharing)}")
    for i, (a, b) in enumerate(zip(found.inputs, expected.inputs, strict=True)):
        _check(f"input {i} after the call", a, b)
    for i, (a, b) in enumerate(zip(found.buffers, expected.buffers, strict=True)):
        _check(f"buffer {i} after the call", a, b)
    if not torch.equal(found.generator, expected.generator):
        raise GraphError("the random generator is in another state after the call")
    scale = max(map(largest, expected.gradients), default=1.0)  # of which all are parts
    for i, (a, b) in enumerate(zip(found.gradients, expected.gradients, strict=True)):
        _check(f"gradient of parameter {i}", a, b, scale)


def _check(what: str, found: Any, expected: Any, scale: float = 1.0) -> None:
    if not isinstance(expected, Tensor) or not isinstance(found, Tensor):
        if found is not expected and found != expected:
            raise GraphError(f"{what} is {found!r:.60}, and was {expected!r:.60}")
        return
    if found.shape != expected.shape or found.dtype != expected.dtype:
        raise GraphError(
            f"{what} is {found.dtype}{list(found.shape)}, and was "
            f"{expected.dtype}{list(expected.shape)}"
        )
    if not what.startswith("gradient") and not same_layout(found, expected):
        raise GraphError(f"{what} has strides {found.stride()}, and had {expected.stride()}")
    why = difference(found, expected, max(1.0, scale, largest(expected)))
    if why is not None:
        raise GraphError(f"{what} {why}, beyond rounding")


def other_values(batch: Any, seed: int) -> Any:
    """A batch like this one with other values: 0 is itself; floats are drawn, integers moved."""
    if seed == 0:
        return batch
    generator = torch.Generator().manual_seed(seed)

    def changed(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if x.is_floating_point():
            noise = torch.randn(x.shape, generator=generator).to(x)
            return x * (0.1 * noise).exp() + 0.1 * noise * x.detach().abs().mean()
        return x.flatten().roll(seed).reshape(x.shape)  # valid indices stay valid

    return tree_map(changed, batch)


def other_sizes(batch: Any, dims: Sequence[int]) -> Iterator[Any]:
    """A batch with twice the size in these dimensions of its tensors, and one with a size of 1."""
    yield larger(batch, dims)
    yield _resized(batch, dims, lambda x, d: x.narrow(d, 0, 1))


def larger(batch: Any, dims: Sequence[int]) -> Any:
    """A batch with twice the size in these dimensions of its tensors."""
    return _resized(batch, dims, lambda x, d: torch.cat([x, x], d))


def _resized(batch: Any, dims: Sequence[int], change: Callable[[Tensor, int], Tensor]) -> Any:
    def resized(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        for d in dims:
            if -x.ndim <= d < x.ndim and x.shape[d]:
                x = change(x, d)
        return x

    return tree_map(resized, batch)


@dataclass(frozen=True)
class Accuracy:
    """Largest errors against float64, relative to the largest value, of one tensor of a result.

    Attributes:
        original, optimized: of the model as it was, and of what was made of it.
    """

    original: float
    optimized: float

    @property
    def share(self) -> float:
        """The share of the allowed error that is used: the original's times a small factor, or
        rounding."""
        return self.optimized / max(WORSE * self.original, 1e-6)

    @property
    def is_good(self) -> bool:
        """The error has not grown beyond what is allowed."""
        return self.share <= 1


def accuracy(model: nn.Module, batch: Any, original: Any, optimized: Any) -> Accuracy:
    """Errors of two results of a float32 model against that of the model in float64.

    Each tensor is judged by the original's own error in that tensor: that one output is hard to
    compute excuses no other.

    Args:
        original, optimized: what the model and its optimized form give for the batch.

    Returns:
        Of the tensor that uses up the largest share of the error that it is allowed.

    Raises:
        ArithmeticError: in float64 the model gives NaN or infinities that it does not give in
            float32, as where it takes a float64's lowest number and casts it to float32 itself.
    """

    def doubled(x: Any) -> Any:  # a copy also of what stays as it is: the model may write it
        if not isinstance(x, Tensor):
            return x
        return x.detach().to(torch.float64 if x.is_floating_point() else x.dtype, copy=True)

    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    args, kwargs = ((), batch) if isinstance(batch, dict) else (_as_tuple(batch), None)
    exact = {name: doubled(tensor) for name, tensor in state.items()}
    with torch.no_grad(), generators_kept(devices_of(model)):
        result = call_with_state(model, exact, *tree_map(doubled, (args, kwargs)))
    for a, b in zip(_floats(original), _floats(result), strict=True):
        if (a.isfinite() & ~b.isfinite()).any():
            raise ArithmeticError("its float64 result is NaN or infinite where float32 is not")
    found = [Accuracy(_error(a, exact), _error(b, exact)) for a, b, exact in
             zip(_floats(original), _floats(optimized), _floats(result), strict=True)]  # fmt: skip
    return max(found, key=lambda each: each.share, default=Accuracy(0.0, 0.0))


def _as_tuple(batch: Any) -> tuple[Any, ...]:
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


def _floats(result: Any) -> list[Tensor]:
    return [x for x in tree_leaves(result) if isinstance(x, Tensor) and x.is_floating_point()]


def _error(found: Tensor, exact: Tensor) -> float:
    """The largest error relative to the largest value; where both are the same infinity it is 0."""
    a, b = found.detach().cpu().double(), exact.detach().cpu().double()
    scale = largest(b)
    gap = (a - b).abs().masked_fill((a == b) | (a.isnan() & b.isnan()), 0.0)
    return gap.max().item() / scale if scale and gap.numel() else 0.0
