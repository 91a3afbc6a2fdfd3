"""Models made smaller and faster: quantization.

A file imports only from files above it:

calibration   the range of values that codes are to cover
codes         values as small integers with a scale: affine and symmetric
schemes       what `quantize_` can do, by name
layers        layers whose weights are codes
observer      what a layer's inputs look like
quantization  `quantize_`
training      quantization-aware training
"""

from tinytorch.compression.calibration import Calibration
from tinytorch.compression.codes import (
    QParams,
    choose_qparams,
    dequantize,
    pack_int4,
    quantize,
    unpack_int4,
)
from tinytorch.compression.layers import QuantizedConv2d, QuantizedEmbedding, QuantizedLinear
from tinytorch.compression.quantization import quantize_
from tinytorch.compression.schemes import SCHEMES, Scheme
from tinytorch.compression.training import convert_qat_, fake_quantize, prepare_qat_

__all__ = [
    "SCHEMES",
    "Calibration",
    "QParams",
    "QuantizedConv2d",
    "QuantizedEmbedding",
    "QuantizedLinear",
    "Scheme",
    "choose_qparams",
    "convert_qat_",
    "dequantize",
    "fake_quantize",
    "pack_int4",
    "prepare_qat_",
    "quantize",
    "quantize_",
    "unpack_int4",
]
