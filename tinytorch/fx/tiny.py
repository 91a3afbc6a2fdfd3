"""Small models of any configuration class of transformers: few layers, narrow, random weights.

A configuration is shrunk by the names of its fields. All widths are divided by one number, so that
what divides what stays (hidden size, heads, groups); depths, vocabularies, experts and images get
small numbers of their own. Where a model does not build or run like that, the widths are divided by
less, then the number of heads instead of their size: `tiny_model` takes the first that runs.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from tinytorch.errors import TinyTorchError
from tinytorch.fx.tiny_inputs import IMAGE, TOKENS, candidate_inputs, named_inputs


class Size(NamedTuple):
    """How small a model is to be.

    Attributes:
        divisor: of all widths.
        layers: how many there are to be.
        fewer_heads: divide the number of attention heads and let a head keep its size, on which
            rotary embeddings depend; and set fields that are None by default.
    """

    divisor: int
    layers: int
    fewer_heads: bool = False


#: What is tried, in order.
SIZES = (Size(16, 2), Size(8, 2), Size(16, 4), Size(4, 2), Size(8, 6), Size(1, 1),
         Size(16, 2, True), Size(8, 2, True), Size(4, 2, True), Size(16, 4, True),
         Size(2, 2, True), Size(1, 1, True))  # fmt: skip
VOCABULARY, EXPERTS, CONTEXT = 256, 4, 512
#: Fields that say the same in another way, and what they say of a small model, by model type.
ALSO: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "ministral": {"num_key_value_heads": 8},
    "sam2_hiera_det_model": {  # None by default, and then of a model that takes 7 GiB
        "hidden_size": 24, "embed_dim_per_stage": [24, 48, 96, 192], "image_size": [IMAGE, IMAGE],
        "blocks_per_stage": [1, 1, 2, 1], "global_attention_blocks": [3],
    },
    "sam2_vision_model": {
        "backbone_channel_list": [192, 96, 48, 24],
        "backbone_feature_sizes": [[IMAGE // 4] * 2, [IMAGE // 8] * 2, [IMAGE // 16] * 2],
    },
    "vits": {"speaking_rate": 64.0},  # random weights ask for so long a speech otherwise
}  # fmt: skip
MOST_PARAMETERS = 20_000_000
MOST_AT_LAST = 60_000_000  # where nothing below ran
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
HEADS = re.compile(r"(^|_)num_(.*_)?heads$|^n_heads?$|^heads$|attention_heads$")
HEAD_SIZE = re.compile(r"(^|_)head_dim$|^d_kv$|_head_size$")
#: What a field becomes that is None by default, from the small values of the others.
UNSET: dict[str, Callable[[dict[str, Any], int], Any]] = {
    "num_key_value_heads": lambda known, layers: known["num_attention_heads"],
    "head_dim": lambda known, layers: known["hidden_size"] // known["num_attention_heads"],
    "vocab_size": lambda known, layers: VOCABULARY,
    "n_routed_experts": lambda known, layers: EXPERTS,
    "n_shared_experts": lambda known, layers: 1,
    "num_experts_per_tok": lambda known, layers: 2,
    "prediction_length": lambda known, layers: TOKENS // 4,
    "sliding_window": lambda known, layers: TOKENS // 2,
    "layer_types": lambda known, layers: ["full_attention"] * layers,
    "vocabulary_map": lambda known, layers: {},
    "default_language": lambda known, layers: known["languages"][0],
    "pad_token_id": lambda known, layers: 0,
}
CHOSEN = re.compile(r"experts_per_tok(en)?$|^moe_k$|^moe_topk?$|^top_?k(_experts)?$|^moe_top_k$")


class TinyError(TinyTorchError, ValueError):
    """A configuration that does not become a small model which runs."""


def small_value(name: str, value: Any, size: Size, depth: int | None) -> Any:
    """The small value of a field of a configuration; the same one where it says no size.

    Args:
        depth: how many layers there are: lists of that length are cut.

    >>> small_value("hidden_size", 768, Size(16, 2), 12)
    48
    >>> small_value("vocab_size", 32000, Size(16, 2), 12)
    256
    """
    divisor, layers, fewer_heads = size
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return _small_list(name, value, size, depth)
    if isinstance(value, dict):  # rotary embeddings share a head between axes
        if fewer_heads:
            return value
        return {k: _sections(v, divisor) if k == "mrope_section" else v for k, v in value.items()}
    if not isinstance(value, int):
        return value
    if name.endswith(("token_id", "token_index", "_token")) or re.search(r"token_id", name):
        return value if value < VOCABULARY else VOCABULARY - 1 - value % 7
    if re.search(r"vocab", name) and not re.search(r"offset|start", name):
        return min(value, VOCABULARY)
    if fewer_heads and HEADS.search(name):
        return max(h for h in range(1, max(1, value // divisor) + 1) if value % h == 0)
    if fewer_heads and HEAD_SIZE.search(name):
        return value
    if fewer_heads and name.endswith("shared_layers"):  # the last layers, more than there are
        return 0
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
    if name == "context_length":  # of a time series, which some models walk in Python
        return min(value, CONTEXT)
    if WIDTH.search(name) and not NOT_WIDTH.search(name):
        return _narrow(value, divisor)
    return value


def _sections(values: list[int], divisor: int) -> list[int]:
    """Parts of what is divided, which still add up to the whole."""
    first = [v // divisor for v in values[:-1]]
    return [*first, sum(values) // divisor - sum(first)]


def _narrow(value: int, divisor: int) -> int:
    return value // divisor if value > NARROWEST and value % divisor == 0 else value


def _small_list(name: str, value: Any, size: Size, depth: int | None) -> Any:
    divisor, layers, fewer_heads = size
    if fewer_heads and value and all(isinstance(v, (list, tuple)) for v in value):
        return type(value)(_small_list(name, v, size, None) for v in value)  # stage by stage
    if not value or not all(isinstance(v, int) and not isinstance(v, bool) for v in value):
        return type(value)(value[:layers]) if depth and len(value) == depth > layers else value
    if fewer_heads and HEADS.search(name):
        return type(value)(small_value(name, v, size, None) for v in value)
    if fewer_heads and "layer_ids" in name:
        return type(value)(v for v in value if v < layers)
    if re.search(r"^depths?$|num_layers|^layers$|layers_per|num_blocks|^depths_", name):
        return type(value)(min(v, 1) for v in value)
    if re.search(r"image_size|img_size", name):
        return type(value)(min(v, IMAGE) for v in value)
    if depth and len(value) == depth > layers:
        value = type(value)(value[:layers])
    inner = fewer_heads and re.search(r"in_channels|input_channels", name)  # from stage to stage
    if inner or (WIDTH.search(name) and not NOT_WIDTH.search(name)):
        return type(value)(_narrow(v, divisor) for v in value)
    return value


def small_config(config_class: type, size: Size = SIZES[0]) -> Any:
    """A small configuration of a class.

    Raises:
        Exception: whatever the class raises about the values.
    """
    default = config_class()
    return config_class(**_fields(default, size))


def _fields(config: Any, size: Size) -> dict[str, Any]:
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
            if value.model_type or (size.fewer_heads and type(value) is not PreTrainedConfig):
                found[name] = type(value)(**_fields(value, size))
        elif size.fewer_heads and name == "rope_parameters":
            if isinstance(value, dict) and not any(isinstance(v, dict) for v in value.values()):
                found[name] = _rotary(config, value)
        elif parameter.default is not None or value != usual or name == "rope_parameters":
            known = depth if isinstance(depth, int) else None
            small = small_value(name, value, size, known)
            if name == "window_size" and "depths" in given:
                small = min(value, 2) if isinstance(value, int) else value
            if name == "id2label" or (small == value == usual):
                continue
            found[name] = small
    return found | (_unset(config, given, found, size.layers) if size.fewer_heads else {})


def _rotary(config: Any, said: dict[str, Any]) -> dict[str, Any]:
    """Rotary embeddings, with half a head shared between time, height and width."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    half = int(head * said.get("partial_rotary_factor", 1.0)) // 2
    return {"mrope_section": [half - 2 * (half // 3), half // 3, half // 3]} | said


def _unset(config: Any, given: Any, small: dict[str, Any], layers: int) -> dict[str, Any]:
    """Fields without a default that a checkpoint would bring, of those that have a usual value."""
    known = {name: small.get(name, getattr(config, name, None)) for name in given}
    found = {}
    for name, value in UNSET.items():
        if name in given and known[name] is None:
            with contextlib.suppress(KeyError, TypeError):  # where it needs a field that is absent
                found[name] = value(known, layers)
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
    model_class = made[0] if isinstance(made, tuple) else made
    own = getattr(model_class, "config_class", None)  # of a part, where the name's is of the whole
    return model_class, config_class if own is None or issubclass(config_class, own) else own


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
    for size in SIZES:
        try:
            most = MOST_AT_LAST if size.fewer_heads else MOST_PARAMETERS
            model = build(model_class, small_config(config_class, size), most)
        except Exception as error:  # anything: the code of six hundred configurations
            said = said or f"does not build: {type(error).__name__}: {str(error)[:200]}"
            continue
        tried = named_inputs if size.fewer_heads else candidate_inputs
        for inputs in tried(model, batch):
            try:
                with torch.no_grad():
                    model(**inputs)
            except Exception as error:
                said = said or f"does not run: {type(error).__name__}: {str(error)[:200]}"
                continue
            return model, inputs
    raise TinyError(f"{model_class.__name__} {said}")


def build(model_class: type, config: Any, most: int = MOST_PARAMETERS) -> nn.Module:
    """A model with random weights, in evaluation mode; first without memory, to count.

    Raises:
        TinyError: it has more than `most` parameters.
    """
    _without_cache(config)
    with torch.device("meta"):
        count = sum(p.numel() for p in model_class(config).parameters())
    if count > most:
        raise TinyError(f"has {count:,} parameters, more than {most:,}")
    model: nn.Module = model_class(config)
    return model.eval()


def _without_cache(config: Any) -> None:
    """A cache of keys and values is no tensor, and nobody asks for it in training."""
    for part in (config, *vars(config).values()):
        if hasattr(part, "use_cache"):
            part.use_cache = False
