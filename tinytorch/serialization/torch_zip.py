"""Files that `torch.save` wrote: read without PyTorch, and without running what is in them.

Such a file is a zip archive: the bytes of each storage, and a pickle that says what is where.
A pickle is a program: it may import anything and call it. This reader lets it name only what is in
`_ALLOWED` and storages, gives it inert values for those, and looks at what comes out: nothing but
dicts, lists, tuples, numbers, strings, None and tensors gets through.
"""

from __future__ import annotations

import pickle
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, BinaryIO, Literal, NamedTuple, NoReturn

import numpy as np

from tinytorch.dtypes import DTYPES
from tinytorch.errors import DataError
from tinytorch.nn.parameter import Parameter
from tinytorch.serialization.sharing import strided
from tinytorch.tensor import Tensor

#: What a damaged or hostile pickle may raise.
_REFUSED = (
    pickle.UnpicklingError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError,
    RecursionError, struct.error, zlib.error,
)  # fmt: skip
#: Classes of typed storages in a pickle, by the dtype that they stand for.
STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32",
    "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool",
}  # fmt: skip


class Storage(NamedTuple):
    """A storage of the archive: its dtype, its key, and how many elements it has."""

    dtype: str
    key: str
    size: int


class Reference(NamedTuple):
    """A tensor that is to be made when the pickle has been read."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool
    parameter: bool = False


class _Function:
    """What a pickle gets for a function: it can be called, and in no way be changed."""

    __slots__ = ("_call",)
    _call: Any

    def __init__(self, call: Any) -> None:
        object.__setattr__(self, "_call", call)

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise pickle.UnpicklingError("it changes a function")


def _rebuild_tensor(
    storage: Any,
    offset: int,
    shape: Any,
    strides: Any,
    requires_grad: bool = False,
    hooks: Any = None,
    bits: Any = None,
) -> Reference:
    if not isinstance(storage, Storage):
        raise pickle.UnpicklingError("a tensor without a storage")
    if bits:  # {"neg": True}: the storage has the numbers with the other sign
        raise pickle.UnpicklingError(f"a tensor with {bits}; save tensor.resolve_neg()")
    return Reference(storage, offset, tuple(shape), tuple(strides), bool(requires_grad))


def _rebuild_parameter(data: Any, requires_grad: bool, *rest: Any) -> Reference:
    if not isinstance(data, Reference):
        raise pickle.UnpicklingError("a parameter without a tensor")
    return data._replace(requires_grad=bool(requires_grad), parameter=True)


_ALLOWED = {
    ("collections", "OrderedDict"): _Function(lambda *items: OrderedDict(*items)),
    ("collections", "Counter"): _Function(lambda *items: dict(*items)),
    ("torch._utils", "_rebuild_tensor_v2"): _Function(_rebuild_tensor),
    ("torch._utils", "_rebuild_parameter"): _Function(_rebuild_parameter),
    ("torch", "Size"): _Function(lambda *sizes: tuple(*sizes)),
    ("torch", "device"): _Function(lambda *names: ":".join(map(str, names))),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """The inert value for a name; everything else is refused, and never imported."""
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        if module in ("torch", "torch.storage") and name in STORAGES:
            return STORAGES[name]
        if module == "torch" and name in DTYPES:
            return f"torch.{name}"
        raise pickle.UnpicklingError(
            f"it holds an object of {module}.{name}, which is loaded by running code"
        )

    def persistent_load(self, pid: Any) -> Storage:
        """The storage that the pickle means."""
        kind, dtype, key, _, size = pid
        if kind != "storage" or dtype not in STORAGES.values() or not isinstance(key, str):
            raise pickle.UnpicklingError(f"an unknown reference {pid!r:.60}")
        return Storage(dtype, key, int(size))


def is_zip(data: bytes) -> bool:
    """Whether a file that begins so is a zip archive."""
    return data[:4] == b"PK\x03\x04"


def read(stream: BinaryIO) -> Any:
    """The nest in a file that `torch.save` wrote.

    Raises:
        DataError: it holds something else, or it is damaged.
    """
    try:
        with zipfile.ZipFile(stream) as archive:
            return _read(archive)
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise DataError(f"is damaged, or not of torch.save ({error})") from error
    except DataError:
        raise
    except _REFUSED as error:
        raise DataError(
            f"is refused: {error}. Only dicts, lists, tuples, numbers, strings, None and tensors "
            f"are read; where the file was made, write torch.save(model.state_dict(), path)"
        ) from error


def _read(archive: zipfile.ZipFile) -> Any:
    pickles = [name for name in archive.namelist() if name.count("/") == 1]
    root = next((name[: -len("data.pkl")] for name in pickles if name.endswith("/data.pkl")), None)
    if root is None:
        raise DataError("is a zip archive without data.pkl, so not of torch.save")
    order: Literal["<", ">"] = "<"
    if f"{root}byteorder" in archive.namelist():
        order = ">" if archive.read(f"{root}byteorder").strip() == b"big" else "<"
    with archive.open(f"{root}data.pkl") as stream:
        tree = _Unpickler(stream).load()
    storages: dict[Storage, Any] = {}

    def array_of(storage: Storage) -> Any:
        if storage not in storages:
            dtype = DTYPES[storage.dtype].dtype
            data = archive.read(f"{root}data/{storage.key}")
            array = np.frombuffer(data, dtype.newbyteorder(order)).astype(dtype)
            if array.size < storage.size:
                raise DataError(f"is damaged: {array.size} of {storage.size} elements are there")
            storages[storage] = array
        return storages[storage]

    made: dict[int, Tensor] = {}  # by the id of a reference: one tensor may be there twice

    def tensor_of(ref: Reference) -> Tensor:
        if id(ref) not in made:
            made[id(ref)] = _tensor(ref, array_of)
        return made[id(ref)]

    return _convert(tree, tensor_of)


def _convert(tree: Any, tensor_of: Callable[[Reference], Tensor]) -> Any:
    """The tree with tensors for references; whatever is not plain data is refused."""
    if type(tree) is Reference:
        return tensor_of(tree)
    if type(tree) in (dict, OrderedDict):
        items = dict.items(tree)  # an attribute `items` from the file is not asked
        return {_convert(key, tensor_of): _convert(value, tensor_of) for key, value in items}
    if type(tree) in (list, tuple):
        return type(tree)(_convert(value, tensor_of) for value in tree)
    if tree is None or type(tree) in (bool, int, float, str):
        return tree
    raise pickle.UnpicklingError(f"it holds a {type(tree).__name__}")


def _tensor(ref: Reference, array_of: Any) -> Tensor:
    """The tensor of a reference: a view of its storage, in which others may share."""
    storage, offset, shape, strides, requires_grad, parameter = ref
    if storage.dtype not in DTYPES:
        raise DataError(f"has a {storage.dtype} tensor; TinyTorch has {', '.join(DTYPES)}")
    tensor = strided(array_of(storage), storage.dtype, offset, shape, strides)
    return Parameter(tensor, requires_grad) if parameter else tensor.requires_grad_(requires_grad)
