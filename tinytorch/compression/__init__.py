"""Models made smaller and faster: quantization, pruning, low rank, distillation.

A file imports only from files above it:

calibration   the range of values that codes are to cover
codes         values as small integers with a scale: affine and symmetric
schemes       what `quantize_` can do, by name
layers        layers whose weights are codes
observer      what a layer's inputs look like
replacement   layers exchanged for others
storage       one block of memory for the codes of a model
training      quantization-aware training
quantization  `quantize_`
axes          which dimensions of a model's tensors are the same channels, from its graph
channels      structured pruning: channels that are really removed
pruning       magnitude pruning, at once or along a schedule
low_rank      linear layers by singular values, under a budget
distillation  losses and training with a teacher
"""

from tinytorch.compression.calibration import Calibration
from tinytorch.compression.channels import (
    Channels,
    find_channels,
    keep_channels_,
    prune_channels_,
)
from tinytorch.compression.codes import (
    QParams,
    choose_qparams,
    dequantize,
    pack_int4,
    quantize,
    unpack_int4,
)
from tinytorch.compression.distillation import (
    Distiller,
    distillation_loss,
    distillation_step,
    soft_loss,
)
from tinytorch.compression.layers import QuantizedConv2d, QuantizedEmbedding, QuantizedLinear
from tinytorch.compression.low_rank import Factored, factorize, low_rank_
from tinytorch.compression.pruning import (
    GradualPruning,
    apply_masks_,
    cubic_sparsity,
    magnitude_masks,
    prune_magnitude_,
    sparsity,
)
from tinytorch.compression.quantization import quantize_
from tinytorch.compression.schemes import SCHEMES, Scheme
from tinytorch.compression.training import convert_qat_, fake_quantize, prepare_qat_

__all__ = [
    "SCHEMES",
    "Calibration",
    "Channels",
    "Distiller",
    "Factored",
    "GradualPruning",
    "QParams",
    "QuantizedConv2d",
    "QuantizedEmbedding",
    "QuantizedLinear",
    "Scheme",
    "apply_masks_",
    "choose_qparams",
    "convert_qat_",
    "cubic_sparsity",
    "dequantize",
    "distillation_loss",
    "distillation_step",
    "factorize",
    "fake_quantize",
    "find_channels",
    "keep_channels_",
    "low_rank_",
    "magnitude_masks",
    "pack_int4",
    "prepare_qat_",
    "prune_channels_",
    "prune_magnitude_",
    "quantize",
    "quantize_",
    "soft_loss",
    "sparsity",
    "unpack_int4",
]
