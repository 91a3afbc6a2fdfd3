"""Native code computes what the backend does: every op, whole training steps, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from random import Random
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.graph.compiler.test_training import Run
from tests.graph.test_training_steps import MODELS, OPTIMIZERS
from tinytorch import nn
from tinytorch.dtypes import int8, int16, int32
from tinytorch.graph import PassManager, trace
from tinytorch.graph.compiler import native
from tinytorch.graph.compiler.native import ops as native_ops
from tinytorch.graph.compiler.native.code import Unsupported
from tinytorch.graph.compiler.schedule import Schedule, schedule_traced
from tinytorch.op import OPS, Op
from tinytorch.state import using_backend
from tinytorch.tensor import Tensor
from tinytorch.testing import conformance
from tinytorch.testing.op_samples import Sample, draw_sample

# what is neither an element of a loop nor written as a whole: the compiler refuses it, and says so
LACKING = {
    name
    for name, op in OPS.items()
    if op.decomposition is None
    and op.kind not in ("elementwise", "reduction", "creation")
    and not (op.view or name in ("cast", "copy") or native_ops.knows(name))
}
OF_LACKING = {"partial_argsort"}  # a part of what argsort gives
ON_BITS = {"bitwise_and", "bitwise_or", "bitwise_xor"}  # of integers: other tests run them
ON_BYTES = {"quantized_linear"}  # of few rows only: see test_quantized.py


@pytest.fixture(autouse=True)
def _optimized():
    with using_backend("optimized"):
        yield


def schedule_of(function: Any, *examples: Tensor, passes: tuple[str, ...] = ()) -> Schedule:
    traced = trace(function, *examples, decompose=None, keep_grads=False)
    graph, report = PassManager(passes, trials=0).run(traced.graph)
    assert not report.failures, report
    return schedule_traced(traced.with_graph(graph), **native.ABILITIES)


def run(schedule: Schedule, *values: Any) -> list[np.ndarray]:
    return native.build(schedule)(values)


# -- ops -------------------------------------------------------------------------------------------


class AllOps:
    """A sample of each op, applied one after the other in one function."""

    def __init__(self, calls: list[tuple[Op, Sample]]) -> None:
        self.calls = calls

    def tensors(self) -> list[Tensor]:
        return [t for _, s in self.calls for t in s.tensors() if isinstance(t, Tensor)]

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        given = iter(tensors)
        return [
            tinytorch.apply(
                op,
                *[next(given) if isinstance(x, np.ndarray) else x for x in sample.inputs],
                **sample.params,
            )
            for op, sample in self.calls
        ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "seed"),
    [
        ("float32", 0),
        pytest.param("float32", 1, marks=pytest.mark.exhaustive),
        pytest.param("float64", 0, marks=pytest.mark.exhaustive),
    ],
)
def test_ops_conform(dtype: str, seed: int):
    assert_ops_conform(dtype, seed)


def assert_ops_conform(dtype: str, seed: int) -> None:
    """Native code of a sample of every op gives what the definition says."""
    calls = [
        (op, draw_sample(name, Random(f"{seed}{name}"), style="edges", dtype=dtype))
        for name, op in OPS.items()
        if name not in LACKING | OF_LACKING | ON_BITS | ON_BYTES
    ]
    for op, sample in calls:
        if op.name == "cast" and sample.params["dtype"] in (int8, int16):
            sample.params["dtype"] = int32  # native code has no smaller integers, and says so
    function = AllOps(calls)
    tensors = function.tensors()
    schedule = schedule_of(function, *tensors)
    assert native.unsupported(schedule) == []
    results = run(schedule, *[np.array(t.numpy(), order="C") for t in tensors])
    for (op, sample), result in zip(calls, results, strict=True):
        expected = conformance.run("numpy", op, sample.tensors(), sample.params)
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype), op.name
        if result.dtype.kind == "f" and op.kind not in ("movement", "creation"):
            conformance.assert_close(op, sample, result)
        else:
            np.testing.assert_array_equal(result, expected, op.name)


@pytest.mark.parametrize("name", sorted(LACKING))
def test_what_it_lacks_it_says(name: str):
    sample = draw_sample(name, Random(0), style="finite", dtype="float32")
    function = AllOps([(OPS[name], sample)])
    schedule = schedule_of(function, *function.tensors())
    ((node, reason),) = native.unsupported(schedule)
    assert node.target is OPS[name] and name in reason
    with pytest.raises(Unsupported, match=name):
        native.build(schedule)


def test_other_dtypes_are_refused_with_a_reason():
    half = tinytorch.ones(3, dtype="float16")
    ((_, reason),) = native.unsupported(schedule_of(lambda x: x.float(), half))
    assert "float16" in reason
    ints = tinytorch.tensor([1, 2])
    ((_, reason),) = native.unsupported(schedule_of(lambda x: x // 2, ints))
    assert "floor_divide" in reason and "integers" in reason


# -- what is written -------------------------------------------------------------------------------


def test_operands_are_read_where_they_stand(rng):
    w = tinytorch.tensor(rng.standard_normal((5, 3)).astype(np.float32))
    x = tinytorch.tensor(rng.standard_normal((4, 3)).astype(np.float32))
    schedule = schedule_of(lambda x, w: x @ w.mT, x, w)
    program = native.build(schedule)
    assert program.source.count("gemm_f32(4, 5, 3, x, 12, 4, w, 4, 12,") == 1  # no copy of w.mT
    np.testing.assert_allclose(program([x.numpy(), w.numpy()])[0], x.numpy() @ w.numpy().T, 1e-5)


def test_bias_and_relu_are_part_of_the_product(rng):
    layer = nn.Linear(3, 5)
    x = tinytorch.tensor(rng.standard_normal((4, 3)).astype(np.float32))
    schedule = schedule_of(lambda x: layer(x).relu(), x, passes=native.PASSES)
    program = native.build(schedule)
    assert "loop" not in program.source and program.source.count("gemm_f32(") == 1
    expected = layer(x).relu().detach().numpy()
    result = program(
        [x.numpy(), *(p.numpy() for p in (layer.weight.detach(), layer.bias.detach()))]
    )
    np.testing.assert_allclose(result[0], expected, 1e-5, 1e-6)


def test_gradient_descent_accumulates_into_the_weight(rng):
    layer = nn.Linear(6, 5, bias=False)
    optimizer = tinytorch.optim.SGD(layer.parameters(), lr=0.5)

    def step(x: Tensor) -> Tensor:
        out = layer(x)
        loss = (out * out).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x = tinytorch.tensor(rng.standard_normal((4, 6)).astype(np.float32))
    source = native.build(schedule_of(step, x, passes=("cse", "dce", *native.PASSES))).source
    # the product starts from the weight and is stored into it
    last = [line for line in source.splitlines() if "gemm_f32(5, 6, 4" in line][-1]
    assert last.count("layer_weight") == 2


def test_adam_is_one_loop_for_all_three_updates(rng):
    p = nn.Parameter(tinytorch.tensor(rng.standard_normal(7).astype(np.float32)))
    optimizer = tinytorch.optim.Adam([p], lr=0.1)

    def step(x: Tensor) -> Tensor:
        loss = (p * x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x = tinytorch.ones(7)
    step(x)
    source = native.build(schedule_of(step, x, passes=("cse", "dce", *native.PASSES))).source
    updates = [line for line in source.splitlines() if line.lstrip().startswith("loop_")]
    (all_three,) = [line for line in updates if "optimizer_exp_avg_p" in line]
    assert "optimizer_exp_avg_sq_p" in all_three and ", p, " in all_three
    # what follows from the number of the step comes before the forward, in loops over one element
    assert [u for u in updates if u.lstrip().partition("(")[2].startswith("n1, ")] == updates[:-2]


def test_values_that_only_a_loop_uses_are_not_stored():
    def function(x: Tensor) -> Tensor:
        return ((x * 2.0).exp() + 1.0).sqrt()

    source = native.build(schedule_of(function, tinytorch.ones(5))).source
    stores = [line for line in source.splitlines() if line.lstrip().startswith("a")]
    assert sum("] = " in line for line in stores) == 1


def test_pooling_comes_before_relu(rng):
    x = tinytorch.tensor(rng.standard_normal((2, 3, 6, 6)).astype(np.float32), requires_grad=True)

    def step(x: Tensor) -> Any:
        out = nn.functional.max_pool2d(x.relu(), 2)
        return out, tinytorch.autograd.grad((out * out).sum(), [x])[0]

    traced = trace(step, x, decompose=None)
    graph, report = PassManager(["pool-before-relu"], trials=3).run(traced.graph)
    assert not report.failures and "relu(%max_pool2d" in str(graph).replace("_1", "")
    assert "%max_pool2d_backward" in str(graph).splitlines()[-1]


def test_many_powers_in_one_loop(rng):
    # written with the table's branches, LLVM does not come to an end here
    def function(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
        return x + (a**b) ** a + (b**a) ** b + a ** (a - 1.0) + b ** (b - 1.0)

    a, b = tinytorch.tensor(0.5), tinytorch.tensor(1.5)
    x = tinytorch.tensor(rng.standard_normal(5).astype(np.float32))
    schedule = schedule_of(function, a, b, x, passes=("native-fusion",))
    result = run(schedule, a.numpy(), b.numpy(), x.numpy())
    np.testing.assert_allclose(result[0], function(a, b, x).numpy(), 1e-5)


def test_gradients_of_slices_are_put_together(rng):
    x = tinytorch.tensor(rng.standard_normal((3, 4, 5)).astype(np.float32), requires_grad=True)

    def step(x: Tensor) -> Any:
        a, b, c = x.unbind(0)
        left, right = x[:, :1], x[:, 1:]
        gap = x[:, :, 1:]  # leaves a column of zeros
        total = (a * b * c).sum() + (left * 2.0).sum() + (right * right).sum() + gap.exp().sum()
        return tinytorch.autograd.grad(total, [x])[0]

    traced = trace(step, x, decompose=None)
    graph, report = PassManager(["slices-together", "dce"], trials=3).run(traced.graph)
    assert not report.failures
    text = str(graph)
    assert "= unslice(" in text  # with anything else in the sum, it stays
    pairs = trace(
        lambda x: tinytorch.autograd.grad((x[:, :1] * x[:, 1:3] * x[:, 3:]).sum(), [x])[0],
        x, decompose=None,
    )  # fmt: skip
    graph, report = PassManager(["slices-together", "dce"], trials=3).run(pairs.graph)
    assert not report.failures
    assert "= cat(" in str(graph) and "= unslice(" not in str(graph)


def test_labels_out_of_range_are_an_error_and_change_nothing(rng):
    model = nn.Linear(3, 4)
    optimizer = tinytorch.optim.SGD(model.parameters(), lr=0.5)

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x = tinytorch.tensor(rng.standard_normal((2, 3)).astype(np.float32))
    compiled = tinytorch.compile(step, mode="native", keep_grads=False)
    compiled(x, tinytorch.tensor([0, 3]))
    before = model.weight.detach().numpy().copy()
    with pytest.raises(IndexError, match=r"y has the index 4 .*not in 0 \.\. 3"):
        compiled(x, tinytorch.tensor([0, 4]))
    np.testing.assert_array_equal(model.weight.detach().numpy(), before)


# -- whole training steps --------------------------------------------------------------------------


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(("model", "optimizer"), [("mlp", "adamw"), ("lenet", "sgd")])
@pytest.mark.parametrize("keep_grads", [True, False])
def test_training_steps_equal_eager(model: str, optimizer: str, keep_grads: bool):
    assert_same_training(model, optimizer, steps=6, keep_grads=keep_grads)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_hundred_training_steps_equal_eager(model: str, optimizer: str):
    assert_same_training(model, optimizer, steps=100, keep_grads=False)


# Batch norm takes the mean away, so the bias before it has the gradient 0, but for rounding; and
# Adam makes steps of full size out of rounding.
DRIFTING = {
    "mlp": ("model.0.bias", "model.1.running_mean", "optimizer.1."),
    "lenet": ("model.3.bias", "model.4.running_mean", "optimizer.3."),
}


def assert_same_training(model: str, optimizer: str, steps: int, keep_grads: bool) -> None:
    """Dropout, batch norm and a schedule included; with parameters, statistics and moments."""
    eager = Run(model, optimizer, steps, None)
    expected = eager.state()
    ours = Run(model, optimizer, steps, {"mode": "native", "keep_grads": keep_grads})
    assert ours.step.traces[-1].code.mode == "native"
    np.testing.assert_allclose(ours.losses, eager.losses, 1e-4)
    for name, value in ours.state().items():
        drifts = optimizer not in ("sgd", "momentum") and name.startswith(DRIFTING[model])
        if not drifts and (keep_grads or not name.startswith("grad.")):
            np.testing.assert_allclose(value, expected[name], 2e-3, 2e-5, err_msg=name)


class Attention(nn.Module):
    """A small GPT: embeddings, causal attention, gelu, layer norm, dropout."""

    def __init__(self, width: int = 16, heads: int = 2, length: int = 8, words: int = 11) -> None:
        super().__init__()
        self.heads = heads
        self.word, self.position = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head, self.dropout = nn.Linear(width, words), nn.Dropout(0.1)
        self.mask = tinytorch.tensor(np.tril(np.ones((length, length), bool)))
        self.positions = tinytorch.arange(length)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.word(tokens) + self.position(self.positions)
        n, length, width = x.shape
        parts = self.qkv(self.norm(x)).reshape(n, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = tinytorch.where(self.mask, (q @ k.mT) * 0.25, -1e9)
        mixed = (nn.functional.softmax(scores, dim=-1) @ v).transpose(1, 2)
        x = x + self.dropout(self.out(mixed.reshape(n, length, width)))
        x = x + self.narrow(nn.functional.gelu(self.wide(x)))
        return self.head(self.last(x))


def test_a_gpt_trains_as_in_eager():
    def train(compiled: bool) -> tuple[list[float], list[np.ndarray]]:
        tinytorch.manual_seed(3)
        rng = np.random.default_rng(4)
        model = Attention()
        optimizer = tinytorch.optim.AdamW(model.parameters(), lr=1e-3)

        def step(tokens: Tensor, following: Tensor) -> Tensor:
            logits = model(tokens)
            loss = nn.functional.cross_entropy(logits.reshape(-1, 11), following.reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run = tinytorch.compile(step, mode="native", keep_grads=False) if compiled else step
        losses = []
        for _ in range(4):
            tokens, following = (tinytorch.tensor(rng.integers(0, 11, (3, 8))) for _ in range(2))
            losses.append(run(tokens, following).item())
        return losses, [p.detach().numpy() for p in model.parameters()]

    eager, ours = train(compiled=False), train(compiled=True)
    np.testing.assert_allclose(ours[0], eager[0], 1e-5)
    for a, b in zip(ours[1], eager[1], strict=True):
        np.testing.assert_allclose(a, b, 1e-3, 1e-4)


# -- processes and threads -------------------------------------------------------------------------

SCRIPT = """
import numpy as np, tinytorch
from tinytorch import nn
from tinytorch.jit.cache import cache_info

tinytorch.set_backend("optimized")
tinytorch.set_num_threads(1)
model = nn.Linear(3, 2)
optimizer = tinytorch.optim.SGD(model.parameters(), lr=0.5)

@tinytorch.compile(mode="native", keep_grads=False)
def step(x):
    loss = (model(x).relu() * 2.0).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss

with tinytorch.no_grad():
    model.weight.copy_(tinytorch.ones(2, 3))
    model.bias.copy_(tinytorch.zeros(2))
print([step(tinytorch.ones(4, 3)).item() for _ in range(2)], cache_info().compiled)
"""


@pytest.mark.slow
def test_a_fresh_process_takes_everything_from_the_cache(tmp_path):
    # code that is loaded before the symbols it calls would end the process with a signal
    (tmp_path / "script.py").write_text(SCRIPT)
    env = {**os.environ, "TINYTORCH_CACHE_DIR": str(tmp_path / "cache")}
    printed = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "script.py"], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.rsplit("]", 1))
    assert printed[0][0] == printed[1][0]
    assert int(printed[0][1]) > 0 and int(printed[1][1]) == 0


@pytest.mark.slow
def test_plain_python_runs_the_generated_code_without_the_jit(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    results = []
    for disabled in ("0", "1"):
        env = {**os.environ, "NUMBA_DISABLE_JIT": disabled}
        done = subprocess.run(
            [sys.executable, "script.py"], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        results.append(done.stdout.split("]")[0])
    assert results[0] == results[1]


def test_threads_may_call_at_once(rng):
    w = tinytorch.tensor(rng.standard_normal((64, 64)).astype(np.float32))
    compiled = tinytorch.compile(
        lambda x: ((x @ w).relu() @ w).exp().sum(), backend="optimized", mode="native"
    )
    inputs = [tinytorch.tensor(rng.standard_normal((64, 64)).astype(np.float32)) for _ in range(4)]
    expected = [compiled(x).item() for x in inputs]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(50):
            if compiled(inputs[i]).item() != expected[i]:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_indices_of_any_layout_are_checked_and_read(rng):
    x = tinytorch.tensor(rng.standard_normal((5, 3)).astype(np.float32))
    index = tinytorch.tensor([[0, 4], [1, 3], [2, 2]])
    schedule = schedule_of(lambda x, i: tinytorch.apply(OPS["take"], x, i.mT), x, index)
    program = native.build(schedule)
    values = [x.numpy(), index.numpy()]
    np.testing.assert_array_equal(program(values)[0], x.numpy()[index.numpy().T])
    with pytest.raises(IndexError, match=r"not in 0 \.\. 4"):
        program([x.numpy(), np.array([[0, 4], [1, 3], [2, 5]])])
