from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.exhaustive
def test_a_token_is_set_beside_reading_the_weights_and_the_peers() -> None:
    """Logits are compared with transformers' before the timing, which raises if they differ."""
    pytest.importorskip("transformers")
    command = [sys.executable, "generation.py", "--json", "--rounds=2", "--small"]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = {(r["group"], r["name"]): r for r in json.loads(done.stdout)["results"]}
    float32 = results["a token", "GPT-2, 124 M, float32"]
    assert float32["ratios"].keys() >= {"read", "eager", "transformers"}
    is_installed = all(importlib.util.find_spec(name) for name in ("xllamacpp", "gguf"))
    assert ("llama.cpp float32" in float32["ratios"]) == is_installed
    int8 = results["a token", "GPT-2, 124 M, int8_dynamic"]
    assert int8["ratios"].keys() >= {"read", "our float32", "torch int8"}
    assert ("llama.cpp Q8_0" in int8["ratios"]) == is_installed
    int4 = results["a token", "GPT-2, 124 M, int4"]
    assert int4["nbytes"] < int8["nbytes"] < 0.3 * float32["nbytes"]
    for scheme in ("float32", "int8_dynamic", "int4"):
        assert ("5 tokens in a pass", f"GPT-2, 124 M, {scheme}") in results
    llama = {n: r for (group, n), r in results.items() if group == "a token" and "Llama" in n}
    whole, half = llama.values()
    assert half["nbytes"] < 0.6 * whole["nbytes"]
    assert half["ratios"].keys() >= {"read", "transformers float32", "transformers bfloat16"}
    drafted = [name for group, name in results if group == "64 tokens with a draft"]
    assert len(drafted) == 4 and all(name.endswith("% accepted") for name in drafted)
