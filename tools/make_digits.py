"""Makes tinytorch/data/digits/digits.npz from scikit-learn's copy of the UCI digits.

    python tools/make_digits.py [output.npz]

Of each digit, in a random order with seed 0, the first fifth (rounded) goes to the test split.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

SEED = 0
TEST_SHARE = 0.2
OUTPUT = Path(__file__).parents[1] / "tinytorch" / "data" / "digits" / "digits.npz"


def stratified_split(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the train and the test samples, each in the order of the original."""
    rng = np.random.default_rng(SEED)
    test = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        members = rng.permutation(np.flatnonzero(labels == digit))
        test[members[: round(TEST_SHARE * len(members))]] = True
    return np.flatnonzero(~test), np.flatnonzero(test)


def main(output: Path) -> None:
    source = load_digits()
    images, labels = source.images.astype(np.uint8), source.target.astype(np.uint8)
    arrays = {}
    for split, index in zip(("train", "test"), stratified_split(labels), strict=True):
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = images[index], labels[index]
        print(f"{split}: {len(index)} images, per digit {np.bincount(labels[index]).tolist()}")
    np.savez_compressed(output, **arrays)
    print(f"{output}: {output.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT)
