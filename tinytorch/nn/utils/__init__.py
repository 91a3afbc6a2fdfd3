"""Tools for parameters and gradients, sequences of different lengths, and computed weights."""

from tinytorch.nn.utils import parametrizations, parametrize, rnn
from tinytorch.nn.utils.classic_norms import (
    remove_spectral_norm,
    remove_weight_norm,
    spectral_norm,
    weight_norm,
)
from tinytorch.nn.utils.vector import parameters_to_vector, vector_to_parameters
from tinytorch.optim.clip import clip_grad_norm_, clip_grad_value_

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]
