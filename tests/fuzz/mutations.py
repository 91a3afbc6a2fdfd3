"""Changes of the world between the calls of a random program, which compiled code has to notice."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from tests.fuzz.world import runs

if TYPE_CHECKING:
    from tests.fuzz.programs import Program

TRIES = 3  # changes that are tried before a call
UNRELATED = 0.2  # of changes to what the program does not mention

OF_LAYERS = (
    "{layer}.eval()", "{layer}.train()", "net.eval()", "{layer}.requires_grad_(False)",
    "{layer}.requires_grad_(True)", "{layer} = {expression}", "{layer} = nn.Tanh()",
    "handles.append({layer}.register_forward_hook(doubled))", "handles.pop().remove()",
    "handles.append({layer}.register_forward_pre_hook(shifted))", "{layer}[0] = nn.Identity()",
    "{layer}[1] = nn.Tanh()", "{layer}.weight = nn.Parameter({layer}.weight.detach() * 0.5)",
    "{layer}.bias = None", "{layer}.p = 0.9", "{layer}.eps = 0.1",
    "{layer}.weight.requires_grad_(False)", "{layer}.weight.grad = None",
    "{layer}.load_state_dict({layer}.state_dict())",
)  # fmt: skip
OF_PARAMETERS = (
    "{p}.requires_grad_(False)", "{p}.requires_grad_(True)", "{p}.data = {p}.data * 0.5",
    "{p}.detach().mul_(0.5)", "{p}.grad = None", "{p}.grad = tinytorch.ones_like({p}.detach())",
)  # fmt: skip
OF_BUFFERS = (
    "{s}.detach().mul_(-0.5)", "{s} = {s}.detach() * 2.0", "{s}.data = {s}.detach().clone()",
    "{s}.requires_grad_(True)", "{s} = {s}.detach().T.contiguous().T",
)  # fmt: skip
OF_OPTIMIZERS = (
    "optimizer.param_groups[0]['lr'] = 0.03", "optimizer.param_groups[0]['weight_decay'] = 0.1",
    "optimizer.param_groups[0]['momentum'] = 0.5", "optimizer.param_groups[0]['maximize'] = True",
    "optimizer.state.clear()", "optimizer.zero_grad()", "optimizer = {optimizer}",
    "optimizer.load_state_dict(optimizer.state_dict())",
    "optimizer = optim.SGD(parameters, lr=0.02, momentum=0.5)",
)  # fmt: skip
OF_PYTHON = (
    "options['scale'] = 0.5", "options['shift'] = 2", "options['other'] = 1.0",
    "options = {{'scale': 3.0, 'shift': 1.0}}", "numbers[0] = -1.0", "numbers[0] = 0.0",
    "numbers.append(3.0)", "config.scale = 2.0", "config.flag = False",
    "def helper(x): return x - 3.0", "helper = tinytorch.tanh",
)  # fmt: skip
OF_MODES = ("world.grad = False", "world.grad = True")


def add_mutations(program: Program, random: Random) -> None:
    """Change the world before some calls of a program, so that eager mode still runs it."""
    candidates = list(_candidates(program))
    program.mutations = [[] for _ in program.arguments[1:]]
    for changes in program.mutations:
        for _ in range(random.randint(0, TRIES)):
            subject, text = random.choice(candidates)
            if subject not in program.source and random.random() > UNRELATED:
                continue
            changes.append(text)
            if not runs(program):
                changes.pop()


def _candidates(program: Program) -> Iterator[tuple[str, str]]:
    """What a change is about, and the change."""
    for name, expression in program.layers.items():
        layer = f"net.{name}"
        for text in OF_LAYERS:
            yield layer, text.format(layer=layer, expression=expression)
    for name in program.state:
        texts = OF_PARAMETERS if name.startswith("p") else OF_BUFFERS
        for text in texts:
            yield name, text.format(p=name, s=name)
    if program.optimizer:
        for text in OF_OPTIMIZERS:
            yield "optimizer", text.format(optimizer=program.optimizer)
    for text in OF_PYTHON:
        change = text.format()
        yield change.removeprefix("def ").replace("[", " ").replace(".", " ").split()[0], change
    for text in OF_MODES:
        yield "", text
