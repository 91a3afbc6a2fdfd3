"""Native code: a schedule as one function of machine code over the kernel library's symbols.

code            the text of a function and the addresses that it names
copy_symbols    copies between strided views, as C symbols
strides         the bytes that views cover, and walks through several
loops           elementwise loops: instructions and fusion
loop_text       their text
copies          steps that move values
products        matrix products and what is fused into them
images          convolution and pooling
attention       attention and its gradient
quantized       products with quantized weights
groups          a fused op as one call or one loop
ops             what each op becomes
partition       how a step is divided among threads
phases          the order of statements, and which of them threads share
machine_code    the text as machine code
program         calling it with arrays
passes          passes for native code alone, run after all others
build           from a schedule to a program
"""

from tinytorch.graph.compiler.native.build import (
    ABILITIES as ABILITIES,
    PASSES as PASSES,
    build as build,
    is_kept as is_kept,
    unsupported as unsupported,
)
from tinytorch.graph.compiler.native.code import Unsupported as Unsupported
