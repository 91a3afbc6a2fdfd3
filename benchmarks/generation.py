"""Decoding, one token after the other: how near to the bandwidth of memory, and beside others.

Random weights, batch 1. "read/ours" is the share of the bandwidth: how long reading the weights
once takes, in the same rounds, as part of the time of a token. Logits are compared before anything
is timed. Peers: transformers with its cache; PyTorch's dynamic int8 on the same model; llama.cpp on
the same weights where it is installed, whose tokens come through its server (`llama_cpp`).
Speculative decoding is measured on models that have learned something (`speculation`).
"""

from thread_count import THREADS  # noqa: I001 - before NumPy

import argparse
import gc
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

import llama_cpp
import numpy as np
import speculation
import torch
from runner import ROUNDS, Case, Remote, Result, as_json, measure, report
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.pytorch_utils import Conv1D

import tinytorch
from tinytorch.bench.peak import memory_bandwidth
from tinytorch.compression import quantize_
from tinytorch.jit.library import kernel
from tinytorch.nn.decoding import DecodeStep
from tinytorch.nn.gpt import GPT
from tinytorch.nn.gpt_weights import gpt_from_huggingface
from tinytorch.tensor import Tensor

PROMPT = 64
SEVERAL = 5  # tokens that a pass of speculative decoding checks


@kernel
def _sum(x: Any) -> Any:
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i]
    return total


def reader(nbytes: int) -> Callable[[], object]:
    """Reads so many bytes from memory, in one stream."""
    x = np.ones(nbytes // 4, np.float32)
    return lambda: _sum(x)


def gpt2(small: bool) -> Any:
    """Of 124 million weights, in transformers."""
    sizes = {"n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 100} if small else {}
    return GPT2LMHeadModel(GPT2Config(**sizes)).eval()


def llama(small: bool, layers: int) -> Any:
    """TinyLlama's widths (1.1 billion weights with its 22 layers), in transformers."""
    sizes: dict[str, Any] = {"hidden_size": 2048, "intermediate_size": 5632, "vocab_size": 32_000}
    sizes |= {"num_attention_heads": 32, "num_key_value_heads": 4, "num_hidden_layers": layers}
    if small:
        sizes |= {"hidden_size": 64, "intermediate_size": 96, "vocab_size": 100}
        sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=True)).eval()


def ours(model: GPT, tokens: int = 1, *, is_compiled: bool = True) -> Callable[[], np.ndarray]:
    """The logits after the last of so many new tokens, behind a prompt.

    The cache has room for as many tokens as the model sees, and not for these only.
    """
    cache = model.make_cache(1, model.config.context)
    new = Tensor.from_numpy(np.full((1, tokens), 7))
    with tinytorch.no_grad():
        model(Tensor.from_numpy(np.arange(PROMPT)[None]), cache, keep=1)
    run = (
        DecodeStep(model, cache, tinytorch.compile) if is_compiled else partial(model, cache=cache)
    )

    def step() -> np.ndarray:
        cache.rewind(PROMPT)
        with tinytorch.no_grad():
            logits: np.ndarray = run(new).numpy()
        return logits[0, -1]

    return step


def theirs(model: Any) -> Callable[[], np.ndarray]:
    """The same of transformers."""
    past, new = DynamicCache(config=model.config), torch.full((1, 1), 7)
    with torch.inference_mode():
        model(torch.arange(PROMPT)[None], past_key_values=past, use_cache=True)

    def step() -> np.ndarray:
        if past.get_seq_length() > PROMPT:
            past.crop(PROMPT - past.get_seq_length())
        with torch.inference_mode():
            logits = model(new, past_key_values=past, use_cache=True).logits
            values: np.ndarray = logits.float().numpy()
        return values[0, -1]

    return step


def check(one: Callable[[], np.ndarray], other: Callable[[], np.ndarray], within: float) -> None:
    """Raises AssertionError where logits differ by more than a part of the largest, twice."""
    for _ in range(2):
        a, b = one(), other()
        np.testing.assert_allclose(a, b, rtol=0, atol=within * np.abs(b).max())


def bytes_of_a_token(model: GPT) -> int:
    """Of the weights that a token reads: of an embedding that is the output layer too, all."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    unread = ("positions.",) if model.config.tied else ("positions.", "embedding.")
    return sum(t.numel() * t.element_size() for name, t in tensors if not name.startswith(unread))


def torch_int8(model: Any) -> Any:
    """The model with PyTorch's dynamic int8 layers, in place; the output layer is one of them."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Conv1D):
                linear = torch.nn.Linear(*child.weight.shape)
                linear.weight.data = child.weight.data.t().contiguous()
                linear.bias.data = child.bias.data
                setattr(module, name, linear)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


def cases(small: bool, layers: int) -> Iterator[Case]:
    """One after the other, so that few models are in memory at a time."""
    for name, make in (
        ("GPT-2, 124 M", lambda: gpt2(small)),
        (f"Llama, 2048 wide, {layers} layers", lambda: llama(small, layers)),
    ):
        peer = make()
        model = gpt_from_huggingface(peer.config, peer.state_dict())
        one, other, size = ours(model), theirs(peer), bytes_of_a_token(model)
        check(one, other, 1e-4)
        eager = ours(model, is_compiled=False)
        contestants = {"ours": one, "read": reader(size), "eager": eager, "transformers": other}
        remote = in_llama_cpp(peer, "float32", one) if name.startswith("GPT-2") else {}
        yield Case("a token", f"{name}, float32", contestants, remote, nbytes=size)
        if name.startswith("GPT-2"):
            del peer, other, contestants, remote
            gc.collect()
            several = ours(model, SEVERAL)
            singles = {"ours": several, "read": reader(size), "one token": one}
            yield Case(f"{SEVERAL} tokens in a pass", f"{name}, float32", singles, nbytes=size)
            del several, singles
            yield from quantized(name, model, lambda: gpt2(small))
        del model, one
        gc.collect()
    yield in_bfloat16(small, layers)


def in_bfloat16(small: bool, layers: int) -> Case:
    """A Llama as it is published: ours reads bfloat16 and computes in float32.

    PyTorch computes in either; its float32 model has the same weights.
    """
    half = llama(small, layers).bfloat16()
    model = quantize_(gpt_from_huggingface(half.config, half.state_dict()), "bfloat16")
    gc.collect()
    whole = llama(small, layers)
    whole.load_state_dict(half.state_dict())
    one, other, size = ours(model), theirs(whole), bytes_of_a_token(model)
    check(one, other, 1e-4)
    contestants = {"ours": one, "read": reader(size), "transformers float32": other}
    contestants["transformers bfloat16"] = theirs(half)
    return Case("a token", f"Llama, 2048 wide, {layers} layers, bfloat16", contestants, nbytes=size)


def in_llama_cpp(
    model: Any, file_format: str, our_token: Callable[[], np.ndarray]
) -> Mapping[str, Remote]:
    """llama.cpp with a model of transformers; nothing where it is not installed.

    Raises:
        AssertionError: in float32, its likeliest token after the prompt and `our_token` is another.
    """
    if not llama_cpp.is_installed():
        return {}
    prompt = [*range(PROMPT), 7]
    server = llama_cpp.LlamaCpp(model.config, model.state_dict(), file_format, prompt, THREADS)
    if file_format == "float32":
        assert server.answer(1) == [int(our_token().argmax())], "llama.cpp writes another token"
    return {f"llama.cpp {file_format}": server.seconds}


LLAMA_CPP = {"int8_dynamic": "Q8_0", "int4": "Q4_0"}


def quantized(name: str, model: GPT, make: Callable[[], Any]) -> Iterator[Case]:
    """int8, beside PyTorch's, and int4; `float32` is our own."""
    whole = ours(model)
    for scheme in ("int8_dynamic", "int8", "int4"):
        twin = GPT(model.config).eval()
        twin.load_state_dict(model.state_dict())
        quantize_(twin, scheme)
        gc.collect()
        one, size = ours(twin), bytes_of_a_token(twin)
        check(one, whole, 0.4 if scheme == "int4" else 0.1)
        contestants = {"ours": one, "read": reader(size), "our float32": whole}
        if scheme == "int8_dynamic":
            contestants["torch int8"] = theirs(torch_int8(make()))
        remote = in_llama_cpp(make(), LLAMA_CPP[scheme], one) if scheme in LLAMA_CPP else {}
        yield Case("a token", f"{name}, {scheme}", contestants, remote, nbytes=size)
        if scheme != "int8":
            several = {"ours": ours(twin, SEVERAL), "read": reader(size), "one token": one}
            yield Case(f"{SEVERAL} tokens in a pass", f"{name}, {scheme}", several, nbytes=size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="more than one: wall clock")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--layers", type=int, default=4, help="of the Llama; 22 take 9 GB")
    parser.add_argument("--small", action="store_true", help="tiny models, to see that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    tinytorch.set_num_threads(THREADS)
    tinytorch.set_backend("optimized")
    clock = "cpu" if THREADS == 1 else "wall"
    results: list[Result] = []
    for case in chain(cases(options.small, options.layers), speculation.cases(options.small)):
        results.append(measure(case, clock=clock, rounds=options.rounds))
    if options.json:
        print(as_json(results, threads=THREADS, clock=clock))
        return
    report(results, bandwidth=memory_bandwidth(), cores=THREADS)


if __name__ == "__main__":
    main()
