"""`save` and `load`: nests of dicts, lists, tuples, numbers, strings, None and tensors, as files.

safetensors   the file format: tensors by name, and a header
tree          the nest as JSON, with the tensors beside it
torch_zip     files that PyTorch's `torch.save` wrote, read without running what is in them
sharing       which tensors of a file share memory
files         `save` and `load`
"""

from tinytorch.serialization.files import load, save

__all__ = ["load", "save"]
