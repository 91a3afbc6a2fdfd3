"""Convolution without im2col: the register tile of the matrix product, led over padded images.

geometry        names of the positions in arrays of sizes
plan            where everything lies: padded images, offsets of taps, where outputs are stored
phases          the even and the odd elements of rows, for strides of 2
micro_kernel    the tile, with positions of the image side by side
chain_kernel    the tile, summed over several pairs of matrices
loops           one image at a time
batch           many small images at a time, side by side in vectors
conv2d          which of them for which shape
conv2d_input    the gradient with respect to the images
conv2d_weight   the gradient with respect to the weights
winograd        fewer multiplications, and less accuracy; only where asked for
"""
