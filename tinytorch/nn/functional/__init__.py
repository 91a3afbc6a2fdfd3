"""Layers and losses as functions: what the modules of `tinytorch.nn` call."""

from functools import partial

from tinytorch.absent import names_of
from tinytorch.functions.indexing import one_hot
from tinytorch.functions.publish import with_input
from tinytorch.nn.functional.activation import (
    celu,
    elu,
    gelu,
    glu,
    leaky_relu,
    logsigmoid,
    mish,
    prelu,
    relu,
    selu,
    sigmoid,
    silu,
    softplus,
    softsign,
    tanh,
    tanhshrink,
)
from tinytorch.nn.functional.attention import scaled_dot_product_attention
from tinytorch.nn.functional.conv import conv1d, conv2d, conv_transpose1d, conv_transpose2d
from tinytorch.nn.functional.cross_entropy import cross_entropy, nll_loss
from tinytorch.nn.functional.dropout import alpha_dropout, dropout, dropout1d, dropout2d, dropout3d
from tinytorch.nn.functional.embedding import embedding, embedding_bag
from tinytorch.nn.functional.inplace import (
    celu_,
    elu_,
    hardtanh_,
    leaky_relu_,
    relu_,
    rrelu_,
    selu_,
    threshold_,
)
from tinytorch.nn.functional.likelihood import ctc_loss, gaussian_nll_loss, poisson_nll_loss
from tinytorch.nn.functional.linear import bilinear, linear
from tinytorch.nn.functional.margin import (
    cosine_embedding_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from tinytorch.nn.functional.norm import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    rms_norm,
)
from tinytorch.nn.functional.padding import pad
from tinytorch.nn.functional.piecewise import (
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    relu6,
    rrelu,
    softshrink,
    threshold,
)
from tinytorch.nn.functional.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    avg_pool1d,
    avg_pool2d,
    max_pool1d,
    max_pool2d,
    max_unpool2d,
)
from tinytorch.nn.functional.probability import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    kl_div,
)
from tinytorch.nn.functional.regression import huber_loss, l1_loss, mse_loss, smooth_l1_loss
from tinytorch.nn.functional.resampling import (
    channel_shuffle,
    interpolate,
    pixel_shuffle,
    pixel_unshuffle,
)
from tinytorch.nn.functional.similarity import cosine_similarity, normalize, pairwise_distance
from tinytorch.nn.functional.softmax import gumbel_softmax, log_softmax, softmax, softmin
from tinytorch.nn.functional.windows import fold, unfold
from tinytorch.replay import replay_all

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "celu_",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv_transpose1d",
    "conv_transpose2d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "embedding",
    "embedding_bag",
    "fold",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool2d",
    "max_unpool2d",
    "mish",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
]

# Functions made of several ops, not all of them elementwise.
# before calls are replayed: then those without names cost the same
globals().update({n: with_input(globals()[n], "tinytorch.nn.functional") for n in __all__})
_in_place = [name for name in __all__ if name.endswith("_")]  # of what takes `input` now
globals().update({n: partial(globals()[n.removesuffix("_")], inplace=True) for n in _in_place})
replay_all(
    globals(),
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool2d "
    "avg_pool1d avg_pool2d bilinear binary_cross_entropy binary_cross_entropy_with_logits "
    "channel_shuffle conv1d cosine_embedding_loss cosine_similarity cross_entropy ctc_loss fold "
    "embedding gaussian_nll_loss glu group_norm hinge_embedding_loss huber_loss interpolate kl_div "
    "l1_loss layer_norm linear local_response_norm margin_ranking_loss max_pool1d "
    "max_pool2d max_unpool2d mse_loss multi_margin_loss multilabel_soft_margin_loss "
    "nll_loss normalize pad pairwise_distance pixel_shuffle pixel_unshuffle "
    "scaled_dot_product_attention "
    "poisson_nll_loss prelu rms_norm smooth_l1_loss soft_margin_loss triplet_margin_loss "
    "unfold conv_transpose1d conv_transpose2d instance_norm one_hot softmax log_softmax softmin",
    __name__,
)

__getattr__ = names_of("torch.nn.functional")  # names of PyTorch's that are not here
