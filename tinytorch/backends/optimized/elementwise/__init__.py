"""One result for each element.

math            exp and its relatives as polynomials
logarithms      log, log1p, log2 and log10
trigonometry    sin and cos: the argument reduced, then polynomials
division        remainder and floor_divide: a quotient, corrected
arcs            asin, acos, atan and atan2: polynomials of a smaller argument
scalars         the op table's definitions, rewritten so that they compile to vector code
loop_text       the text of loops, by the kinds of operands
nest            which loops operands that broadcast need
loops           the loops over arrays of any strides
specialized     the loop for known shapes; small arrays with the least overhead
several         one loop with several results
stepwise        a program op by op, where a definition is not compiled
casts           between float32 and float16, and to bool
activations     relu and gelu
"""
