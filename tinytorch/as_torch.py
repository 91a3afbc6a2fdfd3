"""Import TinyTorch under the name `torch`, for programs that cannot be edited.

    import tinytorch.as_torch
    import torch  # TinyTorch

Import it before anything imports PyTorch. For a whole file, `python -m tinytorch program.py` does
the same.
"""

from tinytorch.compat.program import install

install()
