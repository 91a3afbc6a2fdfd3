"""Functions of the rows of a matrix.

rows            what they share: layout, sums and maxima of a row
reductions      sums, maxima and minima
program_sums    of what a fused function gives
softmax_columns softmax and log-softmax along another dimension than the last
softmax         with log-softmax
cross_entropy
cross           products of vectors of three components
ctc             sequences of labels
layer_norm_rows one row of a layer norm
layer_norm
group_norm
embedding       rows by index
order           indices that sort
selection       some of them
bisection       where values would be inserted, what is drawn by weights, places of triangles
scans           running sums
extremes        where the largest and the smallest are, across memory
uniform         random numbers
small           softmax, scans and where extremes are, for small arrays of one shape
small_index     gathers and scatters of such arrays
small_order     indices that sort them
fold            windows of them added back
movement        arrays copied, joined and put into zeros
"""
