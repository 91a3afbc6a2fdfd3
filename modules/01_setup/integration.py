"""What the first module's functions do inside the package."""

import tinytorch
from tito.checks import equal, raises


def test_dimensions_count_from_the_end() -> None:
    """a sum over dimension -1 is one over the last dimension"""
    x = tinytorch.arange(6).reshape(2, 3)
    equal(x.argmax(-1).tolist(), [2, 2])
    equal(x.transpose(-1, 0).shape, (3, 2))
    asked = "count-from-the-end: 'IndexError: there is no such dimension'"
    raises(IndexError, tinytorch.argmax, x, 2, hint=asked)


def test_reshape_works_out_a_size() -> None:
    """a size of -1 follows from the others, or is refused"""
    x = tinytorch.zeros(4, 6)
    equal(x.reshape(8, -1).shape, (8, 3))
    asked = "size-of-minus-one: 'ShapeError: no whole number fits; the message gives the shape'"
    raises(tinytorch.ShapeError, x.reshape, 5, -1, match="5", hint=asked)


def test_shapes_have_two_spellings() -> None:
    """zeros(2, 3) and zeros((2, 3)) make the same tensor"""
    equal(tinytorch.zeros(2, 3).shape, tinytorch.zeros((2, 3)).shape)
