"""Products with quantized weights.

dots        instructions that multiply small integers and add neighbouring products
code_tile   a tile of C in registers, of bytes or words
vectors     one to eight rows times codes of 8 bits that are read once
nibbles     the same for codes of 4 bits
rounding    rows of floats as integers
bfloat16    one to eight rows times weights of 16 bits
loops       the loops around the tiles
strassen    a product of words by seven products of halves
linear      products of arrays
"""
