"""How kernels are written, compiled and kept.

cpu         the vector registers of this processor, and the tiles that fit them
cache       machine code on disk
library     the decorators that compile a function, and export it as a C symbol
llvm        a vocabulary for writing vector code
entries     kernels that take arrays, called without dispatch
parallel    kernels over rows, on several threads
"""
