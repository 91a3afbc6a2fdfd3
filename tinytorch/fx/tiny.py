"""Small models of any configuration class of transformers: few layers, narrow, random weights.

A configuration is shrunk by the names of its fields. All widths are divided by one number, so that
what divides what stays (hidden size, heads, groups); depths, vocabularies, experts and images get
small numbers of their own. Where a model does not build or run like that, the widths are divided by
less: `tiny_model` takes the first that runs.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tinytorch.errors import TinyTorchError

#: By what all widths are divided, and how many layers there are: what is tried, in order.
SIZES = ((16, 2), (8, 2), (16, 4), (4, 2), (8, 6), (1, 1))
VOCABULARY, EXPERTS, TOKENS, IMAGE = 256, 4, 16, 64
#: Fields that say the same in another way, and what they say of a small model, by model type.
ALSO: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "ministral": {"head_dim": None, "num_key_value_heads": 8},
    "vits": {"speaking_rate": 64.0},  # random weights ask for so long a speech otherwise
}
MOST_PARAMETERS = 20_000_000
NARROWEST = 32  # what is not wider stays

WIDTH = re.compile(
    r"(^|_)(d_model|d_inner|d_ff|d_kv|d_state|n_embd|n_inner|dim|dims|hidden|width|channels|"
    r"hidden_sizes?|embed_dims?|embedding_size|intermediate_size|ffn_dim|head_dim|size|sizes|"
    r"rank|conv_dim|ffn_hidden|features|feature_size|inner_size|proj_size)$|_dim$|_channels$|"
    r"hidden_size|intermediate_size|ffn_dim|_rank$"
)  # fmt: skip
NOT_WIDTH = re.compile(
    r"vocab|image_size|patch|kernel|window|chunk|position|block_size|token|num_|max_|crop|stride|"
    r"pool|grid|sample|batch|frame|bucket|codebook_size|group_size|cache|resolution|n_fft|"
    r"input_channels|in_channels|in_chans|feature_map|mel|spatial|temporal|state_size|vector_size"
)
DEPTH = re.compile(
    r"^(num_|n_)?(.*_)?(layers?|blocks|num_hidden_layers|n_layer|depth|stages_layers)$"
)
NOT_DEPTH = re.compile(
    r"feat_extract|adapter|feature_layer|type|vision_feature|out_|share|sparse|first|dense|skip|"
    r"full_attn|max_window|layer_norm|scale|use_|add_|_per_|interval|step|freq|every|to_"
)
EXPERT = re.compile(r"^(num|n)_(.*_)?experts$|^moe_num_experts$|^num_local_experts$")
CHOSEN = re.compile(r"experts_per_tok(en)?$|^moe_k$|^moe_topk?$|^top_?k(_experts)?$|^moe_top_k$")


class TinyError(TinyTorchError, ValueError):
    """A configuration that does not become a small model which runs."""


def small_value(name: str, value: Any, divisor: int, layers: int, depth: int | None) -> Any:
    """The small value of a field of a configuration; the same one where it says no size.

    Args:
        divisor: of widths.
        layers: how many there are to be.
        depth: how many there are: lists of that length are cut.

    >>> small_value("hidden_size", 768, 16, 2, 12), small_value("vocab_size", 32000, 16, 2, 12)
    (48, 256)
    """
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return _small_list(name, value, divisor, layers, depth)
    if isinstance(value, dict):  # rotary embeddings share a head between axes
        return {k: _sections(v, divisor) if k == "mrope_section" else v for k, v in value.items()}
    if not isinstance(value, int):
        return value
    if name.endswith(("token_id", "token_index", "_token")) or re.search(r"token_id", name):
        return value if value < VOCABULARY else VOCABULARY - 1 - value % 7
    if re.search(r"vocab", name) and not re.search(r"offset|start", name):
        return min(value, VOCABULARY)
    if EXPERT.search(name):
        return min(value, EXPERTS)
    if CHOSEN.search(name):
        return min(value, 2)
    if re.search(r"n_group$|topk_group$", name):
        return 1
    if DEPTH.search(name) and not NOT_DEPTH.search(name):
        return min(value, layers)
    if re.search(r"image_size$|img_size$|input_size$", name) and value > IMAGE:
        return IMAGE
    if WIDTH.search(name) and not NOT_WIDTH.search(name):
        return _narrow(value, divisor)
    return value


def _sections(values: list[int], divisor: int) -> list[int]:
    """Parts of what is divided, which still add up to the whole."""
    first = [v // divisor for v in values[:-1]]
    return [*first, sum(values) // divisor - sum(first)]


def _narrow(value: int, divisor: int) -> int:
    return value // divisor if value > NARROWEST and value % divisor == 0 else value


def _small_list(name: str, value: Any, divisor: int, layers: int, depth: int | None) -> Any:
    if not value or not all(isinstance(v, int) and not isinstance(v, bool) for v in value):
        return type(value)(value[:layers]) if depth and len(value) == depth > layers else value
    if re.search(r"^depths?$|num_layers|^layers$|layers_per|num_blocks|^depths_", name):
        return type(value)(min(v, 1) for v in value)
    if re.search(r"image_size|img_size", name):
        return type(value)(min(v, IMAGE) for v in value)
    if depth and len(value) == depth > layers:
        value = type(value)(value[:layers])
    if WIDTH.search(name) and not NOT_WIDTH.search(name):
        return type(value)(_narrow(v, divisor) for v in value)
    return value


def small_config(config_class: type, divisor: int = SIZES[0][0], layers: int = SIZES[0][1]) -> Any:
    """A small configuration of a class.

    Raises:
        Exception: whatever the class raises about the values.
    """
    default = config_class()
    return config_class(**_fields(default, divisor, layers))


def _fields(config: Any, divisor: int, layers: int) -> dict[str, Any]:
    """The fields of a configuration that change, with their small values; parts of it whole."""
    from transformers import PreTrainedConfig

    given = inspect.signature(type(config).__init__).parameters
    depth = getattr(config, "num_hidden_layers", None) if "depths" not in given else None
    plain = type(config)()
    found: dict[str, Any] = {k: v for k, v in ALSO.get(config.model_type, {}).items() if v}
    for name, parameter in given.items():
        if name in ("self", "kwargs", "args") or parameter.kind is parameter.VAR_KEYWORD:
            continue
        try:
            value, usual = getattr(config, name, None), getattr(plain, name, None)
        except Exception:  # a field that differs from layer to layer has no one value
            continue
        if name in found or (name == "num_layers" and "depths" in given):
            continue
        if isinstance(value, PreTrainedConfig):
            if value.model_type not in ("", None):
                found[name] = type(value)(**_fields(value, divisor, layers))
        elif parameter.default is not None or value != usual or name == "rope_parameters":
            known = depth if isinstance(depth, int) else None
            small = small_value(name, value, divisor, layers, known)
            if name == "window_size" and "depths" in given:
                small = min(value, 2) if isinstance(value, int) else value
            if name == "id2label" or (small == value == usual):
                continue
            found[name] = small
    return found


# -- inputs ----------------------------------------------------------------------------------------


def candidate_inputs(model: Any, batch: int = 2) -> Iterator[dict[str, Tensor]]:
    """Inputs that a model may take, the likeliest first, by the names of its arguments."""
    config = model.config
    names = list(inspect.signature(model.forward).parameters)
    main = getattr(model, "main_input_name", names[0])
    first = main if main in names else names[0]
    made = list(_of_name(first, config, batch))
    needed = [name for name, parameter in inspect.signature(model.forward).parameters.items()
              if parameter.default is parameter.empty and name != first
              and parameter.kind is parameter.POSITIONAL_OR_KEYWORD]  # fmt: skip
    if any("grid_thw" in name for name in needed):
        yield from _patches(first, needed, config, batch)
    if needed:
        for inputs in made:
            yield {first: inputs, **{n: _needed(n, inputs, config, batch) for n in needed}}
    for inputs in made:
        yield {first: inputs, **_other_inputs(names, first, config, batch, full=False)}
    for inputs in made:
        yield {first: inputs, **_other_inputs(names, first, config, batch, full=True)}
    for inputs in made:
        yield {first: inputs}
    for other in ("input_ids", "pixel_values", "input_features", "input_values"):
        if other in names and other != first:
            for inputs in _of_name(other, config, batch):
                yield {other: inputs}


def _needed(name: str, main: Tensor, config: Any, batch: int) -> Tensor:
    """An argument without a default: a mask of the main input, or what its name says."""
    if "mask" in name:
        return torch.ones(main.shape[:2], dtype=torch.bool)
    if name.endswith(("lengths", "length")):
        return torch.full((batch,), main.shape[-1])
    if name in ("timestep", "timesteps"):
        return torch.arange(batch)
    return next(_of_name(name, config, batch))


def _patches(first: str, needed: list[str], config: Any, batch: int) -> Iterator[dict[str, Tensor]]:
    """Images cut into patches, of 4 by 4 each, which come as rows; for models of any resolution."""
    patch = int(_find(config, 14, "patch_size"))
    channels = int(_find(config, 3, "in_channels", "in_chans", "num_channels"))
    grid = torch.tensor([[1, 4, 4]]).expand(batch, 3).clone()
    for times in (int(_find(config, 2, "temporal_patch_size")), 1):
        rows = torch.randn(batch * 16, channels * times * patch**2)
        yield {first: rows, **dict.fromkeys(needed, grid)}
        yield {first: rows.reshape(-1, channels * times, patch, patch),
               **dict.fromkeys(needed, grid)}  # fmt: skip


def _ids(config: Any, batch: int, length: int = TOKENS) -> Tensor:
    """Ordinary tokens: none of the special ones, which are at the ends of the vocabulary."""
    return torch.randint(4, max(8, min(_find(config, 64, "vocab_size"), 200)), (batch, length))


def _find(config: Any, default: Any, *fields: str) -> Any:
    """The first of these fields in a configuration or its parts."""
    parts = ("vision_config", "text_config", "audio_config", "encoder_config", "backbone_config",
             "thinker_config", "encoder", "decoder", "audio_encoder_config")  # fmt: skip
    places = [config, *(getattr(config, p, None) for p in parts)]
    for place in places:
        for name in fields:
            if isinstance(value := getattr(place, name, None), (int, list, tuple)):
                return value
    return default


def _of_name(name: str, config: Any, batch: int) -> Iterator[Tensor]:
    """Tensors that an argument of this name may be."""
    if "ids" in name or name in ("input", "codes", "audio_codes"):
        yield _ids(config, batch)
        books = _find(config, 4, "num_codebooks", "num_quantizers")
        yield torch.randint(4, 60, (batch, int(books), TOKENS))
        yield torch.randint(4, 60, (batch, TOKENS, int(books)))
    elif "pixel" in name or "image" in name:
        yield from _images(config, batch)
    elif name in ("input_values", "audio_values", "waveform", "audio"):
        mels = int(_find(config, 16, "num_mel_bins"))
        yield torch.randn(batch, 2000)
        yield torch.randn(batch, 1, 2000)
        yield torch.randn(batch, 16000)
        yield torch.randn(batch, int(_find(config, 64, "max_length")), mels)
    elif name in ("input_features", "speech_inputs"):
        mels = int(_find(config, 80, "num_mel_bins", "feature_size", "input_feat_per_channel",
                         "n_mels", "feature_projection_input_dim", "input_dim"))  # fmt: skip
        frames = int(_find(config, 64, "max_source_positions"))
        yield torch.randn(batch, mels, 2 * min(frames, 1500))
        yield torch.randn(batch, 64, mels)
        yield torch.randn(batch, mels, 64)
        yield torch.randn(batch, 1, 64, mels)
    elif name in ("past_values", "observed_values", "time_series"):
        length = int(_find(config, 32, "context_length"))
        channels = int(_find(config, 1, "num_input_channels", "input_size"))
        yield torch.randn(batch, length, channels)
        yield torch.randn(batch, length)
    else:
        width = int(_find(config, 48, "hidden_size", "d_model", "embed_dim"))
        yield torch.randn(batch, TOKENS, width)


def _images(config: Any, batch: int) -> Iterator[Tensor]:
    size = _find(config, IMAGE, "image_size", "img_size")
    height, width = size[-2:] if isinstance(size, (list, tuple)) and len(size) > 1 else (size, size)
    channels = _find(config, 3, "num_channels", "in_channels", "in_chans")
    channels = channels if isinstance(channels, int) else 3
    frames = int(_find(config, 2, "num_frames", "frames_per_clip"))
    yield torch.randn(batch, channels, height, width)
    yield torch.randn(batch, channels, 2 * height, 2 * width)
    yield torch.randn(batch, frames, channels, height, width)
    yield torch.randn(batch, 2, channels, height, width)
    yield torch.randn(batch, 3, 224, 224)


def _other_inputs(
    names: list[str], first: str, config: Any, batch: int, *, full: bool
) -> dict[str, Tensor]:
    """What a model takes beside its main input.

    Args:
        full: an image beside the text, and an attention mask.
    """
    found: dict[str, Tensor] = {}
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in names:
        found["decoder_input_ids"] = _ids(config, batch, TOKENS // 2)
    if first != "input_ids" and "input_ids" in names and full:
        found["input_ids"] = _ids(config, batch)
    if "input_ids" in (first, *found) and "attention_mask" in names:
        found["attention_mask"] = torch.ones(batch, TOKENS, dtype=torch.int64)
    if full and first == "input_ids" and "pixel_values" in names:
        found["pixel_values"] = next(_images(config, batch))
    if full and first != "decoder_input_ids" and "decoder_input_ids" in names:
        found["decoder_input_ids"] = _ids(config, batch, TOKENS // 2)
    if "bbox" in names:
        found["bbox"] = torch.tensor([1, 2, 30, 40]).expand(batch, TOKENS, 4).clone()
    return found


# -- a model that runs -----------------------------------------------------------------------------


def classes_of(name: str) -> tuple[type, type]:
    """The base model's class and the configuration's, of a model type or a configuration class.

    Raises:
        TinyError: transformers has none of that name.

    >>> [c.__name__ for c in classes_of("BertConfig")]
    ['BertModel', 'BertConfig']
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    config_class = getattr(transformers, name, None) if name.endswith("Config") else None
    try:
        config_class = config_class or transformers.CONFIG_MAPPING[name]
        made: Any = transformers.MODEL_MAPPING[config_class]
    except (KeyError, ValueError) as error:
        raise TinyError(
            f"transformers has no base model for {name!r}: {str(error)[:200]}"
        ) from error
    return made[0] if isinstance(made, tuple) else made, config_class


def whole_model(model_class: type, config_class: type, batch: int = 2) -> tuple[nn.Module, Any]:
    """A model of the configuration's own size, with random weights, and inputs that it takes.

    Raises:
        TinyError: it runs on none of the inputs that there are for it.
    """
    config = config_class()
    _without_cache(config)
    model = model_class(config).eval()
    said = ""
    for inputs in candidate_inputs(model, batch):
        try:
            with torch.no_grad():
                model(**inputs)
        except Exception as error:  # a model may raise anything
            said = said or f"{type(error).__name__}: {str(error)[:200]}"
            continue
        return model, inputs
    raise TinyError(f"{model_class.__name__} does not run: {said}")


def tiny_model(model_class: type, config_class: type, batch: int = 2) -> tuple[nn.Module, Any]:
    """The first small model of a class that runs on the first inputs that it takes.

    Returns:
        The model, in evaluation mode, and keyword arguments for it.

    Raises:
        TinyError: none of the sizes builds and runs; the message says what the smallest one said.
    """
    said = ""
    for divisor, layers in SIZES:
        try:
            model = build(model_class, small_config(config_class, divisor, layers))
        except Exception as error:  # anything: the code of six hundred configurations
            said = said or f"does not build: {type(error).__name__}: {str(error)[:200]}"
            continue
        for inputs in candidate_inputs(model, batch):
            try:
                with torch.no_grad():
                    model(**inputs)
            except Exception as error:
                said = said or f"does not run: {type(error).__name__}: {str(error)[:200]}"
                continue
            return model, inputs
    raise TinyError(f"{model_class.__name__} {said}")


def build(model_class: type, config: Any) -> nn.Module:
    """A model with random weights, in evaluation mode; first without memory, to count.

    Raises:
        TinyError: it has more than MOST_PARAMETERS parameters.
    """
    _without_cache(config)
    with torch.device("meta"):
        count = sum(p.numel() for p in model_class(config).parameters())
    if count > MOST_PARAMETERS:
        raise TinyError(f"has {count:,} parameters, more than {MOST_PARAMETERS:,}")
    model: nn.Module = model_class(config)
    return model.eval()


def _without_cache(config: Any) -> None:
    """A cache of keys and values is no tensor, and nobody asks for it in training."""
    for part in (config, *vars(config).values()):
        if hasattr(part, "use_cache"):
            part.use_cache = False
