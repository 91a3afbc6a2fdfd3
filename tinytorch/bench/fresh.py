"""Timing in pairs on fresh inputs, with every output checked.

For code that you trust: in one process an entry could exchange the clock, or whatever else the
measurement is made of. `tito compete run` measures in a process that an entry cannot touch.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from tinytorch.bench.accuracy import Array, difference
from tinytorch.bench.paired import paired_ratios

PAIRS = 20


def fresh_call(
    function: Callable[..., Array],
    inputs: tuple[Array, ...],
    expected: tuple[Array, Array],
    now: Callable[[], float] = time.process_time,
) -> float:
    """Seconds of one call on copies of the inputs, whose output is then checked.

    The copies keep their layout. The clock runs for the call alone.

    >>> fresh_call(np.negative, (np.ones(3),), (-np.ones(3), np.zeros(3))) >= 0
    True

    Args:
        inputs: the function's arguments.
        expected: the exact output, and the bound of each element.
        now: a clock, in seconds; by default the CPU time of all threads of this process.

    Raises:
        TypeError: the output is not an ndarray itself, but something that may compute later.
        ValueError: an element is outside of its bound; the text says which.
    """
    given = [x.copy(order="K") for x in inputs]
    start = now()
    output = function(*given)
    seconds = now() - start
    if type(output) is not np.ndarray:
        raise TypeError(f"the output is a {type(output).__name__}, not an array of NumPy")
    wrong = difference([output], [expected])
    if wrong is not None:
        raise ValueError(str(wrong))
    return seconds


def measure_pairs(
    baseline: Callable[..., Array],
    entry: Callable[..., Array],
    make: Callable[[np.random.Generator], tuple[Array, ...]],
    reference: Callable[..., tuple[Array, Array]],
    *,
    pairs: int = PAIRS,
    seed: int | None = None,
    now: Callable[[], float] = time.process_time,
) -> list[float]:
    """How many times as long the baseline took, pair by pair, each on inputs of its own.

    A pair is four calls, A B on some inputs and B A on others, and its ratio is that of the sums:
    the first call on new inputs finds another cache than the second, and that must not count for
    one side alone. The next pair begins with B (A B B A, B A A B). One more pair comes first and is
    not kept: it pays for compiling.

    Args:
        make: draws the arguments of a call from a generator.
        reference: from the arguments the exact output and the bound of each element.
        seed: of the generator; by default one that nobody knows.
        now: a clock, in seconds; by default the CPU time of all threads of this process.

    Raises:
        TypeError, ValueError: an output is wrong; see `fresh_call`.
    """
    draw = np.random.default_rng(seed)
    functions = (baseline, entry)
    seconds = [[0.0] * (1 + pairs) for _ in functions]
    for pair in range(1 + pairs):
        for turn in (pair, pair + 1):
            inputs = make(draw)
            expected = reference(*inputs)
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                seconds[side][pair] += fresh_call(functions[side], inputs, expected, now)
    return paired_ratios(seconds[0][1:], seconds[1][1:])
