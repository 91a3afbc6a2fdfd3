"""MNIST, and IDX, the format it comes in."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from tinytorch.data.dataset import TensorDataset
from tinytorch.data.download import RemoteFile, fetch
from tinytorch.data.images import Split, image_dataset, of_split
from tinytorch.dtypes import Array
from tinytorch.errors import DataError

IDX_UINT8 = 0x08

_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


def _remote(name: str, size: int, sha256: str) -> RemoteFile:
    return RemoteFile(name, tuple(mirror + name for mirror in _MIRRORS), size, sha256)


FILES: dict[Split, tuple[RemoteFile, RemoteFile]] = {
    "train": (
        _remote(
            "train-images-idx3-ubyte.gz",
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        _remote(
            "train-labels-idx1-ubyte.gz",
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
    ),
    "test": (
        _remote(
            "t10k-images-idx3-ubyte.gz",
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        _remote(
            "t10k-labels-idx1-ubyte.gz",
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
}


def mnist(
    split: Split = "train", flatten: bool = False, *, root: str | Path | None = None
) -> TensorDataset:
    """70,000 handwritten digits of 28x28 pixels, downloaded on first use (12 MB in all).

    Args:
        split: "train" (60,000 images) or "test" (10,000).
        flatten: give images as (N, 784) instead of (N, 1, 28, 28).
        root: where the files are kept; by default `cache_root() / "mnist"`.

    Returns:
        A dataset of (image, label): float32 in [0, 1], and int64 0..9. Train takes 188 MB.

    Raises:
        DataError: a file cannot be downloaded, or is truncated or corrupt.

    Source: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to
    document recognition", Proc. IEEE 86(11), 1998.
    """
    images_file, labels_file = (fetch(f, root, "mnist") for f in of_split(FILES, split))
    return image_dataset(
        read_idx(images_file, ndim=3)[:, None],
        read_idx(labels_file, ndim=1),
        white=255,
        classes=10,
        flatten=flatten,
        source=f"{images_file} and {labels_file.name}",
    )


def read_idx(path: str | Path, ndim: int) -> Array:
    """The array in an IDX file of unsigned bytes, gzipped or not.

    A file is: the bytes 0, 0, 8 (unsigned byte), ndim; each extent as a big-endian uint32; the
    values in C order.

    Args:
        path: the file; it is taken to be gzipped if its name ends in .gz.
        ndim: how many dimensions it must have.

    Returns:
        uint8, read-only.

    Raises:
        DataError: wrong magic number or number of bytes, or a broken gzip stream.

    Source: the description of the format on the MNIST page of Y. LeCun, C. Cortes, C. Burges.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: expected a whole (gzipped) IDX file, found: {error}") from error
    magic = bytes([0, 0, IDX_UINT8, ndim])
    if content[:4] != magic:
        raise DataError(f"{path}: expected magic 0x{magic.hex()}, found 0x{content[:4].hex()}")
    header = 4 + 4 * ndim
    if len(content) < header:
        raise DataError(f"{path}: expected a header of {header} bytes, found {len(content)}")
    shape = tuple(np.frombuffer(content, ">u4", ndim, offset=4).tolist())
    if len(content) - header != math.prod(shape):
        raise DataError(
            f"{path}: expected {math.prod(shape)} values for shape {shape}, "
            f"found {len(content) - header}"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
