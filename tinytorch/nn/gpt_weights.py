"""Weights of Hugging Face's GPT-2 and Llama models, by the names of our `GPT`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tinytorch.errors import StateDictError
from tinytorch.nn.gpt import GPT, GPTConfig
from tinytorch.tensor import Tensor

Arrays = Mapping[str, np.ndarray]

GPT2_LAYER = {
    "attention_norm": "ln_1", "attention.qkv": "attn.c_attn", "attention.out": "attn.c_proj",
    "mlp_norm": "ln_2", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj",
}  # fmt: skip
LLAMA_LAYER = {
    "attention_norm": "input_layernorm", "attention.out": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm", "mlp.up": "mlp.up_proj", "mlp.gate": "mlp.gate_proj",
    "mlp.down": "mlp.down_proj",
}  # fmt: skip


def gpt_from_huggingface(config: Any, state_dict: Mapping[str, Any]) -> GPT:
    """Our GPT with the weights of a `GPT2LMHeadModel` or a `LlamaForCausalLM`.

    Args:
        config: its `config`: an object with the attributes that transformers gives it.
        state_dict: of the model: tensors or arrays; bfloat16 becomes float32, exactly.

    Raises:
        StateDictError: another kind of model; a weight is missing, or has another shape.
    """
    arrays = {name: _array(value) for name, value in state_dict.items()}
    readers = {"gpt2": _gpt2, "llama": _llama}
    if config.model_type not in readers:
        raise StateDictError(
            f"a model of type {config.model_type!r}: there are {', '.join(readers)}"
        )
    try:
        ours, found = readers[config.model_type](config, arrays)
    except KeyError as error:
        raise StateDictError(f"the state has no {error.args[0]}") from None
    model = GPT(ours)
    model.load_state_dict({name: Tensor.from_numpy(a.copy()) for name, a in found.items()})
    return model.eval()


def _array(value: Any) -> np.ndarray:
    """The numbers of a tensor; NumPy has no bfloat16, in which most Llamas are published."""
    is_half = str(getattr(value, "dtype", "")) == "torch.bfloat16"
    return np.asarray(value.float() if is_half else value)


def _refuse(config: Any, kind: str, **supported: Any) -> None:
    """Raise StateDictError if an attribute of a config is there and has another value."""
    for name, value in supported.items():
        if (found := getattr(config, name, value)) != value:
            raise StateDictError(f"{kind} with {name}={found!r}; only {value!r} is supported")


def _gpt2(config: Any, state: Arrays) -> tuple[GPTConfig, dict[str, np.ndarray]]:
    if config.activation_function not in ("gelu_new", "gelu_pytorch_tanh"):
        raise StateDictError(f"GPT-2 with the activation {config.activation_function!r}")
    _refuse(config, "GPT-2", scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False)
    ours = GPTConfig(
        config.vocab_size, config.n_positions, config.n_layer, config.n_head, config.n_embd,
        hidden=config.n_inner, norm_eps=config.layer_norm_epsilon,
        tied=getattr(config, "tie_word_embeddings", True),
    )  # fmt: skip
    found = {
        "embedding.weight": state["transformer.wte.weight"],
        "positions.weight": state["transformer.wpe.weight"],
        "norm.weight": state["transformer.ln_f.weight"],
        "norm.bias": state["transformer.ln_f.bias"],
    }
    if not ours.tied:
        found["head.weight"] = state["lm_head.weight"]
    for i in range(ours.layers):
        for own, theirs in GPT2_LAYER.items():
            for kind in ("weight", "bias"):
                value = state[f"transformer.h.{i}.{theirs}.{kind}"]
                # their linear layers are stored (in, out)
                found[f"blocks.{i}.{own}.{kind}"] = value.T if value.ndim == 2 else value
    return ours, found


def _llama(config: Any, state: Arrays) -> tuple[GPTConfig, dict[str, np.ndarray]]:
    # transformers 4, and published config.json files, have two attributes in place of one
    rope = getattr(config, "rope_parameters", None) or {
        "rope_theta": getattr(config, "rope_theta", 10_000.0),
        **(getattr(config, "rope_scaling", None) or {}),
    }
    scaled = rope.get("rope_type", rope.get("type", "default"))
    if scaled != "default":
        raise StateDictError(f"Llama with scaled positions: {scaled!r}")
    _refuse(config, "Llama", attention_bias=False, mlp_bias=False, hidden_act="silu")
    ours = GPTConfig(
        config.vocab_size, config.max_position_embeddings, config.num_hidden_layers,
        config.num_attention_heads, config.hidden_size, kv_heads=config.num_key_value_heads,
        hidden=config.intermediate_size, bias=False, norm="rms", norm_eps=config.rms_norm_eps,
        positions="rotary", rotary_base=rope.get("rope_theta", 10_000.0), activation="swiglu",
        tied=config.tie_word_embeddings,
    )  # fmt: skip
    found = {
        "embedding.weight": state["model.embed_tokens.weight"],
        "norm.weight": state["model.norm.weight"],
    }
    if not ours.tied:
        found["head.weight"] = state["lm_head.weight"]
    for i in range(ours.layers):
        own, theirs = f"blocks.{i}", f"model.layers.{i}"
        parts = [state[f"{theirs}.self_attn.{p}_proj.weight"] for p in "qkv"]
        found[f"{own}.attention.qkv.weight"] = np.concatenate(parts)
        for name, other in LLAMA_LAYER.items():
            found[f"{own}.{name}.weight"] = state[f"{theirs}.{other}.weight"]
    return ours, found
