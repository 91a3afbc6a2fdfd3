"""Inputs that a model of transformers takes, by the names of its arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

TOKENS, IMAGE = 16, 64
PATCHES = 16  # of an image that comes as rows, 4 by 4


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


# -- by what each argument is called -----------------------------------------------------------


def named_inputs(model: Any, batch: int = 2) -> Iterator[dict[str, Tensor]]:
    """Inputs for models with arguments of their own, after `candidate_inputs`: each argument whose
    name says what it is, first those that are needed, then text beside images or sound, then all.
    """
    yield from candidate_inputs(model, batch)
    parameters = list(inspect.signature(model.forward).parameters.values())
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    needed = {p.name for p in parameters if p.default is p.empty and p.name in names}
    main = getattr(model, "main_input_name", names[0])
    needed.add(main if main in names else names[0])
    sources = {n for n in names if n in SOURCES}
    for images in (_images, _frames, _flat_patches):
        known = {
            n: made for n in names if (made := _known(n, model.config, batch, images)) is not None
        }
        yield from _distinct({n: x for n, x in known.items() if n in chosen}
                             for chosen in (needed, needed | sources, set(known)))  # fmt: skip


def _distinct(found: Iterator[dict[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    seen: list[set[str]] = []
    for each in found:
        if each and set(each) not in seen:
            seen.append(set(each))
            yield each


#: What a model may compute from.
SOURCES = ("input_ids", "pixel_values", "input_features", "input_values", "decoder_input_ids")


def _frames(config: Any, batch: int) -> Iterator[Tensor]:
    """Videos."""
    image = next(_images(config, batch))
    frames = int(_find(config, 2, "num_frames", "frames_per_clip"))
    yield image[:, None].expand(batch, frames, *image.shape[1:]).clone()


def _flat_patches(config: Any, batch: int) -> Iterator[Tensor]:
    """Images as rows of patches."""
    patch, channels = (int(_find(config, 14, "patch_size")),
                       int(_find(config, 3, "num_channels", "in_channels")))  # fmt: skip
    yield torch.randn(batch, PATCHES, channels * patch**2)


def _known(
    name: str, config: Any, batch: int, images: Callable[[Any, int], Iterator[Tensor]]
) -> Tensor | None:
    """What an argument of this name is; None where the name does not say it."""

    def size(usual: int, *fields: str) -> int:
        return int(_find(config, usual, *fields))

    mels = size(80, "num_mel_bins", "input_feat_size", "feature_size", "n_mels")
    width = size(48, "hidden_size", "d_model", "embed_dim")
    makers: dict[str, Callable[[], Tensor]] = {
        r"pixel_values": lambda: next(images(config, batch)),
        r"(decoder_|qformer_)?input_ids": lambda: _ids(config, batch),
        r"(qformer_)?attention_mask": lambda: torch.ones(batch, TOKENS, dtype=torch.int64),
        r"pixel_attention_mask": lambda: torch.ones(batch, PATCHES, dtype=torch.int64),
        r"spatial_shapes|target_sizes|tgt_sizes": lambda: torch.full((batch, 2), 4),
        r"grid_thw|image_grid_thw": lambda: torch.tensor([[1, 4, 4]]).expand(batch, 3).clone(),
        r"merge_sizes": lambda: torch.full((batch,), 2),
        r"input_features": lambda: torch.randn(batch, mels, 4 * IMAGE),
        r"input_features_mask": lambda: torch.ones(batch, 4 * IMAGE, dtype=torch.int64),
        r"audio_mel": lambda: torch.randn(batch, IMAGE, mels),
        r"audio_mel_mask": lambda: torch.zeros(batch, IMAGE, dtype=torch.bool),
        r"(decoder_)?input_values": lambda: torch.randn(batch, TOKENS, width),
        r"encoder_hidden_states|query_embeds": lambda: torch.randn(
            batch, TOKENS, size(width, "encoder_hidden_size") if "enc" in name else width),
        r"states": lambda: torch.randn(batch, TOKENS, size(17, "state_dim")),
        r"actions": lambda: torch.randn(batch, TOKENS, size(4, "act_dim")),
        r"rewards|returns_to_go": lambda: torch.randn(batch, TOKENS, 1),
        r"timesteps": lambda: torch.arange(TOKENS).expand(batch, TOKENS).clone(),
        r"bbox": lambda: torch.tensor([1, 2, 30, 40]).expand(batch, TOKENS, 4).clone(),
        r"past_values": lambda: torch.randn(batch, _history(config)),
        r"past_observed_mask": lambda: torch.ones(batch, _history(config)),
        r"past_time_features": lambda: torch.randn(
            batch, _history(config), size(0, "num_time_features")),
        r"future_time_features": lambda: torch.randn(
            batch, size(4, "prediction_length"), size(0, "num_time_features")),
        r"future_values": lambda: torch.randn(batch, size(4, "prediction_length")),
    }  # fmt: skip
    return next((make() for pattern, make in makers.items() if re.fullmatch(pattern, name)), None)


def _history(config: Any) -> int:
    """How many values of a time series a model looks at."""
    lags = getattr(config, "lags_sequence", None) or [0]
    return int(_find(config, 32, "context_length")) + max(lags)
