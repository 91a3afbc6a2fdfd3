"""The architectures of the installed transformers, timm and torchvision, by name.

`transformers/bert` is a model type of transformers, `timm/vit` a family of timm (its smallest
model), `torchvision/resnet` one of torchvision, too. Weights are random.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import random
from collections.abc import Sequence
from fnmatch import fnmatch
from typing import Any

import torch
from torch import nn

from tinytorch.errors import TinyTorchError
from tinytorch.fx.tiny import MOST_AT_LAST, MOST_PARAMETERS, TinyError, classes_of, tiny_model
from tinytorch.fx.zoo.torchvision_operators import declare_torchvision_operators

LIBRARIES = ("transformers", "timm", "torchvision")
IMAGE = 64
#: Ten small architectures of different kinds, which the fast tests take.
SMALL = (
    "transformers/bert", "transformers/gpt2", "transformers/llama", "transformers/t5",
    "transformers/resnet", "transformers/vit", "transformers/convnext", "transformers/mixtral",
    "transformers/mobilenet_v1", "transformers/fnet",
)  # fmt: skip

#: Arguments that make a model of timm smaller, of families that have large ones only.
SMALLER: dict[str, dict[str, int]] = {
    "beit": {"depth": 2, "embed_dim": 192, "num_heads": 3},
    "gemma4_vit": {"depth": 2},
}


class ZooError(TinyTorchError, ValueError):
    """A name that the zoo has not, or a model of it that cannot be built."""


def absent() -> list[str]:
    """The libraries that are not installed."""
    return [name for name in LIBRARIES if importlib.util.find_spec(name) is None]


def catalogue() -> list[str]:
    """The names of all architectures that are installed."""
    declare_torchvision_operators()
    makers = {"transformers": _transformers, "timm": _timm, "torchvision": _torchvision}
    missing = absent()
    return [f"{library}/{name}" for library in LIBRARIES if library not in missing
            for name in makers[library]()]  # fmt: skip


def chosen(
    names: Sequence[str], only: Sequence[str] = (), sample: int | None = None, seed: int = 0
) -> list[str]:
    """A random sample, in random order, of the names that fit one of the patterns.

    A sample begins with the smaller ones of the same seed, so as far as a run of it has come, it is
    a random sample, too.

    Raises:
        ZooError: nothing fits.

    >>> chosen(["transformers/bert", "transformers/t5", "timm/vit"], ["transformers/*"], 1)
    ['transformers/bert']
    """
    found = [n for n in names if not only or any(fnmatch(n, p) or p == _short(n) for p in only)]
    if not found:
        raise ZooError(
            f"no architecture fits {', '.join(only)}; there are {len(names)}, such as "
            f"{', '.join(names[:5])}; a pattern is transformers/ber* or bert"
        )
    if sample is not None:
        random.Random(seed).shuffle(found)
    return found[:sample]


def _short(name: str) -> str:
    return name.partition("/")[2]


def build(name: str, batch: int = 2) -> tuple[nn.Module, dict[str, Any]]:
    """A small model with inputs, in evaluation mode.

    Raises:
        TinyError: it does not become small, or does not build or run.
        ZooError: there is no such name.
    """
    declare_torchvision_operators()
    library, _, short = name.partition("/")
    if library == "transformers":
        return tiny_model(*classes_of(short), batch)
    if library == "timm":
        import timm

        known = _timm()
        if short not in known:
            raise ZooError(f"timm has no family {short!r}; it has {', '.join(known)}")
        model: nn.Module = timm.create_model(
            known[short], pretrained=False, num_classes=10, **SMALLER.get(short, {})
        )
        return _with_image(model, batch)
    if library == "torchvision":
        import torchvision

        known = _torchvision()
        if short not in known:
            raise ZooError(f"torchvision has no family {short!r}; it has {', '.join(known)}")
        made = torchvision.models.get_model(
            known[short], num_classes=10, **_without_weights(known[short])
        )
        return _with_image(made, batch)
    raise ZooError(f"there is no library {library!r}; there are {', '.join(LIBRARIES)}")


def _transformers() -> list[str]:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return list(MODEL_MAPPING_NAMES)


def _timm() -> dict[str, str]:
    """For each family the first of its models that is not large."""
    import timm

    found: dict[str, str] = {}
    small = ("nano", "pico", "femto", "atto", "tiny", "small", "_s", "18", "xxs", "b0", "000")
    for module in timm.list_modules():
        models = timm.list_models(module=module)
        if models:
            fitting = [m for s in small for m in models if s in m]
            found[module] = (fitting or models)[0]
    return found


def _torchvision() -> dict[str, str]:
    """For each family, which is a module of torchvision, the model with the fewest parameters;
    but for detectors, whose inputs are lists, quantized models, and optical flow."""
    from torchvision import models

    found: dict[str, tuple[int, str]] = {}
    for name in models.list_models():
        family = models.get_model_builder(name).__module__.removeprefix("torchvision.models.")
        if not family.startswith(("detection", "quantization", "optical_flow")):
            counts = [w.meta["num_params"] for w in models.get_model_weights(name)]
            one = (min(counts, default=MOST_PARAMETERS), name)
            found[family] = min(found.get(family, one), one)
    return {family: name for family, (_, name) in sorted(found.items())}


def _without_weights(name: str) -> dict[str, Any]:
    """Arguments that keep a model from loading weights for its backbone."""
    from torchvision import models

    given = inspect.signature(models.get_model_builder(name)).parameters
    return {"weights_backbone": None} if "weights_backbone" in given else {}


def _with_image(model: nn.Module, batch: int) -> tuple[nn.Module, dict[str, Any]]:
    """The image size that the model runs on, the smaller one first."""
    count = sum(p.numel() for p in model.parameters())
    if count > MOST_AT_LAST:
        raise TinyError(f"has {count:,} parameters, more than {MOST_AT_LAST:,}")
    said = ""
    shapes = [(s, s) for s in (IMAGE, 224, 256, 384)] + [(16, IMAGE, IMAGE), (16, 224, 224)]
    main = next(iter(inspect.signature(model.forward).parameters))
    for shape in shapes:  # a video has frames
        inputs = {main: torch.randn(batch, 3, *shape)}
        try:
            with torch.no_grad():
                model.eval()(**inputs)
        except Exception as error:  # a model may raise anything
            said = said or f"does not run: {type(error).__name__}: {str(error)[:200]}"
            continue
        return model, inputs
    raise TinyError(said)
