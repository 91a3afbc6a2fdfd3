"""The ground under every compiled backend and the compiler: how kernels are compiled and kept.

A file imports only from files above it:

cpu               the vector registers of this processor, and the tiles that fit them
caches            its caches, their ways and lines
threads           which layer runs parallel kernels, and how many threads
buffers           aligned memory for results and scratch, recycled
lazy_numba        numba without what only compiling needs
blas              the product of the library that NumPy ships, and its threads
cache_folder      the folder of machine code: which, how it is written and read, what is evicted
compile_progress  what is compiled at the moment
fingerprint       what a kernel's machine code depends on
cache             machine code on disk
c_functions       kernels as C functions, and how kernels call these
library           the decorators that compile a function, and export it as a C symbol
operands          what is in memory: its address and strides under one name
llvm              a vocabulary for writing vector code
views             memory at an address as an array
deferred          functions that are compiled when a kernel first reaches them
entries           kernels that take arrays, called without dispatch
runs              copies between arrays with any strides, row by row
contiguous        contiguous copies, by rows or tile by tile
parallel          kernels over rows, on several threads
barrier           threads that go through one program together (fork and join)
thread_pool       threads that wait for such a program
"""

from tinytorch.absent import names_of
from tinytorch.jit.lazy_numba import defer_entry_points

defer_entry_points()

__getattr__ = names_of("torch.jit")  # torch.jit.script and the like, for PyTorch programs
