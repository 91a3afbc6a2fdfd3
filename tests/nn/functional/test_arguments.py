from __future__ import annotations

import numpy as np
import pytest

from tinytorch.nn.functional.arguments import pair, single


def test_one_number_stands_for_all():
    assert pair(2, "stride") == (2, 2)
    assert pair([1, np.int64(3)], "stride") == (1, 3)
    assert single(2, "stride") == single((2,), "stride") == 2


def test_errors():
    assert pair((1,), "stride") == (1, 1)  # as PyTorch has it
    with pytest.raises(ValueError, match=r"stride must be one number or two, not \(1, 2, 3\)"):
        pair((1, 2, 3), "stride")
    with pytest.raises(ValueError, match=r"stride must be one number, not \(1, 2\)"):
        single((1, 2), "stride")
    with pytest.raises(TypeError):
        pair((1, 2.5), "stride")
