"""Names that exist only so that PyTorch programs run; loaded when the first of them is asked for.

answers        what to write instead of a missing name or keyword; its table is answers.txt
devices        `device`, the one there is, and `.to(...)`
dtypes         PyTorch's names of dtypes: "torch.FloatTensor"
tensors        methods of `Tensor` that PyTorch calls legacy
functions      other spellings of what there is, and methods in place
constructors   `FloatTensor`, `LongTensor`, ...
checkpoint     `utils.checkpoint`
linalg         `linalg`: norms and products
ufuncs         NumPy's functions of elements, called with tensors
special        `special`: the functions of it that there are
gradients      `autograd.function.once_differentiable` and others
amp            autocast and GradScaler, which do nothing on one float type
accelerators   `cuda`, `backends.cudnn`, `mps`: there is none
scripting      `jit.script`, which returns what it is given
einops_backend what einops needs to know of tensors
einops_layers  its layers
array_api      the names of the array API standard
bases          `nn.modules`, and the base classes of layers
modules        PyTorch's paths of modules
names          which file above has which name
program        run a program under the name torch
"""

from __future__ import annotations

from tinytorch.compat.devices import (
    check_ignored as check_ignored,
    conversion_target as conversion_target,
    translate as translate,
)
from tinytorch.compat.names import attribute as attribute, module_name as module_name
