"""Graphs and tensors between PyTorch and TinyTorch.

to_torch.py     our graph as a torch.fx.GraphModule; torch_ops.py has the ops of the table that
                torch_vocabulary.py does not describe
from_torch.py   a PyTorch model as our Module
aten_module.py  runs an ATen graph as Tensor code; aten/ has the operators
support.py      which nodes of a PyTorch graph we can run
exchange.py     tensors, dtypes and shapes
"""
