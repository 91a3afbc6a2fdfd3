"""llama.cpp on the model that is measured, where the wheels `xllamacpp` and `gguf` are installed.

The wheel has llama.cpp's server in this process, and no function for a single token. So its time of
a token is that of a whole answer, through the server and with its sampling; the prompt is in its
cache already. The wheel is built for AVX2: `instructions` says what it uses.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from runner import CLOCKS

TOKENS = 16  # of an answer, at the least
FORMATS = {"float32": ("F32", 0), "Q8_0": ("Q8_0", 7), "Q4_0": ("Q4_0", 2)}
"""By the name in a table: gguf's type of tensors, and llama.cpp's number for such a file."""

_NAMES = {
    "ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}  # fmt: skip


def is_installed() -> bool:
    """Whether llama.cpp and the writer of its files can be imported."""
    return all(importlib.util.find_spec(name) for name in ("xllamacpp", "gguf"))


def instructions() -> str:
    """What llama.cpp says of the machine: the instructions that it was built for."""
    import xllamacpp

    return " ".join(str(xllamacpp.get_system_info()).split())


def write_gpt2(path: Path, config: Any, state: Mapping[str, Any], file_format: str) -> None:
    """A GPT-2 of transformers as a GGUF file; its output layer is the embedding.

    Args:
        config, state: the model's; `state` of PyTorch tensors.
        file_format: one of FORMATS; vectors and positions are float32 in each.
    """
    import gguf

    kind, number = FORMATS[file_format]
    tensor_type = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(4 * config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    writer.add_file_type(number)
    size = config.vocab_size
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(size)])
    writer.add_token_types([1] * size)
    writer.add_token_merges(["t 0"])
    writer.add_bos_token_id(size - 1)
    writer.add_eos_token_id(size - 1)

    def add(name: str, array: np.ndarray, is_product: bool) -> None:
        array = np.ascontiguousarray(array)
        if is_product and file_format != "float32":
            packed = gguf.quants.quantize(array, tensor_type)
            writer.add_tensor(name, packed, raw_dtype=tensor_type)
        else:
            writer.add_tensor(name, array)

    arrays = {name.removeprefix("transformer."): t.numpy() for name, t in state.items()}
    add("token_embd.weight", arrays["wte.weight"], True)
    add("position_embd.weight", arrays["wpe.weight"], False)
    for layer in range(config.n_layer):
        for theirs, name in _NAMES.items():
            for part in ("weight", "bias"):
                array = arrays[f"h.{layer}.{theirs}.{part}"]
                is_product = array.ndim == 2
                array = array.T if is_product else array  # PyTorch's Conv1D has (in, out)
                add(f"blk.{layer}.{name}.{part}", array, is_product)
    for part in ("weight", "bias"):
        add(f"output_norm.{part}", arrays[f"ln_f.{part}"], False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    """llama.cpp's server with a model, greedy.

    Args:
        config, state, file_format: as `write_gpt2` takes them.
        prompt: its tokens; they are read once.
        threads: that compute.
    """

    def __init__(
        self, config: Any, state: Mapping[str, Any], file_format: str, prompt: list[int],
        threads: int,
    ) -> None:  # fmt: skip
        import xllamacpp

        self.prompt = prompt
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            write_gpt2(path, config, state, file_format)
            options = xllamacpp.CommonParams()
            options.model.path = str(path)
            options.n_ctx, options.n_parallel, options.verbosity = config.n_positions, 1, 0
            options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
            options.warmup, options.endpoint_slots, options.use_jinja = False, False, False
            self.server = xllamacpp.Server(options)
            self.answer(1)  # what is mapped stays when the file's name is gone

    def answer(self, count: int) -> list[int]:
        """So many tokens behind the prompt, the likeliest ones."""
        said = self.server.handle_completions(
            {
                "prompt": self.prompt, "n_predict": count, "temperature": 0, "top_k": 1,
                "ignore_eos": True, "cache_prompt": True,
            }
        )  # fmt: skip
        text: str = said["choices"][0]["text"]  # the tokens' names in `write_gpt2`: "t7t19t7"
        return [int(number) for number in text.removeprefix("t").split("t")]

    def seconds(self, calls: int, clock: str) -> float:
        """Of a token. The server's threads are not this one, so CPU time is the process's."""
        now = CLOCKS["wall" if clock == "wall" else "process"]
        count = max(calls, TOKENS)
        start = now()
        self.answer(count)
        return (now() - start) / count
