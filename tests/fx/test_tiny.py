from __future__ import annotations

import pytest
import torch
import transformers

from tinytorch.fx.tiny import Size, TinyError, classes_of, small_config, small_value, tiny_model

SIZES = {"size": Size(16, 2), "depth": 12}


@pytest.mark.parametrize(
    ("name", "value", "small"),
    [
        ("hidden_size", 768, 48),
        ("hidden_sizes", (96, 192), (6, 12)),
        ("vocab_size", 32000, 256),
        ("num_hidden_layers", 12, 2),
        ("num_attention_heads", 12, 12),  # widths are divided by what leaves the heads whole
        ("num_local_experts", 64, 4),
        ("num_experts_per_tok", 8, 2),
        ("image_size", 224, 64),
        ("context_length", 16384, 512),
        ("patch_size", 16, 16),
        ("depths", [3, 8, 36, 3], [1, 1, 1, 1]),
        ("layer_types", ["full_attention"] * 12, ["full_attention"] * 2),
        ("max_position_embeddings", 512, 512),
        ("use_cache", True, True),
        ("layer_norm_eps", 1e-5, 1e-5),
        ("rope_parameters", {"mrope_section": [16, 24, 24]}, {"mrope_section": [1, 1, 2]}),
    ],
)
def test_a_field_becomes_small_by_its_name(name: str, value: object, small: object):
    assert small_value(name, value, **SIZES) == small


def test_special_tokens_stay_inside_the_vocabulary():
    assert small_value("bos_token_id", 2, **SIZES) == 2
    assert 0 <= small_value("bos_token_id", 50256, **SIZES) < 256


def test_parts_of_a_configuration_keep_what_was_said_of_them():
    small = small_config(transformers.LlavaConfig)  # whose vision part is not CLIP's usual one
    usual = transformers.LlavaConfig().vision_config
    assert small.vision_config.num_attention_heads == usual.num_attention_heads
    assert small.vision_config.hidden_size == usual.hidden_size // 16
    assert small.text_config.num_hidden_layers == 2


def test_a_model_runs_on_the_inputs_that_come_with_it():
    model, inputs = tiny_model(transformers.T5Model, transformers.T5Config, batch=3)
    assert {"input_ids", "decoder_input_ids"} <= set(inputs)
    assert all(x.shape[0] == 3 for x in inputs.values())
    assert model(**inputs).last_hidden_state.isfinite().all()
    assert sum(p.numel() for p in model.parameters()) < 1_000_000


def test_a_part_whose_sizes_are_none_by_default_becomes_small_too():
    model, inputs = tiny_model(*classes_of("sam2_vision_model"))
    assert inputs["pixel_values"].shape == (2, 3, 64, 64)
    assert sum(p.numel() for p in model.parameters()) < 1_000_000


def test_what_does_not_become_small_says_why():
    class Stubborn(torch.nn.Module):
        def __init__(self, config: object) -> None:
            raise ValueError("only in its own size")

    with pytest.raises(TinyError, match="Stubborn does not build: ValueError: only in its own"):
        tiny_model(Stubborn, transformers.BertConfig)


def test_fewer_heads_keep_their_size_and_what_is_unset_is_set():
    small = small_config(transformers.NemotronConfig, Size(16, 2, fewer_heads=True))
    assert small.head_dim == transformers.NemotronConfig().head_dim
    assert small.num_attention_heads == small.num_key_value_heads == 3  # of 48; of unset
    assert small_value("num_heads", 14, Size(4, 2, fewer_heads=True), 12) == 2  # divides 14
    channels = small_value("in_channels", [32, 96, 192], Size(16, 2, fewer_heads=True), 12)
    assert channels == [32, 6, 12]


def test_arguments_with_names_of_their_own_are_found():
    found = tiny_model(
        transformers.DecisionTransformerModel, transformers.DecisionTransformerConfig
    )
    model, inputs = found
    assert inputs["states"].shape[-1] == model.config.state_dim
    assert {"actions", "returns_to_go", "timesteps"} <= set(inputs)
