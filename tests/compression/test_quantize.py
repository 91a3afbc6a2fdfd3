"""`quantize_`: what it replaces, frees, stores and refuses; and what the models lose by it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.compression import (
    SCHEMES,
    Calibration,
    QuantizedConv2d,
    QuantizedEmbedding,
    QuantizedLinear,
    Scheme,
    convert_qat_,
    fake_quantize,
    low_rank_,
    prepare_qat_,
    quantize_,
)
from tinytorch.data.datasets import digits as load_digits
from tinytorch.errors import ShapeError, StateDictError
from tinytorch.nn import functional as F
from tinytorch.nn.gpt import GPT, GPTConfig
from tinytorch.optim import Adam
from tinytorch.serialization import load, save


def small_model():
    tinytorch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 70),
        nn.ReLU(),
        nn.Linear(70, 10),
    )


def output(model, x):
    with tinytorch.no_grad():
        return model(x).numpy()


@pytest.mark.parametrize("name", SCHEMES)
def test_layers_are_replaced_and_close(name):
    model, x = small_model().eval(), tinytorch.randn(8, 1, 8, 8)
    before = output(model, x)
    assert quantize_(model, name, data=[x]) is model
    assert [type(part) for part in model][::3] == [QuantizedConv2d, QuantizedLinear]
    error = np.abs(output(model, x) - before).max() / np.abs(before).max()
    assert 0 < error < (0.25 if name == "int4" else 0.03)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_quantized_model_in_float64_keeps_its_codes(name):
    x = tinytorch.randn(8, 1, 8, 8)
    model = quantize_(small_model().eval(), name, data=[x])
    before, codes = output(model, x), model[3].codes.dtype
    assert model.double()[3].codes.dtype is codes
    np.testing.assert_allclose(output(model, x.double()), before, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_float_weights_are_let_go_and_the_bytes_are_a_quarter_and_a_seventh():
    for name, share in (("int8", 0.27), ("int4", 0.17)):
        model = nn.Sequential(nn.Linear(512, 512, bias=False))
        weight = weakref.ref(model[0].weight)
        array = weakref.ref(model[0].weight.detach().numpy())
        before = sum(t.numpy().nbytes for t in model.state_dict().values())
        quantize_(model, name)
        gc.collect()
        assert weight() is None and array() is None
        after = sum(t.numpy().nbytes for t in model.state_dict().values())
        assert after <= share * before


@pytest.mark.parametrize("name", SCHEMES)
def test_a_state_dict_and_a_file_of_safetensors_give_the_same_model(name, tmp_path):
    x = tinytorch.randn(4, 1, 8, 8)
    model = quantize_(small_model(), name, data=[x]).eval()
    path = tmp_path / "model.safetensors"
    save(model.state_dict(), path)
    tinytorch.manual_seed(1)
    other = quantize_(small_model(), name, data=[2 * x]).eval()
    other.load_state_dict(load(path))
    np.testing.assert_array_equal(output(other, x), output(model, x))
    share = 0.65 if name == "bfloat16" else 0.5
    assert path.stat().st_size < share * 4 * sum(p.numel() for p in small_model().parameters())


@pytest.mark.parametrize(
    ("columns", "scheme", "other"),
    [(32, "int8", "bfloat16"), (32, "bfloat16", "int8"), (16, "int8", "int4")],
)
def test_codes_of_another_scheme_are_refused_although_their_shapes_fit(columns, scheme, other):
    model, given = (
        quantize_(nn.Sequential(nn.Linear(columns, 3)), name) for name in (scheme, other)
    )
    with pytest.raises(StateDictError, match=r"0\.codes is .*, must be"):
        model.load_state_dict(given.state_dict())


def test_tied_embeddings_are_stored_once_and_write_logits():
    tinytorch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=65, context=16, layers=1, heads=2, width=64)).eval()
    tokens = tinytorch.randint(0, 65, (2, 9))
    before = output(model, tokens)
    quantize_(model, "int8")
    assert isinstance(model.embedding, QuantizedEmbedding)
    after = output(model, tokens)
    assert np.abs(after - before).max() < 0.03 * np.abs(before).max()
    dequantized = model.embedding.dequantized_weight().numpy()
    np.testing.assert_allclose(model.embedding(tokens).numpy(), dequantized[tokens.numpy()])


def test_code_that_reads_a_weight_gets_floats_in_its_shape():
    layers = nn.Embedding(9, 4), nn.Linear(4, 9), nn.Conv2d(2, 4, 3, groups=2)
    weights = [layer.weight.detach().numpy() for layer in layers]
    for layer, weight in zip(quantize_(nn.Sequential(*layers), "int8"), weights, strict=True):
        assert np.abs(layer.weight.numpy() - weight).max() <= np.abs(weight).max() / 127


def test_what_is_frozen_stays_so_and_each_layer_keeps_its_mode():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout().eval(), nn.Conv2d(1, 1, 1))
    model[0].bias.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    kept = nn.Sequential(*model[:2])
    quantize_(kept, "int8_static", data=[tinytorch.ones(1, 4)])
    quantize_(model := nn.Sequential(model[2]), "int8")
    assert [part.training for part in kept] == [True, False]
    assert not kept[0].bias.requires_grad and not model[0].bias.requires_grad


def test_hooks_stay_and_computed_weights_are_left_alone():
    normed = nn.utils.weight_norm(nn.Linear(4, 4))
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), normed), tinytorch.ones(1, 4)
    called = []
    for layer in model[:2]:
        layer.register_forward_hook(lambda layer, args, out: called.append(layer))
    low_rank_(model, ranks={"0": 4})
    quantize_(convert_qat_(prepare_qat_(model, "int8")), "int8")
    model(x)
    assert called == [model[0], model[1]] and type(model[1]) is QuantizedLinear
    assert model[2] is normed


def test_a_layer_that_is_there_twice_stays_one():
    layer = nn.Linear(32, 32)
    model = quantize_(nn.Sequential(layer, nn.ReLU(), layer), "int4")
    assert model[0] is model[2]


def test_gradients_reach_the_input_and_the_bias():
    model, x = quantize_(small_model(), "int8_dynamic"), tinytorch.randn(2, 1, 8, 8)
    x.requires_grad_()
    model(x).sum().backward()
    assert x.grad is not None and np.abs(x.grad.numpy()).max() > 0
    assert model[5].bias.grad is not None


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: quantize_(small_model(), "int3"), "no scheme 'int3'; there are int8, int8_dyn"),
        (lambda: quantize_(quantize_(small_model())), "quantized already: 0 is a QuantizedConv2d"),
        (lambda: quantize_(nn.Linear(2, 2)), "put it into a Sequential"),
        (lambda: quantize_(nn.Sequential(nn.ReLU())), "no layer to quantize"),
        (lambda: quantize_(small_model(), "int4", group_size=48), "48 must be .* multiple of 32"),
        (lambda: quantize_(small_model(), "bfloat16", group_size=32), "32: bfloat16 has no scales"),
        (lambda: prepare_qat_(small_model(), "bfloat16"), "bfloat16 has no codes to train for"),
        (lambda: quantize_(small_model(), "int8_static"), "int8_static needs data"),
        (lambda: quantize_(small_model(), "int8_static", data=[]), "3: no value has passed"),
        (lambda: quantize_(small_model().double()), "float64; use model.float"),
        (lambda: quantize_(nn.Sequential(nn.Embedding(3, 2).double())), "float64; use model.float"),
        (
            lambda: quantize_(prepare_qat_(small_model())),
            "3 is prep.* use convert_qat_ first",
        ),
        (lambda: convert_qat_(small_model()), "was not prepared"),
        (lambda: prepare_qat_(small_model(), "int8_static"), "int8_static: ranges"),
        (lambda: fake_quantize(tinytorch.ones(2, 2), 1), "2 to 8 bits"),
        (lambda: fake_quantize(tinytorch.ones(2, 0)), "a matrix with columns"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_values_that_have_no_code_are_named():
    model = small_model()
    with tinytorch.no_grad():
        model[3].weight[2, 5] = float("nan")
    with pytest.raises(ValueError, match="nan at"):
        quantize_(model)
    x = tinytorch.full((1, 1, 8, 8), float("inf"))
    with pytest.raises(ValueError, match=r"3: .* infinite"):
        quantize_(small_model(), "int8_static", data=[x])
    with pytest.raises(ShapeError, match=r"input \(2, 9\)"):
        quantize_(nn.Sequential(nn.Linear(8, 3)))(tinytorch.ones(2, 9))


@pytest.mark.parametrize(
    ("layer", "scheme", "says"),
    [
        (nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"), "int8", "1: .* border of zeros"),
        (nn.Embedding(3, 2, max_norm=1.0), "int8", "1: .*max_norm"),
        (nn.Linear(2, 2, dtype="float64"), "int4", "1: .* float64; use model.float"),
        (nn.Linear(2, 2), "int8", "1: 1 of 4 values are NaN"),
        (nn.Linear(2, 2), "bfloat16", "1: 1 of 4 values are NaN or infinite"),
    ],
)
def test_a_layer_without_a_quantized_form_is_named_and_nothing_is_replaced(layer, scheme, says):
    if isinstance(layer, nn.Linear) and layer.weight.dtype is tinytorch.float32:
        with tinytorch.no_grad():
            layer.weight[0, 1] = 3.4e38 if scheme == "bfloat16" else float("nan")
    model = nn.Sequential(nn.Linear(4, 4), layer)
    with pytest.raises(ValueError, match=says):
        quantize_(model, scheme)
    assert type(model[0]) is nn.Linear


def test_a_calibration_that_nothing_would_follow_is_refused():
    with pytest.raises(ValueError, match="and int8 learns none"):
        quantize_(small_model(), "int8", calibration=Calibration("percentile"))


def test_static_ranges_follow_the_calibration():
    x = tinytorch.randn(64, 1, 8, 8)
    scales = {}
    for method in ("range", "percentile"):
        model = small_model()
        quantize_(model, "int8_static", data=[x], calibration=Calibration(method, 95.0))
        scales[method] = float(model[3].range[0].item())
    assert scales["percentile"] < 0.9 * scales["range"]


# -- accuracy on digits that were not trained on ---------------------------------------------------


def train(model, x, y, epochs):
    optimizer = Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for i in range(0, len(x), 128):
            optimizer.zero_grad()
            F.cross_entropy(model(x[i : i + 128]), y[i : i + 128]).backward()
            optimizer.step()


def accuracy(model, x, y):
    return float((output(model, x).argmax(1) == y.numpy()).mean())


def digits_cnn():
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(128, 48), nn.ReLU(), nn.Linear(48, 10)),
    )


@pytest.fixture(scope="module")
def digits():
    return load_digits("train").tensors, load_digits("test").tensors


@pytest.fixture(scope="module")
def trained(digits):
    """A network, and what it reaches on the digits that it has not seen."""
    with tinytorch.using_backend("numpy"):
        tinytorch.manual_seed(0)
        model = digits_cnn()
        train(model, *digits[0], epochs=15)
        reached = accuracy(model, *digits[1])
    assert reached > 0.94
    return model.state_dict(), reached


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMES)
def test_digits_that_were_not_trained_on_are_read_as_well(trained, digits, name):
    state, reached = trained
    model = digits_cnn()
    model.load_state_dict(state)
    quantize_(model, name, data=[digits[0][0][:200]])
    lost = reached - accuracy(model, *digits[1])
    assert lost <= (0.01 if name == "int4" else 0.001)


@pytest.mark.slow
def test_quantization_aware_training_makes_up_for_rounding_to_few_bits(trained, digits):
    """At 2 bits the trained network is lost; trained with the rounding it is not."""
    scheme = Scheme("int2", 2, 0, "float")
    model = digits_cnn()
    model.load_state_dict(trained[0])
    prepare_qat_(model, scheme)
    with tinytorch.using_backend("numpy"):
        before = accuracy(model, *digits[1])
        train(model, *digits[0], epochs=6)
        after = accuracy(model, *digits[1])
    assert after > before + 0.02 and after > 0.9
    weight = model[4].weight
    convert_qat_(model)
    assert type(model[4]) is nn.Linear and model[4].weight is weight


def test_fake_quantized_layers_compute_what_the_quantized_ones_will():
    assert repr(prepare_qat_(small_model(), "int4")[3]).startswith(
        "FakeQuantizedLinear(in_features=144, out_features=70, bias=True, int4)"
    )
    for name in ("int8", "int8_dynamic", "int4"):
        tinytorch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(40, 7)), tinytorch.randn(5, 40)
        rounded = output(prepare_qat_(model, name), x)
        quantized = output(quantize_(convert_qat_(model), name), x)
        np.testing.assert_allclose(rounded, quantized, rtol=1e-4, atol=1e-5)
