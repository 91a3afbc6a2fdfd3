"""Batch normalisation: functions of the channels of x (n, channels, positions)."""

from tinytorch.backends.blocked import batch_norm
from tinytorch.backends.optimized.symbols.table import declare_kernel

declare_kernel("batch_norm", batch_norm._forward, "n c p", "x[n,c,p] w[c] b[c] *eps out[n,c,p]")
declare_kernel(
    "batch_norm_backward", batch_norm._backward, "n c p", "g[n,c,p] x[n,c,p] w[c] *eps out[n,c,p]"
)
declare_kernel("batch_norm_weight", batch_norm._weight, "n c p", "g[n,c,p] x[n,c,p] *eps out[c]")
