"""`tinytorch.compile`: how it is called, when it retraces, what it leaves alone."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch import nn, ones, optim
from tinytorch.bench import OpCounter
from tinytorch.errors import BackendError
from tinytorch.graph import GraphError, PassManager, TraceError, trace
from tinytorch.graph.compiler import Compiled
from tinytorch.graph.passes import OptimizationPass
from tinytorch.nn import functional as F
from tinytorch.state import using_backend
from tinytorch.tensor import Tensor

pytestmark = pytest.mark.usefixtures("numpy_backend")


# -- ways to call it -------------------------------------------------------------------------------


def test_function_decorator_and_decorator_with_options():
    @tinytorch.compile
    def double(x: Tensor) -> Tensor:
        """Twice."""
        return x * 2.0

    @tinytorch.compile(mode="python", fast_math=True)
    def triple(x: Tensor) -> Tensor:
        return x * 3.0

    assert isinstance(double, Compiled) and double.__name__ == "double"
    assert double.__doc__ == "Twice."
    assert double(ones(2)).tolist() == [2.0, 2.0]
    assert triple(ones(2)).tolist() == [3.0, 3.0]
    assert repr(double).startswith("<compiled test_function_decorator")


@pytest.mark.parametrize(
    "options",
    [
        {"fullgraph": True, "mode": "max-autotune", "dynamic": None},
        {"mode": "reduce-overhead", "backend": "inductor"},
        {"backend": "aot_eager", "options": None},
        {"mode": None},
    ],
)
def test_it_is_called_as_in_pytorch(options):
    double = tinytorch.compile(lambda x: x * 2.0, **options)
    assert double(ones(2)).tolist() == double(ones(1, 2))[0].tolist() == [2.0, 2.0]
    is_interpreted = options.get("backend") == "aot_eager"
    assert double.options.mode == ("interpret" if is_interpreted else "auto")


def test_disable_gives_the_function_itself():
    def double(x: Tensor) -> Tensor:
        return x * 2.0

    assert tinytorch.compile(double, disable=True) is double
    assert tinytorch.compile(disable=True)(double) is double


def test_fullgraph_raises_where_calls_would_run_op_by_op():
    scale = tinytorch.compile(lambda x, k: x * k, fullgraph=True, cache_size=1)
    with (
        pytest.warns(RuntimeWarning, match="is another in every one"),
        pytest.raises(GraphError, match="fullgraph=True, but this call would run op by op"),
    ):
        for k in range(100):
            scale(ones(2), float(k))


def test_a_method_has_code_for_each_object():
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = tinytorch.tensor(factor)

        @tinytorch.compile(mode="python")
        def apply(self, x: Tensor) -> Tensor:
            return x * self.factor

    a, b = Scale(2.0), Scale(3.0)
    assert (a.apply(ones(1)).item(), b.apply(ones(1)).item()) == (2.0, 3.0)
    a.factor.fill_(5.0)
    assert a.apply(ones(1)).item() == 5.0
    assert a.apply.reasons == ["first call"]
    assert isinstance(Scale.apply, Compiled)


def test_nests_keywords_and_plain_values():
    @tinytorch.compile(mode="python")
    def function(pair: Any, *, scale: float, extra: Any = None) -> dict[str, Any]:
        a, b = pair["a"], pair["b"][0]
        return {"sum": a + b * scale, "same": a, "name": "n", "extra": extra, "many": [a, (b,)]}

    a, b = ones(2), ones(2) * 3.0
    for scale in (2.0, 4.0):
        result = function({"a": a, "b": [b]}, scale=scale)
        assert result["sum"].tolist() == [1.0 + 3.0 * scale] * 2
        assert result["same"] is a and result["many"][0] is a
        assert (result["name"], result["extra"]) == ("n", None)
    assert function.reasons == ["first call", "argument 2 is 4.0, and was 2.0"]


def test_nothing_is_returned_where_nothing_is():
    w = ones(2)

    @tinytorch.compile(mode="python")
    def add(x: Tensor) -> None:
        with tinytorch.no_grad():
            w.add_(x)

    assert add(ones(2)) is None and add(ones(2)) is None
    assert w.tolist() == [3.0, 3.0]


def test_wrong_options():
    with pytest.raises(ValueError, match="there is no mode 'fast'; there are auto, native"):
        tinytorch.compile(lambda x: x, mode="fast")
    with pytest.raises(BackendError, match="there is no backend 'nosuch'"):
        tinytorch.compile(lambda x: x, backend="nosuch")
    with pytest.raises(ValueError, match="maxsize must be at least 1"):
        tinytorch.compile(lambda x: x, cache_size=0)


# -- kinds of calls --------------------------------------------------------------------------------


def test_new_shapes_are_compiled_anew_and_kept_within_bounds():
    double = tinytorch.compile(lambda x: x * 2.0, cache_size=2)
    for n in (1, 2, 1, 3, 2):
        assert double(ones(n)).tolist() == [2.0] * n
    assert len(double.traces) == 2
    assert double.reasons == [
        "first call",
        "argument 0 is float32[2], and was float32[1]",
        "argument 0 is float32[3], and was float32[1]",
        "argument 0 is float32[2], and was float32[3]",
    ]


def test_one_kind_of_call_only():
    double = tinytorch.compile(lambda x: x * 2.0, dynamic=False)
    double(ones(2))
    message = r"dynamic=False allows no other: argument 0 is float32\[3\], and was float32\[2\]"
    with pytest.raises(GraphError, match=message):
        double(ones(3))
    assert double(ones(2)).tolist() == [2.0, 2.0]


def test_values_from_outside_are_watched():
    scale, options = 2.0, {"on": True}

    @tinytorch.compile(mode="python")
    def function(x: Tensor) -> Tensor:
        return x * scale

    assert function(ones(1)).item() == 2.0
    assert function(ones(1)).item() == 2.0
    scale = 3.0
    assert function(ones(1)).item() == 3.0
    assert function.reasons == ["first call", "scale is 3.0, and was 2.0"]
    assert options


def _gradient_of_what_is_put(x: Tensor, index: Tensor) -> Tensor:
    values = x.detach().requires_grad_()
    (tinytorch.zeros(len(index)).scatter(0, index, values) * 2.0).sum().backward()
    assert values.grad is not None
    return values.grad


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
@pytest.mark.parametrize(
    ("function", "size", "change"),
    [
        (lambda x, i: x[i], 3, [-1, -2, 0]),
        (lambda x, i: tinytorch.take(x, i), 3, [-3, 0, 2]),
        (lambda x, i: x.index_put((i,), x + 1.0), 3, [2, -2, 0]),
        (lambda x, i: F.nll_loss(x.reshape(1, 3).expand(3, 3), i), 3, [-100, 1, 2]),
        (lambda x, i: x.masked_scatter(i > 1, x + 5.0), 3, [2, 2, 0]),
        # so many, in ascending order: what is put at places that differ has a simpler gradient
        (_gradient_of_what_is_put, 2**13, [0] * 2**13),
    ],
)
def test_indices_from_outside_may_be_others_later(function: Any, size: int, change: Any, backend):
    """What is true of them while the function is traced need not be true at the next call."""
    index, x = tinytorch.arange(size), tinytorch.arange(1.0, size + 1.0)
    with using_backend(backend):
        compiled = tinytorch.compile(lambda x: function(x, index))
        for _ in range(2):
            np.testing.assert_array_equal(compiled(x).numpy(), function(x, index).numpy())
            index.copy_(tinytorch.tensor(change))
    assert len(compiled.traces) == 1


def test_another_backend_and_another_dtype_of_the_model():
    model = nn.Linear(3, 2)
    compiled = tinytorch.compile(model)
    with tinytorch.no_grad():
        compiled(ones(4, 3))
        with using_backend("naive"):
            compiled(ones(4, 3))
        model.double()
        assert compiled(ones(4, 3).double()).dtype is tinytorch.float64
    assert compiled.compiled.reasons[1] == ("the backend is <NaiveBackend>, and was <NumpyBackend>")
    assert compiled.compiled.reasons[2].startswith("argument 0 is float64[4, 3]")


def test_a_converted_parameter_alone_is_seen():
    w = ones(3)
    scale = tinytorch.compile(lambda x: x * w)
    scale(ones(3)), scale(ones(3))
    w._data, w.meta = w._data.astype(np.float64), w.double().meta
    assert scale(ones(3)).dtype is tinytorch.float64
    assert scale.reasons[1] == "w is float64[3], and was float32[3]"


def test_the_chosen_backend_is_used_wherever_it_is_called():
    model = nn.Linear(2, 2)
    compiled = tinytorch.compile(model, backend="naive")
    for _ in range(3):
        y = compiled(ones(1, 2))
        y.sum().backward()
    assert compiled.compiled.reasons == ["first call"]
    assert "NaiveBackend" in compiled.explain().backend


def test_state_that_is_replaced_is_followed():
    model = nn.Linear(2, 1, bias=False)
    optimizer = optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

    @tinytorch.compile(mode="python")
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(ones(1, 2))
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)  # copies: other tensors from now on
    before = model.weight.detach().numpy().copy()
    velocity = optimizer.state[model.weight]["momentum_buffer"].numpy().copy()
    step(ones(1, 2))
    expected = before - 0.5 * (0.9 * velocity + 1.0)
    np.testing.assert_allclose(model.weight.detach().numpy(), expected, 1e-6)
    array = model.weight._data.copy()
    model.weight._data = array  # other memory from now on
    step(ones(1, 2))
    assert not np.array_equal(array, expected) and model.weight._data is array


def test_what_cannot_be_traced_says_so():
    @tinytorch.compile
    def function(x: Tensor) -> Tensor:
        return x * 2.0 if x.sum() > 0 else x

    with pytest.raises(TraceError, match="bool: a trace knows"):
        function(ones(2))


# -- modes, threads, other compiled functions ------------------------------------------------------


def test_a_profiler_sees_the_ops():
    double = tinytorch.compile(lambda x: x * 2.0)
    double(ones(2)), double(ones(2))
    with OpCounter() as counter:
        double(ones(2))
    assert counter.ops["mul"].calls == 1
    assert double.uncompiled_calls == 1


def test_a_compiled_function_in_a_compiled_function():
    inner = tinytorch.compile(lambda x: x.exp())
    model = tinytorch.compile(nn.Linear(2, 2))
    outer = tinytorch.compile(lambda x: inner(model(x)) + 1.0)
    names = {n.target for n in trace(outer, ones(1, 2)).graph.find_nodes(op="placeholder")}
    assert names == {"x", "model._orig_mod.weight", "model._orig_mod.bias"}
    for _ in range(3):
        got = outer(ones(1, 2))
    expected = model.module(ones(1, 2)).exp() + 1.0
    np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), 1e-6)
    assert outer.reasons == ["first call"]


def test_two_threads_call_one_function():
    w = tinytorch.tensor(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32))
    function = tinytorch.compile(lambda x: ((x @ w).tanh() @ w).exp().sum(1), mode="python")
    inputs = [tinytorch.rand(32, 64) for _ in range(8)]
    expected = [function.function(x).numpy() for x in inputs]
    wrong: list[Any] = []

    def work(offset: int) -> None:
        with using_backend("numpy"):
            for i in range(60):
                k = (i + offset) % len(inputs)
                if not np.array_equal(function(inputs[k]).numpy(), expected[k]):
                    wrong.append(k)

    threads = [threading.Thread(target=work, args=(4 * i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == [] and function.reasons == ["first call"]


# -- passes ----------------------------------------------------------------------------------------


class Broken(OptimizationPass):
    """Takes every exp for a log."""

    name = "broken"

    def analyze(self, graph: Any) -> Any:
        return graph.find_nodes(op="call_function", target=tinytorch.ops.exp)

    def transform(self, graph: Any, found: Any) -> bool:
        for node in found:
            with graph.inserting_before(node):
                new = self.semantics.call(graph, "log", list(node.args), {})
            node.replace_all_uses_with(new)
            graph.erase_node(node)
        return bool(found)


def test_a_broken_pass_is_taken_back():
    function = tinytorch.compile(lambda x: (x + 0.0).exp(), mode="python", passes=[Broken(), "dce"])
    assert function(ones(1)).item() == pytest.approx(np.e)
    failed = [p for p in function.explain().codes[0].passes if p.error]
    assert failed and failed[0].name == "broken"
    trusting = tinytorch.compile(
        lambda x: x.exp(), mode="python", passes=PassManager([Broken()], trials=0)
    )
    assert trusting(ones(1)).item() == 0.0


def test_fast_math_is_asked_for():
    exact = tinytorch.compile(lambda x: x * 2.0 * 3.0, mode="python")
    fast = tinytorch.compile(lambda x: x * 2.0 * 3.0, mode="python", fast_math=True)
    assert exact(ones(1)).item() == fast(ones(1)).item() == 6.0
    steps = [len(f.traces[0].code.schedule.steps) for f in (exact, fast)]
    assert steps == [2, 1]


def test_random_numbers_are_drawn_anew():
    drop = tinytorch.compile(lambda x: F.dropout(x, 0.5), mode="python")
    tinytorch.manual_seed(0)
    got = [drop(ones(50)).numpy() for _ in range(3)]
    tinytorch.manual_seed(0)
    expected = [F.dropout(ones(50), 0.5).numpy() for _ in range(3)]
    assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))
    assert not np.array_equal(got[0], got[1])


def test_the_graph_of_an_uncompiled_view_is_interpreted():
    from tinytorch.op import Op

    op = Op("peek", "a", "movement", tinytorch.ops.copy._shape_rule,
            tinytorch.ops.copy._dtype_rule, lambda *a: 0, view=True)  # fmt: skip

    class Peeking(type(tinytorch.get_backend())):  # type: ignore[misc]
        def peek(self, a: Any) -> Any:
            return a.view()

    function = tinytorch.compile(lambda x: tinytorch.apply(op, x) * 2.0, backend=Peeking())
    assert function(ones(2)).tolist() == [2.0, 2.0]
    explanation = function.explain()
    assert explanation.codes[0].mode == "interpret"
    assert ("the graph is interpreted", explanation.fallbacks[-1][1]) == explanation.fallbacks[-1]
    assert "the layout of the view peek is not known" in explanation.fallbacks[-1][1]
    strict = tinytorch.compile(lambda x: tinytorch.apply(op, x), backend=Peeking(), mode="python")
    with pytest.raises(GraphError, match="the layout of the view peek is not known"):
        strict(ones(2))


def test_native_code_is_refused_with_a_reason():
    function = tinytorch.compile(lambda x: x * 2.0, mode="native")
    with pytest.raises(GraphError, match="calls the kernels of the optimized backend, and this is"):
        function(ones(2))


# -- what differs in every call --------------------------------------------------------------------


def test_the_growing_cache_of_text_generation_is_said_once_and_bounded():
    """Keys and values grow by one row a token: after a few traces the calls run op by op."""
    w = tinytorch.tensor(np.arange(16, dtype=np.float32).reshape(4, 4) / 16.0)

    def attend(x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        keys = tinytorch.cat([keys, x @ w])
        return (x @ keys.T).softmax(-1) @ keys, keys

    compiled = tinytorch.compile(attend)
    for generation in range(2):
        x = keys = expected_keys = ones(1, 4)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(30):
                expected, expected_keys = attend(x, expected_keys)
                x, keys = compiled(x, keys)
                np.testing.assert_allclose(x.numpy(), expected.numpy(), 1e-5)
        texts = [str(each.message) for each in said]
        assert len(texts) == (1 if generation == 0 else 0)
        assert all("argument 1 (keys) is another in every one of 8 traces" in t for t in texts)
    assert len(compiled.reasons) == 9 and len(compiled.traces) == 8
    assert compiled.uncompiled_calls == 21 + 22
    assert "no trace fitted" in str(compiled.explain())


def test_a_number_that_changes_at_every_call_is_said_once():
    compiled = tinytorch.compile(lambda x, scale: x * scale, cache_size=2)
    with pytest.warns(RuntimeWarning, match=r"argument 1 \(scale\) is another in every one of 4"):
        for i in range(20):
            assert compiled(ones(1), float(i)).item() == float(i)
    assert len(compiled.reasons) == 5


def test_two_kinds_in_turn_are_no_change_at_every_call():
    compiled = tinytorch.compile(lambda x, flag: x * 2.0 if flag else x)
    for i in range(40):
        compiled(ones(2), i % 2 == 0)
    assert len(compiled.reasons) == 2 and compiled.uncompiled_calls == 0


# -- what cannot be compiled -----------------------------------------------------------------------


def test_any_error_while_compiling_falls_back_and_is_said_once(monkeypatch):
    from tinytorch.graph.compiler import calls, generate

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise KeyError("an operand")

    monkeypatch.setattr(generate, "PythonProgram", broken)
    monkeypatch.setattr(calls, "JointFunction", broken)
    monkeypatch.setattr(generate, "_said", set())
    model = nn.Linear(3, 2)
    compiled = tinytorch.compile(model)
    with pytest.warns(RuntimeWarning, match="forward and backward could not be made.*KeyError"):
        out = compiled(ones(4, 3))
    out.sum().backward()
    assert out.tolist() == model(ones(4, 3)).tolist() and model.weight.grad is not None
    assert "KeyError: 'an operand'" in str(compiled.explain())
    twice = tinytorch.compile(lambda x: x * 2.0)
    with pytest.warns(RuntimeWarning, match="Python code could not be made"):
        assert twice(ones(2)).tolist() == [2.0, 2.0]
    assert twice(ones(3)).tolist() == [2.0] * 3  # which is not said again
    assert twice.explain().fallbacks[-1] == ("the graph is interpreted", "KeyError: 'an operand'")
    with pytest.raises(KeyError):
        tinytorch.compile(lambda x: x * 2.0, mode="python")(ones(2))


def test_an_error_in_a_pass_falls_back(monkeypatch):
    monkeypatch.setattr(PassManager, "run", lambda self, graph: [][0])
    twice = tinytorch.compile(lambda x: x * 2.0)
    with pytest.warns(RuntimeWarning, match="the optimized graph could not be made.*IndexError"):
        assert twice(ones(2)).tolist() == [2.0, 2.0]
    assert twice.explain().fallbacks[0][0] == "no pass ran"


def test_a_function_without_a_module():
    scope: dict[str, Any] = {}
    exec("def double(x): return x * 2.0", scope)
    scope["double"].__module__ = None
    assert tinytorch.compile(scope["double"])(ones(2)).tolist() == [2.0, 2.0]


def test_a_result_of_gradients_that_has_a_gradient_itself_is_not_lost():
    layer = tinytorch.nn.Linear(2, 1)

    def penalty(x):
        (g,) = tinytorch.autograd.grad(layer(x).tanh().sum(), x, create_graph=True)
        return (g.norm() - 1) ** 2

    x = tinytorch.tensor([1.0, 2.0], requires_grad=True)
    expected = tinytorch.autograd.grad(penalty(x), layer.weight)[0].tolist()
    with pytest.warns(RuntimeWarning, match=r"computed from gradients .* runs op by op"):
        result = tinytorch.compile(penalty)(x)
    assert tinytorch.autograd.grad(result, layer.weight)[0].tolist() == expected

    def step(x):  # all of the gradients are computed inside: nothing is lost
        loss = penalty(x)
        loss.backward()
        return loss, loss / 2

    layer.weight.grad = None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tinytorch.compile(step)(x)
    assert np.allclose(layer.weight.grad.tolist(), expected, rtol=1e-5)
