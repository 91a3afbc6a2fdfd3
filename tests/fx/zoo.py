"""Small models of many kinds, for tests of everything that takes a model.

Most are classes of transformers in tiny configurations, with random weights and dropout on; the
others have what those lack. `needs` says what a kind is here for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

WORDS, LENGTH = 64, 10


@dataclass
class Kind:
    """An architecture.

    Attributes:
        make: a model, in training mode; weights depend on torch's seed.
        inputs: a batch of other values for each seed.
        needs: what it has that is hard.
        is_fast: it is in the fast suite.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], dict[str, Tensor]]
    needs: str
    is_fast: bool = False

    def model(self, seed: int = 0) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.make().train()

    def batch(self, seed: int = 0) -> dict[str, Tensor]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + 100)
            return self.inputs()


ZOO: dict[str, Kind] = {}


def kind(inputs: Callable[[], dict[str, Tensor]], needs: str, fast: bool = False) -> Any:
    """Put what a function makes into the zoo, under the function's name."""

    def register(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        ZOO[make.__name__] = Kind(make.__name__, make, inputs, needs, fast)
        return make

    return register


def every_kind() -> list[Any]:
    """A parameter of a test for each; those that take long are marked slow."""
    marks = {False: [pytest.mark.slow], True: []}
    return [pytest.param(each, id=name, marks=marks[each.is_fast]) for name, each in ZOO.items()]


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The model's own loss, or the mean of the squares of its first floating-point result."""
    output = model(**batch)
    own = getattr(output, "loss", None)
    if own is not None:
        return own
    first = output if isinstance(output, Tensor) else next(iter(_values(output)))
    return first.square().mean()


def _values(output: Any) -> list[Tensor]:
    values = output.values() if hasattr(output, "values") else output
    return [v for v in values if isinstance(v, Tensor) and v.is_floating_point()]


def words() -> dict[str, Tensor]:
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, -3:] = 0
    return {"input_ids": torch.randint(3, WORDS, (2, LENGTH)), "attention_mask": mask}


def labelled() -> dict[str, Tensor]:
    return {**words(), "labels": torch.randint(3, WORDS, (2, LENGTH))}


def unmasked() -> dict[str, Tensor]:
    ids = torch.randint(3, WORDS, (2, LENGTH))
    return {"input_ids": ids, "labels": ids.roll(1, 1)}


def pixels() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, 32, 32)}


def vectors() -> dict[str, Tensor]:
    return {"x": torch.randn(4, 6)}


# -- text ------------------------------------------------------------------------------------------


@kind(words, "an encoder with a mask, dropout", fast=True)
def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32,
    ))  # fmt: skip


@kind(words, "an encoder whose attention counts distances")
def deberta() -> nn.Module:
    from transformers import DebertaV2Config, DebertaV2Model

    return DebertaV2Model(DebertaV2Config(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32, relative_attention=True,
        pos_att_type=["c2p", "p2c"], position_buckets=8,
    ))  # fmt: skip


@kind(labelled, "a decoder; embedding and head are one tensor", fast=True)
def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(
        vocab_size=WORDS, n_embd=32, n_layer=1, n_head=2, n_positions=32, use_cache=False,
        bos_token_id=0, eos_token_id=0,
    ))  # fmt: skip


@kind(unmasked, "a decoder with rotary positions and grouped heads", fast=True)
def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, use_cache=False, tie_word_embeddings=True,
    ))  # fmt: skip


@kind(unmasked, "a mixture of experts", fast=True)
def mixtral() -> nn.Module:
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(MixtralConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, use_cache=False,
    ))  # fmt: skip


@kind(labelled, "an encoder and a decoder, buckets of distances, tied weights", fast=True)
def t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(
        vocab_size=WORDS, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2,
        decoder_start_token_id=0, use_cache=False,
    ))  # fmt: skip


@kind(unmasked, "a state space: a scan over the sequence")
def mamba() -> nn.Module:
    from transformers import MambaConfig, MambaForCausalLM

    return MambaForCausalLM(MambaConfig(
        vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, state_size=4, use_cache=False,
    ))  # fmt: skip


# -- images ----------------------------------------------------------------------------------------


@kind(pixels, "an encoder of patches")
def vit() -> nn.Module:
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        image_size=32, patch_size=8,
    ))  # fmt: skip


@kind(pixels, "windows that are rolled")
def swin() -> nn.Module:
    from transformers import SwinConfig, SwinModel

    return SwinModel(SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4,
    ))  # fmt: skip


@kind(pixels, "convolutions and batch norm", fast=True)
def resnet() -> nn.Module:
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="bottleneck",
    ))  # fmt: skip


@kind(pixels, "gradients of convolutions that lie otherwise than their parameters", fast=True)
def convnext() -> nn.Module:
    from transformers import ConvNextConfig, ConvNextModel

    return ConvNextModel(ConvNextConfig(
        hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, image_size=32, drop_path_rate=0.1,
    ))  # fmt: skip


@kind(pixels, "attention over reduced images, an up-sampling decoder")
def glpn() -> nn.Module:
    from transformers import GLPNConfig, GLPNForDepthEstimation

    return GLPNForDepthEstimation(GLPNConfig(
        num_encoder_blocks=4, depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 16, 16],
        sr_ratios=[4, 2, 1, 1], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=8,
    ))  # fmt: skip


@kind(lambda: {"input_values": torch.randn(2, 400)}, "convolutions over sound, weight norm")
def wav2vec2() -> nn.Module:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    return Wav2Vec2Model(Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        conv_dim=(8, 8), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2,
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, vocab_size=WORDS,
        mask_time_prob=0.0, layerdrop=0.0,
    ))  # fmt: skip


# -- what those lack -------------------------------------------------------------------------------


@kind(lambda: {"x": torch.randn(3, 5, 6)}, "oneDNN's recurrent layers", fast=True)
class lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0])


@kind(lambda: {"x": torch.randn(3, 5, 6)}, "recurrent cells, step by step")
class gru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(6, 8, 1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


@kind(
    lambda: {"x": torch.randn(6, 4), "edges": torch.randint(0, 6, (2, 12))},
    "messages added up where edges end: gather, scatter", fast=True,
)  # fmt: skip
class graph_network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h = self.first(x).relu()
        messages = self.second(h[edges[0]])
        found = torch.zeros_like(h).index_add(0, edges[1], messages)
        degree = torch.zeros(len(x)).scatter_add(0, edges[1], torch.ones(edges.shape[1]))
        return found / degree.clamp(min=1)[:, None] + h


@kind(vectors, "writes into views, chunk, out=, index_put", fast=True)
class writer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        left, right = (part.clone() for part in y.chunk(2, 1))
        left.mul_(2).add_(right)
        z = torch.zeros(4, 6)
        z[:, :3] = left
        z[torch.arange(4), torch.tensor([3, 4, 5, 3])] = right[:, 0]
        with torch.no_grad():
            self.seen.add_(y.mean(0))
            total = torch.empty(6)
            torch.sum(x, 0, out=total)
        return z.softmax(-1) * y + total


@kind(vectors, "gradients, and a parameter, that lie otherwise than the trace believes", fast=True)
class layouts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(6, 5))
        self.second = nn.Parameter(torch.randn(7, 6).t())
        self.conv = nn.Conv2d(1, 4, 3, padding=1).to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.first.t().contiguous().t()
        y = functional.softplus(y.t()).t() @ self.first.t()
        y = y + functional.elu((x @ self.second).t()).t()[:, :6]
        z = functional.interpolate(y[None, None], scale_factor=2.0, mode="bilinear")
        return self.conv(z)
