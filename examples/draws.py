"""Weights and data from NumPy's generator, so that a program prints the same with any framework."""

import math

import numpy as np
import torch

rng = np.random.default_rng(0)


def seed(n):
    """Start the draws over."""
    global rng
    rng = np.random.default_rng(n)


def init_(model):
    """Draw all weights anew: normal with 1/sqrt(fan in) for matrices, zeros for biases."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1:
                fan_in = p.numel() // p.shape[0]
                p.copy_(randn(*p.shape) / math.sqrt(fan_in))
            elif "bias" in name:
                p.zero_()
    return model


def randn(*shape):
    """A float32 tensor of standard normal numbers."""
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))


def rand(*shape):
    """A float32 tensor of numbers from 0 to 1."""
    return torch.from_numpy(rng.random(shape).astype(np.float32))


def randn_like(x):
    """Standard normal numbers in the shape of x."""
    return randn(*x.shape)


def randint(low, high, shape):
    """An int64 tensor of numbers from low to below high."""
    return torch.from_numpy(rng.integers(low, high, shape))


def randperm(n):
    """0 to n - 1 in random order."""
    return torch.from_numpy(rng.permutation(n))


def multinomial(probs):
    """One index for each row of probabilities (rows, classes), by inverting the distribution."""
    p = probs.detach().double().cumsum(-1)
    u = torch.from_numpy(rng.random((*probs.shape[:-1], 1))) * p[..., -1:]
    return (u > p).sum(-1)
