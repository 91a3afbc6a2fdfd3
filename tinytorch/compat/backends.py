"""`torch.backends` for programs: settings of libraries that TinyTorch does not use."""

from tinytorch.compat.accelerators import (
    cuda_backend as cuda,
    cudnn as cudnn,
    mkl as mkl,
    mkldnn as mkldnn,
    mps_backend as mps,
    openmp as openmp,
    opt_einsum as opt_einsum,
)

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]
