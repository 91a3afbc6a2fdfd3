"""Functions whose machine code differs have different fingerprints."""

from __future__ import annotations

import numpy as np

from tinytorch.jit.fingerprint import fingerprint


def test_fingerprint_tells_functions_apart_by_what_they_use():
    def make(constant, table=(1, 2)):
        def f(x):
            return x + constant + table[0]

        return f

    assert fingerprint(make(1)) == fingerprint(make(1))
    different = {
        fingerprint(make(1)),
        fingerprint(make(2)),
        fingerprint(make(np.float32(1))),
        fingerprint(make(1, (1, 3))),
        fingerprint(make(np.arange(3))),
        fingerprint(make(np.arange(4))),
        fingerprint(make(make(1))),
    }
    assert len(different) == 7
    assert "0x" not in fingerprint(make(make(3)))  # no addresses: they change
