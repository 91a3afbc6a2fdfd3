"""Probability distributions, under PyTorch's names: samples, log-probabilities, entropies.

distribution          what all have: shapes, samples, checks of arguments
normal                the normal distribution
uniform               the uniform distribution
exponential           the exponential distribution
bernoulli             one yes or no
categorical           one of several classes
independent           some dimensions of a batch as one event
multivariate_normal   the normal distribution of vectors
kl                    Kullback-Leibler divergences
"""

from tinytorch.absent import names_of
from tinytorch.distributions.bernoulli import Bernoulli
from tinytorch.distributions.categorical import Categorical
from tinytorch.distributions.distribution import Distribution
from tinytorch.distributions.exponential import Exponential
from tinytorch.distributions.independent import Independent
from tinytorch.distributions.kl import kl_divergence, register_kl
from tinytorch.distributions.multivariate_normal import MultivariateNormal
from tinytorch.distributions.normal import Normal
from tinytorch.distributions.uniform import Uniform

__all__ = [
    "Bernoulli",
    "Categorical",
    "Distribution",
    "Exponential",
    "Independent",
    "MultivariateNormal",
    "Normal",
    "Uniform",
    "kl_divergence",
    "register_kl",
]

__getattr__ = names_of("torch.distributions")  # names of PyTorch's that are not here
