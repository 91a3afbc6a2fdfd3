"""`Embedding`: a trained vector for each of a set of symbols; `EmbeddingBag`: of several, one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self, TypeVar

from tinytorch.autograd import no_grad
from tinytorch.creation import zeros
from tinytorch.errors import ShapeError
from tinytorch.nn import functional as F, init
from tinytorch.nn.factory import parameter_dtype
from tinytorch.nn.functional.embedding import row_index
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor

L = TypeVar("L", bound="Embedding | EmbeddingBag")


def _draw(layer: Embedding | EmbeddingBag) -> None:
    init.normal_(layer.weight)
    if layer.padding_idx is not None:
        with no_grad():
            layer.weight[layer.padding_idx] = 0


def _around(embeddings: Tensor, freeze: bool, make: Callable[..., L], *options: Any) -> L:
    """A layer whose weight is the given vectors."""
    if embeddings.ndim != 2:
        raise ShapeError(f"from_pretrained: needs a matrix, not shape {embeddings.shape}")
    layer = make(*embeddings.shape, *options, dtype=embeddings.dtype)
    layer.weight = Parameter(embeddings, requires_grad=not freeze)
    return layer


class Embedding(Module):
    """weight[index]

    Args:
        num_embeddings: how many symbols there are.
        embedding_dim: length of a vector.
        padding_idx: a symbol whose vector is zero at first and gets no gradient.
        max_norm: vectors that are looked up are first made at most so long, in place.
        norm_type: the p of that norm.
        scale_grad_by_freq: divide a vector's gradient by how often it was looked up.
        sparse: changes nothing: all gradients are dense.
        device, dtype: of the vectors.

    Attributes:
        weight: (num_embeddings, embedding_dim), at first standard normal.

    Shapes: integers (...) give (..., embedding_dim).

    Raises:
        ValueError: padding_idx is none of the symbols.

    >>> import tinytorch
    >>> Embedding(10, 3)(tinytorch.tensor([[1, 2], [4, 5]])).shape
    (2, 2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kind = parameter_dtype(device, dtype)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = row_index(padding_idx, num_embeddings, "padding_idx")
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.weight = Parameter(zeros(num_embeddings, embedding_dim, dtype=kind))
        self.reset_parameters()

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Self:
        """A layer around vectors that there are already, whose memory it shares.

        Args:
            embeddings: (num_embeddings, embedding_dim).
            freeze: do not train them.
            padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse: as for the class.

        Raises:
            ShapeError: the embeddings are no matrix.
        """
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        return _around(embeddings, freeze, cls, *options)

    def reset_parameters(self) -> None:
        """Draw the vectors anew."""
        _draw(self)

    def forward(self, input: Tensor) -> Tensor:
        """Indices (...) give (..., embedding_dim)."""
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
            self.scale_grad_by_freq,
        )  # fmt: skip

    def as_linear(self, x: Tensor) -> Tensor:
        """x @ weight.T: (..., embedding_dim) gives (..., num_embeddings), as tied weights need."""
        return F.linear(x, self.weight)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class EmbeddingBag(Module):
    """The sum, mean or maximum of the vectors of each bag of symbols: a text as its words.

    Args:
        num_embeddings, embedding_dim, max_norm, norm_type, scale_grad_by_freq, sparse, padding_idx,
            device, dtype: as for `Embedding`; what is padding is in no bag.
        mode: "sum", "mean" or "max".
        include_last_offset: the last offset is the input's length, and begins no bag.

    Attributes:
        weight: (num_embeddings, embedding_dim), at first standard normal.

    Shapes: integers (bags, length), or (n,) with offsets (bags,), give (bags, embedding_dim).

    >>> import tinytorch
    >>> EmbeddingBag(10, 3)(tinytorch.tensor([1, 2, 4, 5]), tinytorch.tensor([0, 3])).shape
    (2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        *,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kind = parameter_dtype(device, dtype)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.include_last_offset = include_last_offset
        self.padding_idx = row_index(padding_idx, num_embeddings, "padding_idx")
        self.weight = Parameter(zeros(num_embeddings, embedding_dim, dtype=kind))
        self.reset_parameters()

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Self:
        """A layer around vectors that there are already; see `Embedding.from_pretrained`."""
        options = (max_norm, norm_type, scale_grad_by_freq, mode, sparse)
        make = partial(cls, include_last_offset=include_last_offset, padding_idx=padding_idx)
        return _around(embeddings, freeze, make, *options)

    def reset_parameters(self) -> None:
        """Draw the vectors anew."""
        _draw(self)

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """Bags of indices give (bags, embedding_dim); see `F.embedding_bag`."""
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.mode, False, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        longest = "" if self.max_norm is None else f", max_norm={self.max_norm}"
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{longest}, mode={self.mode!r}{padding}"
