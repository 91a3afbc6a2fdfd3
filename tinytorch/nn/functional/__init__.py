"""Layers and losses as functions: what the modules of `tinytorch.nn` call."""

from tinytorch.functions.indexing import one_hot
from tinytorch.functions.movement import pad
from tinytorch.nn.functional.activation import (
    elu,
    gelu,
    hardtanh,
    leaky_relu,
    log_softmax,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    softmax,
    softplus,
    softsign,
    tanh,
)
from tinytorch.nn.functional.conv import conv1d, conv2d
from tinytorch.nn.functional.cross_entropy import cross_entropy, nll_loss
from tinytorch.nn.functional.dropout import dropout, dropout2d
from tinytorch.nn.functional.embedding import embedding
from tinytorch.nn.functional.linear import linear
from tinytorch.nn.functional.norm import batch_norm, group_norm, layer_norm, rms_norm
from tinytorch.nn.functional.pooling import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from tinytorch.nn.functional.probability import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    kl_div,
)
from tinytorch.nn.functional.regression import huber_loss, l1_loss, mse_loss, smooth_l1_loss

__all__ = [
    "adaptive_avg_pool2d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "conv1d",
    "conv2d",
    "cross_entropy",
    "dropout",
    "dropout2d",
    "elu",
    "embedding",
    "gelu",
    "group_norm",
    "hardtanh",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "max_pool2d",
    "mish",
    "mse_loss",
    "nll_loss",
    "one_hot",
    "pad",
    "prelu",
    "relu",
    "relu6",
    "rms_norm",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "softsign",
    "tanh",
]
