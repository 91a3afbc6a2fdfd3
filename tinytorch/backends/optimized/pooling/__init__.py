"""Pooling of images.

planes      an image with its border, so that a window's elements lie in long ranges of memory
pairs       the usual windows, 2 by 2 side by side, on vectors
maximum     max pooling
average     average pooling
small       both, of a few small images of one shape
"""
