"""One result for each element.

math            exp, log and their relatives as polynomials
trigonometry    sin and cos: the argument reduced, then polynomials
division        remainder and floor_divide: a quotient, corrected
scalars         the op table's definitions, rewritten so that they compile to vector code
loops           the loops over arrays of any strides
activations     relu and gelu
"""
