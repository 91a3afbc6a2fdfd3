"""`Embedding`: a trained vector for each of a set of symbols."""

from __future__ import annotations

from typing import Any

from tinytorch.autograd import no_grad
from tinytorch.creation import zeros
from tinytorch.dtypes import DEFAULT_FLOAT
from tinytorch.nn import functional as F, init
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
        dtype: of the vectors.

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
        *,
        dtype: Any = DEFAULT_FLOAT,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = row_index(padding_idx, num_embeddings, "padding_idx")
        self.weight = Parameter(zeros(num_embeddings, embedding_dim, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

    def forward(self, index: Tensor) -> Tensor:
        """index (...) gives (..., embedding_dim)."""
        return F.embedding(index, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
