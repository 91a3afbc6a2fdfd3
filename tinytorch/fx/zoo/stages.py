"""What a model of the zoo goes through. Each stage compares with eager PyTorch.

forward    capture_forward, in evaluation mode, on the example and on other values
joint      capture_joint: loss and gradients
sgd adamw  capture_step: parameters and buffers after three steps on changing batches
train eval GraphOptimizer, for training (gradients too) and frozen
compile    torch.compile(backend="tinytorch"): results and gradients
checkpoint at half of the activations: gradients; predicted and measured peak
from_torch our Module on the numpy backend; to_torch: and back again
export aot_eager   PyTorch's own, on the same, for comparison
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import tinytorch
from tinytorch.fx.capture.branches import Branches
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.capture.joint import JointGraph, capture_joint
from tinytorch.fx.capture.real_run import OTHER_WHILE_TRACED
from tinytorch.fx.capture.slots import BUFFER, GRADIENT, LOSS, PARAMETER, CaptureError, Slot
from tinytorch.fx.capture.step import capture_step
from tinytorch.fx.capture.training_step import State, TrainingStep
from tinytorch.fx.convert.exchange import tensor_from_torch, tensor_to_torch
from tinytorch.fx.convert.from_torch import from_torch
from tinytorch.fx.convert.to_torch import to_torch
from tinytorch.fx.models import call, squares_loss, squares_of, tensors_of
from tinytorch.fx.optimize.optimizer import GraphOptimizer
from tinytorch.fx.optimize.verify import larger
from tinytorch.fx.profile.memory_meter import MemoryMeter
from tinytorch.fx.recompute.checkpointing import checkpoint
from tinytorch.fx.zoo.float64 import doubled
from tinytorch.fx.zoo.subject import ELSEWHERE, Subject, gradients, outputs, seed
from tinytorch.fx.zoo.verdict import (
    GOOD,
    NONE,
    VERDICTS,
    WRONG,
    Again,
    Tensors,
    Verdict,
    judge,
    of_error,
)
from tinytorch.graph.trace import trace
from tinytorch.graph.traced import TENSOR

Stage = Callable[[Subject], Verdict]
STEPS = 3
OPTIONS: dict[str, dict[str, Any]] = {"sgd": {"lr": 1e-2, "momentum": 0.9}, "adamw": {"lr": 1e-3}}
GROWN = 8  # times the batch, where at the batch itself nothing can be saved
SAVES = 0.99  # of the peak with everything kept: what is not lower saves nothing
RIGHT_IN_EVALUATION = "right in evaluation mode"
GUARDED = "graphs with guards"  # how many
WHY_GUARDED = "refused without guards"
PEAK_MARGIN = 4096  # bytes: small tensors that autograd holds beside the graph

InMode = Callable[[Subject, bool, Branches[Any] | None], Verdict]  # in training mode, or not
Ask = Callable[[nn.Module, Any], list[Tensor | None]]


def worst(verdicts: list[Verdict]) -> Verdict:
    """The one that counts of several, with the facts of all."""
    found = max(verdicts, key=lambda v: VERDICTS.index(v.verdict))
    found.facts = {k: v for each in [*verdicts, found] for k, v in each.facts.items()}
    return found


def like_eager(
    subject: Subject,
    module: Any,
    ask: Ask,
    batches: Sequence[Any] | None = None,
    make: Callable[[nn.Module], Any] | None = None,
) -> Verdict:
    """Ask a module and the model the same, on each batch in turn; by default two of the subject.

    Args:
        make: makes such a module of the model in float64; with it what seems wrong is tried again.
    """
    found = []
    for batch in subject.batches[:2] if batches is None else batches:
        subject.reset()
        expected = ask(subject.model, batch)
        subject.reset()
        got = ask(module, batch)
        again = None if make is None else Again(
            partial(_wide, subject, make, ask, batch), partial(_elsewhere, subject, module, ask)
        )  # fmt: skip
        found.append(_judged(subject, ask, batch, False, got, expected, again))
    return worst(found)


def _judged(
    subject: Subject,
    ask: Ask,
    batch: Any,
    training: bool,
    found: Tensors,
    expected: Tensors,
    again: Again | None = None,
) -> Verdict:
    """The verdict on what was found, of what `ask` says of the model itself."""
    return judge(found, expected, partial(subject.in_float64, ask, batch, training),
                 partial(subject.nearby, ask, batch, training), again)  # fmt: skip


def _wide(subject: Subject, make: Callable[[nn.Module], Any], ask: Ask, batch: Any) -> Tensors:
    """What `ask` says of the module that is made of the model in float64."""
    assert subject.exact is not None, "asked only where eager has been judged by it"
    subject.reset(subject.exact)
    return ask(make(subject.exact), doubled(batch))


def _elsewhere(
    subject: Subject, module: Any, ask: Ask
) -> Iterator[tuple[Tensors, Tensors, Tensors | None]]:
    """What `ask` says of the module, the model, and the model in float64, on other batches."""
    used = len(subject.batches)
    for number in range(used, used + ELSEWHERE):
        batch = subject.like(subject.inputs, number)
        subject.reset()
        expected = ask(subject.model, batch)
        subject.reset()
        found = ask(module, batch)
        yield found, expected, subject.in_float64(ask, batch, False)


def or_guarded(run: Callable[[Branches[Any] | None], Verdict]) -> Verdict:
    """A stage as it is; where that is refused, with guards on the values that Python asks for.

    Args:
        run: the stage; with branches it takes its graphs from there.
    """
    try:
        return run(None)
    except CaptureError as refused:
        branches: Branches[Any] = Branches()
        try:
            found = run(branches)
        except CaptureError:
            raise refused from None
        reason = of_error(refused).detail
        found.facts |= {GUARDED: len(branches.graphs), WHY_GUARDED: reason[:200]}
        return found


def forward(subject: Subject) -> Verdict:
    """`capture_forward`."""

    def run(branches: Branches[Any] | None) -> Verdict:
        model = subject.model.eval()

        def captured(batch: Any) -> Any:
            return capture_forward(
                model, batch, constants=subject.constants, guarded=branches is not None
            )

        if branches is None:
            return like_eager(subject, captured(subject.inputs), outputs)

        def ask(given: Any, batch: Any) -> list[Tensor | None]:
            if given is not branches:
                return outputs(given, batch)
            seed()
            return branches.run(
                lambda graph: [x.clone() for x in tensors_of(call(graph, batch))],
                lambda: captured(batch),
            )

        return like_eager(subject, branches, ask)

    return or_guarded(run)


def _no_gradients(subject: Subject) -> Verdict | None:
    subject.reset()
    if subject.model.training or squares_loss(subject.model, subject.inputs).requires_grad:
        return None
    return Verdict(NONE, "no output depends on a parameter")


def _has_gradients(subject: Subject) -> bool:
    """Whether eager has gradients in evaluation mode."""
    return _no_gradients(subject) is None and not subject.why_no_gradients


def joint(subject: Subject) -> Verdict:
    """`capture_joint`, in training mode."""
    return _no_gradients(subject) or _in_training(subject, _joint)


def _in_training(subject: Subject, run: InMode) -> Verdict:
    """In training mode, where that can be compared. Of a refusal it is said whether evaluation mode
    is right."""
    if subject.why_not_training:
        if subject.why_no_gradients:
            return Verdict(NONE, f"{subject.why_not_training}; {subject.why_no_gradients}")
        found = or_guarded(lambda branches: run(subject, False, branches))
        found.facts["in evaluation mode"] = subject.why_not_training[:200]
        return found
    try:
        return or_guarded(lambda branches: run(subject, True, branches))
    except CaptureError as error:
        found = of_error(error)
        with suppress(CaptureError):
            found.facts[RIGHT_IN_EVALUATION] = run(subject, False, None).verdict in GOOD
        return found


def _joint(subject: Subject, training: bool, branches: Branches[Any] | None) -> Verdict:
    model = subject.model

    def captured(batch: Any) -> JointGraph:
        subject.reset()
        guarded = branches is not None
        return capture_joint(model.train(training), batch, squares_loss,
                             constants=subject.constants, guarded=guarded)  # fmt: skip

    whole = captured(subject.inputs) if branches is None else None
    names = [name for name, _ in model.named_parameters()]

    def results(graph: JointGraph, batch: Any) -> list[Tensor | None]:
        with torch.no_grad():
            found = graph.module(*graph.flat_inputs(model, batch))
        known = dict(zip(graph.outputs, found, strict=True))
        loss = next(v for s, v in known.items() if s.role == LOSS)
        return [loss, *(known.get(Slot(GRADIENT, name)) for name in names)]

    def ask(batch: Any) -> list[Tensor | None]:
        seed()
        if branches is None:
            assert whole is not None
            return results(whole, batch)
        return branches.run(lambda graph: results(graph, batch), lambda: captured(batch))

    found = []
    for batch in subject.batches[:2]:
        subject.reset()
        expected = gradients(subject.model.train(training), batch)
        subject.reset()
        found.append(_judged(subject, gradients, batch, training, ask(batch), expected))
    return worst(found)


def _step(name: str) -> Stage:
    def stage(subject: Subject) -> Verdict:
        return _no_gradients(subject) or _in_training(
            subject, lambda s, training, branches: _steps(s, name, training, branches)
        )

    stage.__doc__ = f"`capture_step` with {name}."
    return stage


def _steps(subject: Subject, name: str, training: bool, branches: Branches[Any] | None) -> Verdict:
    def captured(batch: Any, state: State | None = None) -> TrainingStep:
        subject.reset()
        if branches is not None and state is not None:  # values may depend on it
            branches.graphs[0].write_back(state, subject.model)
        return capture_step(subject.model.train(training), batch, name, loss=squares_loss,
                            constants=subject.constants, guarded=branches is not None,
                            **OPTIONS[name])  # fmt: skip

    seed()
    step = captured(subject.inputs)
    if branches is not None:
        branches.graphs.append(step)
    subject.reset()
    state = step.state_of(subject.model.train(training))
    seed()
    for batch in subject.batches:
        if branches is None:
            _, state = step.run(state, batch)
        else:
            now = partial(TrainingStep.run, state=state, batch=batch)
            _, state = branches.run(now, partial(captured, batch, state))
    found = [*state[PARAMETER].values(), *state[BUFFER].values()]
    subject.reset()
    expected = _eager_steps(subject.model.train(training), subject.batches, name)
    ask = partial(_eager_steps, name=name)
    return _judged(subject, ask, subject.batches, training, found, expected)


def _eager_steps(model: nn.Module, batches: Any, name: str) -> list[Tensor | None]:
    kind: Any = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[name]
    optimizer = kind(model.parameters(), fused=True, **OPTIONS[name])
    seed()
    for batch in batches:
        optimizer.zero_grad()
        squares_loss(model, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.zero_grad()
    return [x.detach().clone() for x in (*dict(model.named_parameters()).values(),
                                         *dict(model.named_buffers()).values())]  # fmt: skip


def _optimizer(frozen: bool) -> Stage:
    def stage(subject: Subject) -> Verdict:
        if not frozen and subject.why_not_training:
            return Verdict(NONE, subject.why_not_training)  # and one of the two graphs trains
        subject.reset()
        optimizer = GraphOptimizer(
            subject.model, subject.inputs, device="cpu", frozen=frozen, keep_slower=True
        )
        module = optimizer.optimize()
        report = optimizer.report()
        module.eval()
        found = like_eager(subject, module, outputs)
        if not frozen and found.verdict in GOOD and _has_gradients(subject):
            parameters = subject.model
            found = worst([found, _module_gradients(subject, module, parameters)])
        taken_back = [*(f"{r.name}: {r.error}" for r in report.failures), *report.undone]
        found.facts |= {"calls": dict(report.calls)}
        if taken_back:
            found.facts["taken back"] = [line[:200] for line in taken_back]
        return found

    stage.__doc__ = "`GraphOptimizer`, " + ("frozen." if frozen else "for training.")
    return stage


def _module_gradients(
    subject: Subject, module: Any, model: nn.Module, make: Callable[[nn.Module], Any] | None = None
) -> Verdict:
    """Gradients through a module that shares the model's parameters.

    Args:
        make: makes one of the model in float64, with its parameters in their order.
    """

    def ask(given: Any, batch: Any) -> list[Tensor | None]:
        if isinstance(given, nn.Module) and given is not module:
            return gradients(given, batch)
        model.zero_grad()
        seed()
        loss = squares_of(call(module, batch))
        loss.backward()  # type: ignore[no-untyped-call]
        found = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        return [loss.detach(), *found]

    return like_eager(subject, module, ask, make=make)


def _counts(backend: str) -> dict[str, Any]:
    """How many calls our backend has compiled, and how many it left to PyTorch."""
    if backend != "tinytorch":
        return {}
    from tinytorch.fx.dynamo import last_report

    graphs = last_report().graphs
    return {"compiled": sum(g.compiled for g in graphs),
            "left": sum(n for g in graphs for n, _ in g.fallbacks.values())}  # fmt: skip


def _compiled(backend: str) -> Stage:
    def stage(subject: Subject) -> Verdict:
        subject.reset()
        torch._dynamo.reset()
        module: Any = torch.compile(subject.model, backend=backend)
        facts: dict[str, Any] = {}

        def in_float64(model: nn.Module) -> Any:
            facts.update(_counts(backend))  # of the module, before another is compiled
            return torch.compile(model, backend=backend)

        found = like_eager(subject, module, outputs, make=in_float64)
        if found.verdict == WRONG and _is_as_captured(subject, module):
            return Verdict(NONE, f"{OTHER_WHILE_TRACED}, whatever compiles it")
        if found.verdict in GOOD and _has_gradients(subject):
            found = worst([found, _module_gradients(subject, module, subject.model, in_float64)])
        found.facts |= facts or _counts(backend)
        torch._dynamo.reset()
        return found

    stage.__doc__ = f"`torch.compile(backend={backend!r})`."
    return stage


def _is_as_captured(subject: Subject, module: Any) -> bool:
    """Whether a compiled module gives what the graphs give that PyTorch captures of the model."""
    batches = subject.batches[:2]

    def results(of: Any) -> list[Tensors]:
        found = list[Tensors]()
        for batch in batches:
            subject.reset()
            found.append(outputs(of, batch))
        return found

    found = results(module)
    torch._dynamo.reset()
    captured = results(torch.compile(subject.model, backend="eager"))
    return all(
        _judged(subject, outputs, *each).verdict in GOOD
        for each in zip(batches, [False] * len(batches), found, captured, strict=True)
    )


def checkpointed(subject: Subject) -> Verdict:
    """`checkpoint` half-way between everything kept and the lowest peak there is.

    Of the ways of choosing what to compute again only the quickest takes part: what is examined are
    the results, and whether the peak is the predicted one.
    """
    if (nothing := _no_gradients(subject)) is not None:
        return nothing
    subject.reset()
    model = subject.model
    made_for = partial(checkpoint, model, select=squares_of, strategies=("mutwo",))
    for batch in (subject.inputs, *_grown(subject)):
        frontier = made_for(batch, 1.0).compiled(batch).frontier
        whole, lowest = frontier.everything.peak, frontier.plans[0].peak
        if lowest <= SAVES * whole:
            break
    else:
        return Verdict(NONE, "nothing to save: weights and their gradients take more than all else",
                       facts={"everything": whole, "lowest": lowest})  # fmt: skip
    made = made_for(batch, (whole + lowest) // 2)
    plan = made.compiled(batch).plan

    def ask(given: Any, batch: Any) -> list[Tensor | None]:
        if given is not made:
            return gradients(given, batch)
        model.zero_grad()
        seed()
        loss = made(**batch)
        loss.backward()
        found = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        return [loss.detach(), *found]

    found = like_eager(subject, made, ask, [batch, subject.like(batch, 1)])
    subject.reset()
    with MemoryMeter([list(model.parameters()), list(model.buffers()), batch]) as meter:
        made(**batch).backward()
    subject.reset()
    found.facts |= {"predicted": plan.peak, "measured": meter.peak, "everything": whole,
                    "lowest": lowest}  # fmt: skip
    if found.verdict in GOOD and meter.peak > 1.01 * plan.peak + PEAK_MARGIN:
        return Verdict(WRONG, f"takes {meter.peak} bytes, and {plan.peak} were predicted",
                       found.facts)  # fmt: skip
    return found


def _grown(subject: Subject) -> Iterator[Any]:
    """A batch that is GROWN times as large, if the model takes it: there activations weigh more."""
    batch = subject.inputs
    for _ in range(GROWN.bit_length() - 1):
        batch = larger(batch, (0,))
    with suppress(Exception):  # a model may insist on a size
        outputs(subject.model, batch)
        yield batch


def from_torch_(subject: Subject) -> Verdict:
    """`from_torch`: on our numpy backend."""
    subject.reset()
    with tinytorch.using_backend("numpy"):
        module = from_torch(subject.model, subject.inputs)
        return like_eager(subject, module, _ask_ours(lambda *x: module(*x)))


def to_torch_(subject: Subject) -> Verdict:
    """`to_torch` of what `from_torch` made."""
    subject.reset()
    module = from_torch(subject.model, subject.inputs)
    examples = [tensor_from_torch(x) for x in tensors_of(subject.inputs)]
    with tinytorch.no_grad():
        traced = trace(module, *examples)
    back: Any = to_torch(traced)
    count = sum(leaf is TENSOR for leaf in traced.signature.out_leaves)  # and then written state

    def ask(given: Any, batch: Any) -> list[Tensor | None]:
        if given is not back:
            return outputs(given, batch)
        with torch.no_grad():
            return [x.clone() for x in tensors_of(back(*tensors_of(batch)))[:count]]

    return like_eager(subject, back, ask)


def _ask_ours(module: Callable[..., Any]) -> Ask:
    def ask(given: Any, batch: Any) -> list[Tensor | None]:
        if isinstance(given, nn.Module):
            return outputs(given, batch)
        with tinytorch.no_grad():
            results = module(*(tensor_from_torch(x) for x in tensors_of(batch)))
        return [tensor_to_torch(x).clone() for x in results if isinstance(x, tinytorch.Tensor)]

    return ask


def export(subject: Subject) -> Verdict:
    """PyTorch's own `torch.export`, to compare with `forward`."""
    subject.reset()
    made = torch.export.export(subject.model, (), subject.inputs)
    return like_eager(subject, made.module(), outputs)


STAGES: dict[str, Stage] = {
    "forward": forward, "joint": joint, "sgd": _step("sgd"), "adamw": _step("adamw"),
    "train": _optimizer(False), "eval": _optimizer(True), "compile": _compiled("tinytorch"),
    "checkpoint": checkpointed, "from_torch": from_torch_, "to_torch": to_torch_,
    "export": export, "aot_eager": _compiled("aot_eager"),
}  # fmt: skip
PEERS = ("export", "aot_eager")
