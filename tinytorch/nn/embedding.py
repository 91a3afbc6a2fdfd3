"""`Embedding`: a trained vector for each of a set of symbols."""

from __future__ import annotations

from typing import Any, Self

from tinytorch.autograd import no_grad
from tinytorch.creation import zeros
from tinytorch.errors import ShapeError
from tinytorch.nn import functional as F, init
from tinytorch.nn.factory import parameter_dtype
from tinytorch.nn.functional.embedding import row_index
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor


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
        if embeddings.ndim != 2:
            raise ShapeError(f"from_pretrained: needs a matrix, not shape {embeddings.shape}")
        rows, width = embeddings.shape
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        layer = cls(rows, width, *options, dtype=embeddings.dtype)
        layer.weight = Parameter(embeddings, requires_grad=not freeze)
        return layer

    def reset_parameters(self) -> None:
        """Draw the vectors anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

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
