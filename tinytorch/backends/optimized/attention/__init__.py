"""Attention whose scores are never in memory as a whole.

products        products of matrices of which causal order needs only a part
row_kernels     a row of scores: the largest, exponentials, gradients
weights         scores become weights: masks, the softmax with its running maximum, dropout
loops           the loops over heads and blocks of queries and keys, forward and backward
attention       of arrays
"""
