"""The matrix product.

blocking        the sizes of blocks, from those of the caches
micro_kernel    a tile of C that stays in registers
dot_kernel      the same where both operands run along the summed index
gemv_kernel     the same where C is a single row
packing         blocks copied into the order in which the micro-kernel reads them
panels          the sizes of tiles, and blocks copied into panels of their width
tiles           the loops around the micro-kernel
loops           which of these for which shape
shared          the same on several threads
library         NumPy's BLAS where that is faster: the choice, kept on disk
batches         products of a batch that fit into L1
integers        products of int64
matmul          products of arrays
prepacked       products with a weight that is packed once
small           small products, and those of one weight in a row, by shape
"""
