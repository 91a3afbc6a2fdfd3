"""The paths for timm and torchvision, on packages with the functions of theirs that are called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers.utils import is_timm_available, is_torchvision_available

from tinytorch.fx.tiny import TinyError
from tinytorch.fx.zoo import catalogue as module
from tinytorch.fx.zoo.catalogue import ZooError, absent, build, catalogue, chosen
from tinytorch.fx.zoo.child import run_stage
from tinytorch.fx.zoo.subject import Subject
from tinytorch.fx.zoo.torchvision_operators import declare_torchvision_operators

MODELS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes, width=4, least=0):
        super().__init__()
        self.least = least
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2), nn.BatchNorm2d(width), nn.ReLU())
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        if x.shape[-1] < self.least:
            raise AssertionError(f"Input height ({x.shape[-2]}) doesn't match ({self.least})")
        return self.head(self.stem(x).mean((2, 3)))

    @classmethod
    def large(cls, num_classes):
        return cls(num_classes, width=2_000_000)
"""
TIMM = (
    MODELS
    + """
KNOWN = {"resnet": {"resnet50": Net.large, "resnet18": Net},
         "vision_transformer": {"vit_base": Net.large, "vit_tiny": lambda n: Net(n, least=224)},
         "huge": {"huge_only": Net.large}, "layers": {}}

def list_modules():
    return sorted(KNOWN)

def list_models(filter="", module=""):
    return sorted(KNOWN[module])

def create_model(model_name, pretrained=False, num_classes=1000):
    assert not pretrained
    return next(m[model_name] for m in KNOWN.values() if model_name in m)(num_classes)
"""
)
TORCHVISION = (
    MODELS
    + """
class Weights:
    def __init__(self, count):
        self.meta = {"num_params": count}

def builder(family, **defaults):
    def build(num_classes, weights_backbone="downloaded"):
        assert weights_backbone is None
        return Net(num_classes, **defaults)
    build.__module__ = "torchvision.models." + family
    return build

KNOWN = {"resnet18": (11, builder("resnet")), "resnet152": (60, builder("resnet", width=9)),
         "video_net": (1, builder("video.net")), "raft_small": (1, builder("optical_flow.raft")),
         "fasterrcnn_resnet50_fpn": (1, builder("detection.faster_rcnn"))}

def list_models():
    return sorted(KNOWN)

def get_model_builder(name):
    return KNOWN[name][1]

def get_model_weights(name):
    return [Weights(KNOWN[name][0])]

def get_model(name, **config):
    return KNOWN[name][1](**config)
"""
)


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """timm and torchvision, as far as they are asked; gone afterwards."""
    is_timm_available(), is_torchvision_available()  # transformers remembers what it finds
    names = ("timm", "torchvision", "torchvision.models")
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "__init__.py").write_text(TIMM)
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("from torchvision import models\n")
    (tmp_path / "torchvision" / "models.py").write_text(TORCHVISION)
    monkeypatch.syspath_prepend(tmp_path)
    declare_torchvision_operators.cache_clear()
    yield
    declare_torchvision_operators.cache_clear()
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_a_family_is_its_smallest_model_and_torchvision_has_no_detector():
    names = catalogue()
    assert not {"timm", "torchvision"} & set(absent())
    assert [n for n in names if n.startswith("timm/")] == [
        "timm/huge", "timm/resnet", "timm/vision_transformer",
    ]  # fmt: skip
    assert [n for n in names if n.startswith("torchvision/")] == [
        "torchvision/resnet", "torchvision/video.net",
    ]  # fmt: skip
    assert chosen(names, ["timm/*"], sample=1, seed=1) != chosen(names, ["torchvision/*"])
    assert module._timm()["resnet"] == "resnet18"


@pytest.mark.parametrize(
    ("name", "size"),
    [("timm/resnet", 64), ("timm/vision_transformer", 224), ("torchvision/resnet", 64)],
)
def test_models_of_images_come_with_the_smallest_image_that_they_take(name: str, size: int):
    torch.manual_seed(0)
    model, inputs = build(name, batch=3)
    assert not model.training and inputs["x"].shape == (3, 3, size, size)
    assert model(**inputs).shape == (3, 10)
    found = run_stage(Subject(name, model, inputs), "forward", 60.0)
    assert found.verdict == "bit-equal", found.detail


def test_what_is_too_large_or_unknown_is_refused_with_its_values():
    with pytest.raises(TinyError, match=r"has 80,000,\d+ parameters, more than 60,000,000"):
        build("timm/huge")
    with pytest.raises(ZooError, match="timm has no family 'swin'; it has huge, resnet"):
        build("timm/swin")
    with pytest.raises(ZooError, match="torchvision has no family 'vgg'; it has resnet, video"):
        build("torchvision/vgg")
    with pytest.raises(ZooError, match="there is no library 'keras'"):
        build("keras/resnet")


def test_torchvision_without_its_compiled_part_finds_its_operators_declared(tmp_path: Path):
    declare = declare_torchvision_operators.__wrapped__
    assert declare() is None  # it has no compiled part
    (tmp_path / "torchvision" / "_C.so").write_text("no library")  # as one for CUDA
    declared = declare()
    assert declared is not None
    for name in ("nms", "qnms"):
        with pytest.raises(NotImplementedError, match=f"torchvision::{name}"):
            getattr(torch.ops.torchvision, name)(torch.ones(1, 4), torch.ones(1), 0.5)
