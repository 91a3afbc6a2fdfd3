"""A function and its graph: results, gradients, state, randomness."""

from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tests.graph.tensors import floats, same
from tests.op_names import OpNames
from tinytorch import autograd, nn, optim
from tinytorch.dispatch import Mode, live_scalar
from tinytorch.graph import GraphError, trace
from tinytorch.tensor import Tensor

pytestmark = pytest.mark.usefixtures("numpy_backend")


class Holder:
    """Keeps a tensor where the walk over a function's state does not look."""

    __slots__ = ("tensor",)


def test_golden_print_of_a_function_with_its_gradient():
    def square_loss(x, w):
        loss = ((x @ w).relu() ** 2).sum()
        return loss, autograd.grad(loss, w)[0]

    w = tinytorch.ones(3, 1, requires_grad=True)
    assert str(trace(square_loss, tinytorch.ones(2, 3), w)) == (
        """\
graph():
    %x : float32[2, 3] = placeholder[x]
    %w : float32[3, 1] = placeholder[w]
    %matmul : float32[2, 1] = matmul(%x, %w)
    %relu : float32[2, 1] = relu(%matmul)
    %mul : float32[2, 1] = mul(%relu, %relu)
    %sum : float32[] = sum(%mul, dims=(0, 1), keepdim=False)
    %full : float32[] = full(shape=(), value=1.0, dtype=float32)  # backward
    %reshape : float32[1, 1] = reshape(%full, shape=(1, 1))  # backward
    %expand : float32[2, 1] = expand(%reshape, shape=(2, 1))  # backward
    %mul_1 : float32[2, 1] = mul(%expand, %relu)  # backward
    %mul_2 : float32[2, 1] = mul(%expand, %relu)  # backward
    %add : float32[2, 1] = add(%mul_1, %mul_2)  # backward
    %relu_backward : float32[2, 1] = relu_backward(%add, %relu)  # backward
    %permute : float32[3, 2] = permute(%x, dims=(1, 0))  # backward
    %matmul_1 : float32[3, 1] = matmul(%permute, %relu_backward)  # backward
    return (%sum, %matmul_1)"""
    )


def test_trees_in_and_out(rng):
    def f(pair, *, options):
        a, b = pair
        return {"sum": a + b, "flag": options["flag"]}, [a * options["scale"]], None

    a, b = floats(rng, 2), floats(rng, 2)
    traced = trace(f, (a, b), options={"scale": 3.0, "flag": "yes"})
    result = traced((b, a), options={"scale": 3.0, "flag": "yes"})
    expected = f((b, a), options={"scale": 3.0, "flag": "yes"})
    assert same(result[0]["sum"], expected[0]["sum"]) and same(result[1][0], expected[1][0])
    assert result[0]["flag"] == "yes" and result[2] is None
    assert [n.target for n in traced.graph.find_nodes(op="placeholder")] == ["pair_0", "pair_1"]


def test_a_module_names_its_parameters(rng):
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    traced = trace(model, floats(rng, 4, 3))
    names = [n.target for n in traced.graph.find_nodes(op="placeholder")]
    assert names[1:] == ["0.weight", "0.bias"]


def test_parameters_are_read_at_every_call(rng):
    model = nn.Linear(3, 2)
    x = floats(rng, 4, 3)
    traced = trace(model, x)
    with tinytorch.no_grad():
        model.weight.mul_(2.0)
    assert same(traced(x), model(x))


def test_a_call_can_be_differentiated(rng):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = floats(rng, 5, 3)
    traced = trace(model, x)
    model(x).sum().backward()
    expected = [p.grad for p in model.parameters()]
    model.zero_grad()
    traced(x).sum().backward()
    assert all(same(p.grad, g) for p, g in zip(model.parameters(), expected, strict=True))


def test_no_grad_cuts_the_gradient_of_a_call_too():
    def f(x):
        with tinytorch.no_grad():
            scale = x.sum()
        return (x * scale).sum()

    x = tinytorch.tensor([1.0, 2.0], requires_grad=True)
    traced = trace(f, x)
    traced(x).backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_a_call_that_overwrites_a_leaf_has_no_history_rather_than_a_wrong_one():
    w = tinytorch.tensor([3.0, 4.0], requires_grad=True)

    def f(x):
        with tinytorch.no_grad():
            w.clamp_(0.0, 1.0)
        return (x * w).sum()

    out = trace(f, tinytorch.ones(2))(tinytorch.ones(2))
    assert out.item() == 2.0 and w.tolist() == [1.0, 1.0]
    with pytest.raises(tinytorch.AutogradError, match="no history"):
        out.backward()


def test_gradients_of_higher_order_are_traced(rng):
    def penalty(x):
        (g,) = autograd.grad((x**3).sum(), x, create_graph=True)
        return autograd.grad((g * g).sum(), x)[0]

    x = floats(rng, 3).requires_grad_()
    assert same(trace(penalty, x)(x), penalty(x))


def test_a_trace_changes_nothing(rng):
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = tinytorch.random.default_generator.get_state()
    x = floats(rng, 4, 3)

    def step(x):
        model(x).sum().backward()

    trace(step, x)
    assert all(same(v, before[k]) for k, v in model.state_dict().items())
    assert tinytorch.random.default_generator.get_state() == state
    assert all(p.grad is None for p in model.parameters())


def test_constants_made_inside_are_constants_and_tensors_outside_are_not(rng):
    outside = floats(rng, 3)

    def f(x):
        return x + outside + tinytorch.tensor([1.0, 2.0, 3.0])

    x = floats(rng, 3)
    traced = trace(f, x)
    assert [n.target for n in traced.graph.find_nodes(op="placeholder")] == ["x", "outside"]
    (constant,) = traced.graph.find_nodes(op="get_attr")
    assert traced.graph.constants[constant.target].tolist() == [1.0, 2.0, 3.0]
    outside.mul_(5.0)
    assert same(traced(x), f(x))


def test_a_tensor_that_somebody_else_holds_is_no_constant(rng):
    holder = Holder()
    holder.tensor = floats(rng, 3)
    traced = trace(lambda x: x + holder.tensor, floats(rng, 3))
    assert not traced.graph.find_nodes(op="get_attr")
    holder.tensor.fill_(7.0)
    assert traced(tinytorch.zeros(3)).tolist() == [7.0] * 3


def test_a_constant_that_is_returned_is_the_callers_own(rng):
    def f(x):
        made = tinytorch.tensor([1.0, 2.0])
        return made, made.reshape(2, 1), x

    x = floats(rng, 1)
    traced = trace(f, x)
    for _ in range(2):
        whole, view, same_x = traced(x)
        assert whole.tolist() == [1.0, 2.0] and view.tolist() == [[1.0], [2.0]]
        whole.fill_(0.0)
        view.fill_(0.0)
        assert same_x is x


# -- randomness and live numbers -------------------------------------------------------------------


def test_random_numbers_are_new_at_every_call_and_those_of_eager():
    def f(x):
        return x * tinytorch.rand(4) + tinytorch.rand(4)

    x = tinytorch.ones(4)
    traced = trace(f, x)
    tinytorch.manual_seed(3)
    expected = [f(x) for _ in range(3)]
    tinytorch.manual_seed(3)
    assert all(same(traced(x), e) for e in expected)
    assert not same(expected[0], expected[1])


def test_checkpoint_draws_its_random_numbers_again(rng):
    def block(x):
        return nn.functional.dropout(x.tanh(), 0.5)

    def step(x):
        autograd.checkpoint(block, x).sum().backward()
        return x.grad

    x = floats(rng, 8).requires_grad_()
    traced = trace(step, x)
    assert len([n for n in traced.graph.nodes if n.target == "seed"]) == 1
    tinytorch.manual_seed(5)
    expected = step(x).clone()
    x.grad = None
    tinytorch.manual_seed(5)
    assert same(traced(x), expected)


def test_live_scalars_are_read_at_every_call():
    now = {"rate": 1.0}

    def f(x):
        rate = live_scalar(lambda: now["rate"], x.dtype, key="rate")
        again = live_scalar(lambda: now["rate"], x.dtype, key="rate")
        return x * rate + again

    x = tinytorch.ones(2)
    traced = trace(f, x)
    now["rate"] = 3.0
    assert traced(x).tolist() == [6.0, 6.0] == f(x).tolist()
    assert len(traced.graph.find_nodes(op="placeholder")) == 2


def test_a_mode_that_only_listens_changes_no_number():
    def drawn_and_read():
        tinytorch.manual_seed(1)
        return tinytorch.rand(3).tolist(), live_scalar(lambda: 0.1, tinytorch.float32)

    expected = drawn_and_read()
    with Mode(), Mode():
        assert drawn_and_read() == expected
    assert expected[1] == 0.1  # a number, not rounded to float32


def test_gradients_accumulate_as_in_eager(rng):
    w = floats(rng, 3).requires_grad_()

    def f(x):
        (w * x).sum().backward()

    x = floats(rng, 3)
    first = trace(f, x)
    first(x)
    assert same(w.grad, x)
    with pytest.raises(GraphError, match=r"w\.grad is set, and was not"):
        first(x)
    second = trace(f, x)
    second(x)
    second(x)
    assert np.allclose(w.grad.numpy(), 3 * x.numpy())


def test_gradients_have_memory_of_their_own(rng):
    a, b = floats(rng, 2, 3).requires_grad_(), floats(rng, 2, 3).requires_grad_()

    def f(x):
        total = a + b
        (total * x).sum().backward()
        total.detach().sum()

    x = floats(rng, 2, 3)
    trace(f, x)(x)
    for p in (a, b):
        with tinytorch.no_grad():
            p.grad.mul_(2.0)
    assert same(a.grad, x * 2.0) and same(b.grad, x * 2.0)


def test_values_of_one_name_are_told_apart(rng):
    def scaled_by(scale):
        def scaled(x):
            return x * scale

        def rescale(value):
            nonlocal scale
            scale = value

        return scaled, rescale

    (first, _), (second, rescale) = scaled_by(2.0), scaled_by(3.0)
    x = floats(rng, 3)
    traced = trace(lambda x: first(x) + second(x), x)
    rescale(4.0)
    with pytest.raises(GraphError, match=r"scale \(2\) is 4\.0, and was 3\.0"):
        traced(x)


def test_gradients_can_be_dropped(rng):
    w = floats(rng, 3).requires_grad_()

    def f(x):
        loss = (w * x).sum()
        loss.backward()
        return loss

    traced = trace(f, floats(rng, 3), keep_grads=False)
    assert len(traced.graph.output_node().args[0]) == 1
    traced(floats(rng, 3))
    assert w.grad is None


def test_a_replay_passes_through_the_door(rng):
    x = floats(rng, 3)
    traced = trace(lambda x: (x * 2.0).exp(), x)
    with OpNames() as seen:
        traced(x)
    assert seen.names == ["mul", "exp"]
    again = trace(traced, x)
    assert str(again.graph) == str(traced.graph)


def test_fused_ops_stay_whole_where_asked(rng):
    x = floats(rng, 2, 3)
    whole = trace(lambda x: x.softmax(-1), x, decompose=False)
    assert [n.target.name for n in whole.graph.find_nodes(op="call_function")] == ["softmax"]
    parts = trace(lambda x: x.softmax(-1), x)
    assert same(whole(x), parts(x))


def test_every_node_knows_the_line_that_made_it(rng):
    def f(x):
        return x.softmax(-1)

    traced = trace(f, floats(rng, 2, 3))
    lines = {n.stack_trace for n in traced.graph.find_nodes(op="call_function")}
    assert len(lines) == 1 and "test_trace.py" in lines.pop()


def test_a_trace_that_is_given_up_leaves_no_state_of_an_optimizer():
    w = tinytorch.ones(3, requires_grad=True)
    optimizer = tinytorch.optim.Adam([w])
    trace(lambda: optimizer.step())()
    assert not optimizer.state.get(w)


def test_no_two_tensors_share_a_gradient():
    """`clip_grad_norm_` writes each gradient once; of `sum` it is one number, seen many times."""

    def step(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
        loss = ((a + b) * x).square().sum() + (a + b).sum()
        loss.backward()
        return optim.clip_grad_norm_([a, b], 0.5)

    x, results = tinytorch.tensor([1.0, 2.0]), []
    for traced in (False, True):
        a, b = (tinytorch.tensor(v, requires_grad=True) for v in ([1.0, 2.0], [0.5, -1.0]))
        norm = (trace(step, a, b, x) if traced else step)(a, b, x)
        results.append([norm.tolist(), a.grad.tolist(), b.grad.tolist()])
    assert results[0] == results[1]


def test_functions_and_classes_whose_module_has_no_name():
    namespace: dict = {"c": tinytorch.ones(3)}
    exec("def scaled(x):\n    return x * 2.0 + c\n", namespace)
    scaled = namespace["scaled"]
    assert "__name__" not in namespace and scaled.__module__ in (None, "builtins")
    x = tinytorch.ones(3)
    assert tinytorch.compile(scaled)(x).tolist() == [3.0] * 3
    scaled.__module__ = None
    assert tinytorch.compile(scaled)(x).tolist() == [3.0] * 3

    class Scale:
        def __call__(self, x: Tensor) -> Tensor:
            return x * 2.0

    Scale.__module__ = None  # type: ignore[assignment]
    assert tinytorch.compile(Scale())(x).tolist() == [2.0] * 3
