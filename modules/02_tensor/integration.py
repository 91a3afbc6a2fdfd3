"""What the second module's functions do inside the package."""

import numpy as np

import tinytorch
from tito.checks import close, equal, raises


def test_operands_of_any_shape_meet() -> None:
    """tensors of different shapes add, and shapes that do not fit are refused in words"""
    column, row = tinytorch.tensor([[1.0], [2.0]]), tinytorch.tensor([10.0, 20.0])
    equal((column + row).tolist(), [[11.0, 21.0], [12.0, 22.0]])
    raises(tinytorch.ShapeError, lambda: tinytorch.ones(2, 3) + tinytorch.ones(2, 2), match="add")


def test_types_meet() -> None:
    """a float tensor stays what it is among Python numbers"""
    equal((tinytorch.ones(2) * 2).dtype.name, "float32")
    equal((tinytorch.tensor([1]) * 0.5).dtype.name, "float32")


def test_views_move_nothing() -> None:
    """transpose and flatten change the shape, and the transpose shares memory"""
    x = tinytorch.arange(6).reshape(2, 3)
    equal(x.T.flatten().tolist(), [0, 3, 1, 4, 2, 5])
    equal(x.transpose(0, 1).tolist(), np.arange(6).reshape(2, 3).T.tolist())
    equal((1 - x).sum().item(), -9)
    close((2.0 / x[1:].float()).sum().item(), 2 / 3 + 2 / 4 + 2 / 5)


def test_products_and_means_agree_with_numpy() -> None:
    """a product of two matrices, and the mean of it, agree with NumPy"""
    a, b = np.linspace(-1, 1, 12).reshape(3, 4), np.linspace(0, 2, 20).reshape(5, 4)
    product = tinytorch.tensor(a) @ tinytorch.tensor(b).mT
    close(product.tolist(), (a @ b.T).tolist())
    close(product.mean(0).tolist(), (a @ b.T).mean(0).tolist())
