"""What the tests here look at."""

from __future__ import annotations

import pytest

from tinytorch.fx.semantics.semantics import TorchSemantics

SEMANTICS = TorchSemantics()
NAMES = ["hf:resnet152", "hf:bert-base", "hf:gpt2"]
MOSTLY_SLOW = [*(pytest.param(n, marks=pytest.mark.slow) for n in NAMES[:2]), NAMES[2]]
