"""What tests of backends and ops need, in the package so that your own backend can be tested too.

source        shapes, numbers and arrays, drawn in a style, a dtype and a memory layout; `@samples`
op_samples    inputs and parameters for each op of the table; of three families elsewhere:
              window_samples (convolution, pooling), attention_samples, ctc_samples
conformance   the suite that every backend passes: `check_backend`
"""

from tinytorch.testing.conformance import OpReport as OpReport, check_backend as check_backend
