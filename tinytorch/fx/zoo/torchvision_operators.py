"""Operators that torchvision's Python code refers to, where its compiled part does not load."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.library import Library


@cache  # the declarations last as long as the library that is returned
def declare_torchvision_operators() -> Library | None:
    """Declare `nms` and `qnms`, without kernels, if `import torchvision` fails for want of them.

    PyPI's wheels of torchvision for Linux are built for CUDA: beside a PyTorch for the CPU their
    operators do not load, and importing torchvision, timm or an image processor of transformers
    raises "operator torchvision::nms does not exist". Only detectors call them, which the zoo has
    not; called nevertheless they raise PyTorch's NotImplementedError.

    Returns:
        The declarations; None if the operators load, or there is no torchvision.
    """
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return None
    compiled = next(Path(spec.origin).parent.glob("_C.*"), None)
    if compiled is None:
        return None
    try:
        torch.ops.load_library(str(compiled))  # type: ignore[no-untyped-call]
    except OSError:  # libcudart.so: cannot open shared object file
        library: Any = Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return library
    return None
