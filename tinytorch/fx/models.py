"""Models by name: `hf:resnet152`, `hf:bert-base`, `hf:gpt2`, `hf:` and any configuration class of
transformers, or `file.py:factory` of your own.

Those of `hf:` are built from their configurations in transformers, with random weights: nothing is
downloaded.
"""

from __future__ import annotations

import copy
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves, tree_map_only

from tinytorch.errors import TinyTorchError, missing_extra
from tinytorch.fx.optimize.devices import devices_of, generators_kept, seed_generators

Batch = Any  # a tensor, or a tuple, list or dict of them
Loss = Callable[[nn.Module, Batch], Tensor]


class ModelError(TinyTorchError, ValueError):
    """A model that cannot be found or built."""


def call(model: nn.Module, batch: Batch) -> Any:
    """The model on a batch: a dict is its keyword arguments, a tuple its positional ones."""
    if isinstance(batch, dict):
        return model(**batch)
    if isinstance(batch, (tuple, list)):
        return model(*batch)
    return model(batch)


def call_with_state(
    model: nn.Module,
    state: dict[str, Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """The model called with other tensors as its parameters and buffers; its own are put back.

    `functional_call` leaves the others in a module that has two names. Here each module is met
    once, and a tensor in two modules is replaced in both.

    Args:
        state: by the names of `named_parameters()` and `named_buffers()`. Where the model assigns
            a buffer, it has the new one afterwards.
    """
    names: dict[int, str] = {}  # of each tensor the first
    places: dict[str, str] = {}
    for prefix, module in model.named_modules():
        for own in (module._parameters, module._buffers):
            for name, tensor in own.items():
                if tensor is not None:
                    place = f"{prefix}.{name}".lstrip(".")
                    places[place] = names.setdefault(id(tensor), place)
    given = {place: state[name] for place, name in places.items() if name in state}
    result = functional_call(model, given, args, kwargs, tie_weights=False)
    state.update({name: given[name] for name in state if name in given})
    return result


def model_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The loss that a model computes itself: the `loss` of its output, as in transformers.

    Raises:
        ModelError: its output has none.
    """
    output = call(model, batch)
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if loss is None and isinstance(output, Tensor) and output.ndim == 0:
        loss = output
    if not isinstance(loss, Tensor):
        raise ModelError(
            f"the output of {type(model).__name__} is a {type(output).__name__} without a loss: "
            "put labels into the batch, or give loss=, a function of the model and the batch"
        )
    return loss


def tensors_of(result: Any) -> list[Tensor]:
    """The tensors of a result, in order."""
    return [x for x in tree_leaves(result) if isinstance(x, Tensor)]


def squares_of(result: Any) -> Tensor:
    """One number that depends on every floating-point tensor of a result which has a gradient: the
    sum of their mean squares."""
    parts = [x for x in tensors_of(result)
             if x.is_floating_point() and x.requires_grad and x.numel()]  # fmt: skip
    if not parts:
        return torch.zeros(())
    wide = [x if x.dtype == torch.float64 else x.float() for x in parts]
    return torch.stack([x.square().mean() for x in wide]).sum()


def squares_loss(model: nn.Module, batch: Batch) -> Tensor:
    """`squares_of` the model's output: a loss for a model of which nothing else is known."""
    return squares_of(call(model, batch))


def check_model(model: Any, batch: Batch, *, trains: bool = True) -> None:
    """Raise an error, in a sentence, for what would otherwise fail deep inside a trace.

    Args:
        trains: gradients will be asked for.

    Raises:
        ModelError: it is no module, has nothing to train, or takes another floating-point type.
    """
    if not isinstance(model, nn.Module):
        what = f"the function {model.__name__}" if hasattr(model, "__name__") else repr(model)[:60]
        raise ModelError(
            f"a torch.nn.Module is expected, and this is {what}: put it into the forward of a "
            "module, which holds its parameters"
        )
    parameters = list(model.parameters())
    if trains and not any(p.requires_grad for p in parameters):
        why = "all of its parameters are frozen" if parameters else "it has no parameters"
        raise ModelError(f"{type(model).__name__} cannot be trained: {why}")
    own = {p.dtype for p in parameters if p.is_floating_point()}
    given = {x.dtype for x in tensors_of(batch) if x.is_floating_point()}
    if len(own) == 1 and given and not given & own:
        (wanted,), found = own, next(iter(given))
        try:  # it may convert its input itself
            with torch.no_grad(), generators_kept(devices_of(model)):
                call(copy.deepcopy(model), batch)
            return
        except Exception as error:
            reason = error
        raise ModelError(
            f"the parameters of {type(model).__name__} are {wanted}, and its input is {found}: "
            f"convert one of them (inputs.to({wanted}), or model.to({found}))"
        ) from reason


@dataclass
class LoadedModel:
    """A model with a batch to try it on.

    Attributes:
        name: by which it was asked for.
        inputs: what the model is called with.
        labels: with `inputs` a batch from which the model computes its loss; empty for models of
            your own, which have `loss` instead.
        loss: a function of the model and the batch.
    """

    name: str
    model: nn.Module
    inputs: Batch
    labels: dict[str, Tensor] = field(default_factory=dict)
    loss: Loss = model_loss

    @property
    def batch(self) -> Batch:
        """Inputs and labels: what `loss` takes."""
        return {**self.inputs, **self.labels} if self.labels else self.inputs

    def to(self, device: torch.device) -> LoadedModel:
        """The same on a device; the model itself is moved."""
        inputs, labels = tree_map_only(Tensor, lambda x: x.to(device), (self.inputs, self.labels))
        return replace(self, model=self.model.to(device), inputs=inputs, labels=labels)


def load_model(
    name: str,
    *,
    batch: int = 2,
    sequence: int = 64,
    image: int = 64,
    layers: int | None = None,
    small: bool = False,
    dropout: float | None = None,
    head: str | None = None,
    seed: int = 0,
) -> LoadedModel:
    """A model in training mode, with random weights and a random batch.

    Args:
        name: `hf:resnet152`, `hf:bert-base`, `hf:gpt2`; `hf:LlamaConfig` or any other
            configuration class of transformers, for its base model, whose loss is the mean square
            of its outputs; or `file.py:factory`. A factory takes
            `batch` and returns the model and its inputs, and as a third, if it does not compute
            its own loss, a function of the model and the inputs.
        batch: samples in the batch.
        sequence: tokens in a sample, for the language models.
        image: height and width in pixels, for ResNet.
        layers: how many transformer blocks, or ResNet blocks in each stage, instead of all.
        small: few and narrow layers of the same classes, for tests.
        dropout: the rate of all dropouts instead of the configuration's.
        head: of BERT: "classification" (the default) or "masked-lm".
        seed: of weights and batch. The global generator of torch is left as it was.

    Raises:
        ModelError: there is no such model, or its factory returns something else.
        MissingExtraError: transformers is not installed.

    >>> example = load_model("hf:gpt2", small=True, batch=3, sequence=8)
    >>> tuple(example.inputs["input_ids"].shape)
    (3, 8)
    """
    path, _, factory = name.rpartition(":")
    with generators_kept():
        seed_generators(seed)
        if path.endswith(".py"):
            return _from_file(name, Path(path), factory, batch)
        if name == "hf:resnet152":
            return _resnet(name, batch, image, layers, small)
        if name == "hf:bert-base":
            return _bert(name, batch, sequence, layers, small, dropout, head)
        if name == "hf:gpt2":
            return _gpt2(name, batch, sequence, layers, small, dropout)
        if name.startswith("hf:") and name.endswith("Config"):
            return _of_config(name, batch, small)
    raise ModelError(
        f"there is no model {name!r}; there are hf:resnet152, hf:bert-base, hf:gpt2, hf: and a "
        "configuration class of transformers (hf:LlamaConfig), and file.py:factory for your own"
    )


def _transformers() -> Any:
    # read when transformers is imported: with it, it never looks for a network
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import transformers
    except ImportError:
        raise missing_extra("transformers", "fx", "a model of hf:") from None
    return transformers


def _resnet(name: str, batch: int, image: int, layers: int | None, small: bool) -> LoadedModel:
    hf = _transformers()
    depths = [layers] * 4 if layers else [1] * 4 if small else [3, 8, 36, 3]
    sizes = {"embedding_size": 8, "hidden_sizes": [16, 32, 32, 64]} if small else {}
    classes = 10 if small else 1000
    config = hf.ResNetConfig(depths=depths, layer_type="bottleneck", num_labels=classes, **sizes)
    inputs = {"pixel_values": torch.randn(batch, 3, image, image)}
    labels = {"labels": torch.randint(classes, (batch,))}
    return LoadedModel(name, hf.ResNetForImageClassification(config).train(), inputs, labels)


def _bert(
    name: str,
    batch: int,
    sequence: int,
    layers: int | None,
    small: bool,
    dropout: float | None,
    head: str | None,
) -> LoadedModel:
    hf = _transformers()
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64,
             "vocab_size": 128} if small else {}  # fmt: skip
    rates = {} if dropout is None else {
        "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout
    }  # fmt: skip
    config = hf.BertConfig(num_hidden_layers=layers or (2 if small else 12), **sizes, **rates)
    tokens = torch.randint(config.vocab_size, (batch, sequence))
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if head in (None, "classification"):
        model = hf.BertForSequenceClassification(config)
        labels = {"labels": torch.randint(2, (batch,))}
    elif head == "masked-lm":
        model = hf.BertForMaskedLM(config)
        labels = {"labels": tokens.clone()}
    else:
        raise ModelError(f"BERT has no head {head!r}; it has 'classification' and 'masked-lm'")
    return LoadedModel(name, model.train(), inputs, labels)


def _gpt2(
    name: str, batch: int, sequence: int, layers: int | None, small: bool, dropout: float | None
) -> LoadedModel:
    hf = _transformers()
    sizes = {"n_embd": 32, "n_head": 4, "vocab_size": 128, "n_positions": 64,
             "bos_token_id": 0, "eos_token_id": 0} if small else {}  # fmt: skip
    rates = {} if dropout is None else {
        "resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout
    }  # fmt: skip
    config = hf.GPT2Config(
        n_layer=layers or (2 if small else 12),
        use_cache=False,
        **sizes,
        **rates,
    )
    if sequence > config.n_positions:
        raise ModelError(f"this GPT-2 takes at most {config.n_positions} tokens, not {sequence}")
    tokens = torch.randint(config.vocab_size, (batch, sequence))
    model = hf.GPT2LMHeadModel(config).train()
    model.loss_type = "ForCausalLM"  # what it takes anyway, but with a warning
    return LoadedModel(name, model, {"input_ids": tokens}, {"labels": tokens.clone()})


def _of_config(name: str, batch: int, small: bool) -> LoadedModel:
    _transformers()
    from tinytorch.fx.tiny import classes_of, tiny_model, whole_model

    make = tiny_model if small else whole_model
    model, inputs = make(*classes_of(name.removeprefix("hf:")), batch)
    return LoadedModel(name, model.train(), inputs, loss=squares_loss)


def _from_file(name: str, path: Path, factory: str, batch: int) -> LoadedModel:
    if not path.is_file():
        raise ModelError(f"{name}: there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    make = getattr(module, factory, None)
    if not callable(make):
        names = ", ".join(sorted(n for n, v in vars(module).items() if callable(v)))
        raise ModelError(f"{path} has no function {factory!r}; it has {names}")
    match make(batch=batch):
        case (nn.Module() as model, inputs):
            return LoadedModel(name, model, inputs)
        case (nn.Module() as model, inputs, loss) if callable(loss):
            return LoadedModel(name, model, inputs, loss=loss)
        case other:
            raise ModelError(
                f"{name} returned {type(other).__name__}; it must return (model, inputs) or "
                "(model, inputs, loss)"
            )
