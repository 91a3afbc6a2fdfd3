"""Wrong solutions that a student would plausibly write, and the points they lose."""

from tito.lessons.mistake import Alternative, Equivalent, Mistake

RATIOS = """
def paired_ratios(slower, faster):
    if len(slower) != len(faster):
        raise ValueError(f"pairs need as many of each: {len(slower)} and {len(faster)} samples")
    if min([*slower, *faster], default=1.0) <= 0:
        raise ValueError("a time of a pair is not positive: the clock is too coarse for this work")
    return [a / b for a, b in zip(slower, faster, strict=True)]
"""

MEAN = """
def geometric_mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios)))
"""

INTERVAL = """
def bootstrap_interval(
    values, statistic=statistics.median, *, confidence=0.95, resamples=RESAMPLES, seed=0
):
    n = len(values)
    if n < 2:
        raise ValueError(f"an interval needs two values or more, not {n}")
    draw = random.Random(seed)
    found = sorted(statistic(draw.choices(values, k=n)) for _ in range(resamples))
    first = math.floor(_share_outside(n, confidence) * resamples)
    return found[first], found[resamples - 1 - first]
"""

NEEDED = """
def pairs_needed(ratios, precision, **options):
    if precision <= 0:
        raise ValueError(f"the precision must be positive, not {precision}")
    low, high = bootstrap_interval(ratios, **options)
    reach = (high - low) / 2 / statistics.median(ratios)
    return max(2, math.ceil(len(ratios) * (reach / precision) ** 2))
"""

ALARMS = """
def false_alarms(trials, **options):
    intervals = [bootstrap_interval(values, **options) for values in trials]
    if not intervals:
        raise ValueError("a rate of false alarms needs a trial at least")
    return sum(not low <= 1.0 <= high for low, high in intervals) / len(intervals)
"""

BOUND = """
def rounding_bound(terms, sizes, dtype=np.float32):
    return BOUND_FACTOR * np.sqrt(terms) * np.finfo(dtype).eps * sizes
"""

REFERENCE = """
def product_reference(a, b):
    left, right = a.astype(np.float64), b.astype(np.float64)
    sizes = np.abs(left) @ np.abs(right)
    bound = rounding_bound(a.shape[1], sizes, a.dtype)
    if np.array_equal(left, np.rint(left)) and np.array_equal(right, np.rint(right)):
        bound[sizes <= 1 / np.finfo(a.dtype).eps] = 0
    return left @ right, bound
"""

FURTHEST = """
def furthest_off(output, exact, bound):
    if output.shape != exact.shape:
        raise ValueError(f"the output has the shape {output.shape}, the reference {exact.shape}")
    error = np.abs(output.astype(np.float64) - exact)
    beyond = np.where(np.isfinite(error), error - bound, np.inf)
    if not beyond.size or beyond.max() <= 0:
        return None
    return tuple(map(int, np.unravel_index(beyond.argmax(), beyond.shape)))
"""

CALL = """
def fresh_call(function, inputs, expected, now=time.process_time):
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
"""

PAIRS = """
def measure_pairs(
    baseline, entry, make, reference, *, pairs=PAIRS, seed=None, now=time.process_time
):
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
"""


def changed(text: str, old: str, new: str) -> str:
    """The text with `old`, which it has once, replaced."""
    if text.count(old) != 1:
        raise ValueError(f"{old!r} is {text.count(old)} times in the text")
    return text.replace(old, new)


def mistake(exercise: str, name: str, text: str, old: str, new: str, **loses: int) -> Mistake:
    """The solution with one change; in `loses` a _ is a - of the cell's name."""
    lost = {cell.replace("_", "-"): points for cell, points in loses.items()}
    return Mistake(exercise=exercise, name=name, source=changed(text, old, new), loses=lost)


MISTAKES = [
    mistake(
        "pairs",
        "the wrong way round",
        RATIOS,
        "a / b for",
        "b / a for",
        pairs_values=4,
        pairs_in_turns=5,
    ),
    mistake(
        "pairs",
        "pairs as many as there are",
        RATIOS,
        """    if len(slower) != len(faster):
        raise ValueError(f"pairs need as many of each: {len(slower)} and {len(faster)} samples")
""",
        """    count = min(len(slower), len(faster))
    slower, faster = slower[:count], faster[:count]
""",
        pairs_refused=4,
    ),
    mistake(
        "pairs",
        "looks only at what it divides by",
        RATIOS,
        "min([*slower, *faster], default=1.0)",
        "min(faster, default=1.0)",
        pairs_refused=4,
    ),
    mistake(
        "pairs",
        "fails without pairs",
        RATIOS,
        "min([*slower, *faster], default=1.0)",
        "min([*slower, *faster])",
        pairs_values=4,
    ),
    mistake(
        "pairs",
        "the arithmetic mean",
        MEAN,
        "math.exp(statistics.fmean(map(math.log, ratios)))",
        "statistics.fmean(ratios)",
        pairs_values=4,
    ),
    mistake(
        "pairs",
        "the square root of any product",
        MEAN,
        "math.exp(statistics.fmean(map(math.log, ratios)))",
        "math.prod(ratios) ** 0.5",
        pairs_values=4,
    ),
    mistake(
        "interval",
        "draws without replacement",
        INTERVAL,
        "draw.choices(values, k=n)",
        "draw.sample(values, k=n)",
        interval_samples=3,
        interval_truth=3,
        needed=4,
        alarms=3,
        trials_options=3,
    ),
    mistake(
        "interval",
        "a new generator for each sample",
        INTERVAL,
        "draw.choices(values, k=n)",
        "random.Random(seed).choices(values, k=n)",
        interval_samples=3,
        interval_truth=3,
        needed=4,
        alarms=3,
        trials_options=3,
    ),
    mistake(
        "interval",
        "the plain percentiles",
        INTERVAL,
        "_share_outside(n, confidence)",
        "(1 - confidence) / 2",
        interval_ends=3,
        interval_truth=3,
    ),
    mistake(
        "interval",
        "forgets to sort",
        INTERVAL,
        "found = sorted(statistic(draw.choices(values, k=n)) for _ in range(resamples))",
        "found = [statistic(draw.choices(values, k=n)) for _ in range(resamples)]",
        interval_ends=3,
        interval_truth=3,
        needed=4,
        alarms=3,
        trials_options=3,
    ),
    mistake(
        "interval",
        "cuts off at one end only",
        INTERVAL,
        "found[resamples - 1 - first]",
        "found[-1]",
        interval_ends=3,
    ),
    mistake(
        "interval",
        "one generator for all calls",
        changed(INTERVAL, "seed=0\n)", "seed=0, draw=random.Random(0)\n)"),
        "    draw = random.Random(seed)\n",
        "",
        interval_truth=3,
    ),
    mistake(
        "trials",
        "twice as many pairs for half of the width",
        NEEDED,
        "(reach / precision) ** 2",
        "(reach / precision)",
        needed=4,
    ),
    mistake(
        "trials",
        "the whole width",
        NEEDED,
        "(high - low) / 2 / statistics",
        "(high - low) / statistics",
        needed=4,
    ),
    mistake(
        "trials",
        "forgets that ratios may be far from 1",
        NEEDED,
        " / 2 / statistics.median(ratios)",
        " / 2",
        needed=4,
    ),
    mistake(
        "trials",
        "does not hand the options on",
        NEEDED,
        "(ratios, **options)",
        "(ratios)",
        trials_options=3,
    ),
    mistake(
        "trials",
        "counts the trials that are right",
        ALARMS,
        "not low <= 1.0 <= high",
        "low <= 1.0 <= high",
        alarms=3,
        trials_options=3,
    ),
    mistake(
        "trials",
        "only sees what is faster",
        ALARMS,
        "not low <= 1.0 <= high",
        "low > 1.0",
        alarms=3,
    ),
    mistake(
        "trials",
        "calls an interval that ends at 1 an alarm",
        ALARMS,
        "low <= 1.0 <= high",
        "low < 1.0 < high",
        alarms=3,
    ),
    mistake(
        "bound",
        "grows with the number of terms",
        BOUND,
        "np.sqrt(terms)",
        "terms",
        bound_values=4,
        bound_integers=3,
    ),
    mistake(
        "bound",
        "eps of float32 for all",
        BOUND,
        "np.finfo(dtype).eps",
        "np.finfo(np.float32).eps",
        bound_values=4,
        bound_integers=3,
    ),
    mistake(
        "bound",
        "the size of the result, not of its terms",
        REFERENCE,
        "np.abs(left) @ np.abs(right)",
        "np.abs(left @ right)",
        bound_values=4,
        bound_integers=3,
    ),
    mistake(
        "bound",
        "multiplies first, and converts then",
        REFERENCE,
        "return left @ right, bound",
        "return (a @ b).astype(np.float64), bound",
        bound_values=4,
    ),
    mistake(
        "bound",
        "whole numbers of any size are exact",
        REFERENCE,
        "bound[sizes <= 1 / np.finfo(a.dtype).eps] = 0",
        "bound[:] = 0",
        bound_integers=3,
    ),
    mistake(
        "bound",
        "one whole operand is enough",
        REFERENCE,
        " and np.array_equal(right, np.rint(right))",
        "",
        bound_integers=3,
    ),
    mistake(
        "bound",
        "NaN passes",
        FURTHEST,
        "np.where(np.isfinite(error), error - bound, np.inf)",
        "np.nan_to_num(error - bound, posinf=np.inf)",
        furthest=5,
    ),
    mistake(
        "bound",
        "errors below are none",
        FURTHEST,
        "np.abs(output.astype(np.float64) - exact)",
        "output.astype(np.float64) - exact",
        furthest=5,
    ),
    mistake(
        "bound",
        "the largest error, not the furthest beyond",
        FURTHEST,
        "np.unravel_index(beyond.argmax(), beyond.shape)",
        "np.unravel_index(error.argmax(), error.shape)",
        furthest=5,
    ),
    mistake(
        "bound",
        "a scalar is as good as a matrix",
        FURTHEST,
        """    if output.shape != exact.shape:
        raise ValueError(f"the output has the shape {output.shape}, the reference {exact.shape}")
""",
        "",
        furthest=5,
    ),
    mistake(
        "harness",
        "gives away its own inputs",
        CALL,
        'given = [x.copy(order="K") for x in inputs]',
        "given = inputs",
        one_call=5,
    ),
    mistake(
        "harness",
        "copies into another layout",
        CALL,
        'x.copy(order="K")',
        "x.copy()",
        one_call=5,
    ),
    mistake(
        "harness",
        "times its own copies and checks",
        CALL,
        "    seconds = now() - start\n",
        "    difference([output], [expected])\n    seconds = now() - start\n",
        one_call=5,
        harness_details=3,
    ),
    mistake(
        "harness",
        "whatever is like an array",
        CALL,
        "    if type(output) is not np.ndarray:",
        "    if not isinstance(output, np.ndarray):",
        one_call=5,
    ),
    mistake(
        "harness",
        "fresh inputs for each side",
        PAIRS,
        """            for side in (0, 1) if turn % 2 == 0 else (1, 0):
""",
        """            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                inputs = make(draw)
""",
        pairs_in_turns=5,
        harness_details=3,
    ),
    mistake(
        "harness",
        "A is always first",
        PAIRS,
        "(0, 1) if turn % 2 == 0 else (1, 0)",
        "(0, 1)",
        pairs_in_turns=5,
    ),
    mistake(
        "harness",
        "keeps the pair that warms up",
        PAIRS,
        "paired_ratios(seconds[0][1:], seconds[1][1:])",
        "paired_ratios(*seconds)",
        pairs_in_turns=5,
        harness_details=3,
    ),
    mistake(
        "harness",
        "the same inputs in every pair",
        PAIRS,
        """            inputs = make(draw)
""",
        """            inputs = make(np.random.default_rng(seed))
""",
        pairs_in_turns=5,
    ),
    mistake(
        "harness",
        "a seed that everybody knows",
        PAIRS,
        "np.random.default_rng(seed)",
        "np.random.default_rng(seed or 0)",
        harness_details=3,
    ),
    Mistake(
        exercise="pairs",
        name="the median of the logarithms",
        source="""
def geometric_mean(ratios):
    return math.exp(statistics.median(map(math.log, ratios)))
""",
        loses={"pairs-values": 4},
    ),
    Mistake(
        exercise="interval",
        name="seeds the generator that everybody uses",
        source="""
def bootstrap_interval(
    values, statistic=statistics.median, *, confidence=0.95, resamples=RESAMPLES, seed=0
):
    n = len(values)
    if n < 2:
        raise ValueError(f"an interval needs two values or more, not {n}")
    random.seed(seed)
    found = sorted(statistic(random.choices(values, k=n)) for _ in range(resamples))
    first = math.floor(_share_outside(n, confidence) * resamples)
    return found[first], found[resamples - 1 - first]
""",
        loses={"interval-samples": 3},
    ),
    Mistake(
        exercise="interval",
        name="rounds what is left out to the nearest",
        source="""
def bootstrap_interval(
    values, statistic=statistics.median, *, confidence=0.95, resamples=RESAMPLES, seed=0
):
    n = len(values)
    if n < 2:
        raise ValueError(f"an interval needs two values or more, not {n}")
    draw = random.Random(seed)
    found = sorted(statistic(draw.choices(values, k=n)) for _ in range(resamples))
    first = round(_share_outside(n, confidence) * resamples)
    return found[first], found[resamples - 1 - first]
""",
        loses={"interval-ends": 3},
    ),
    Mistake(
        exercise="interval",
        name="sorts the caller's values",
        source="""
def bootstrap_interval(
    values, statistic=statistics.median, *, confidence=0.95, resamples=RESAMPLES, seed=0
):
    n = len(values)
    if n < 2:
        raise ValueError(f"an interval needs two values or more, not {n}")
    values.sort()
    draw = random.Random(seed)
    found = sorted(statistic(draw.choices(values, k=n)) for _ in range(resamples))
    first = math.floor(_share_outside(n, confidence) * resamples)
    return found[first], found[resamples - 1 - first]
""",
        loses={"interval-samples": 3},
    ),
    Mistake(
        exercise="trials",
        name="sorts the caller's ratios",
        source="""
def pairs_needed(ratios, precision, **options):
    if precision <= 0:
        raise ValueError(f"the precision must be positive, not {precision}")
    low, high = bootstrap_interval(ratios, **options)
    ratios.sort()
    reach = (high - low) / 2 / ratios[len(ratios) // 2]
    return max(2, math.ceil(len(ratios) * (reach / precision) ** 2))
""",
        loses={"needed": 4},
    ),
    Mistake(
        exercise="trials",
        name="relative to the middle of the interval",
        source="""
def pairs_needed(ratios, precision, **options):
    if precision <= 0:
        raise ValueError(f"the precision must be positive, not {precision}")
    low, high = bootstrap_interval(ratios, **options)
    reach = (high - low) / (high + low)
    return max(2, math.ceil(len(ratios) * (reach / precision) ** 2))
""",
        loses={"needed": 4},
    ),
    Mistake(
        exercise="bound",
        name="takes absolute values in place",
        source="""
def product_reference(a, b):
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.abs(a, out=a)
    np.abs(b, out=b)
    left, right = a.astype(np.float64), b.astype(np.float64)
    sizes = left @ right
    bound = rounding_bound(a.shape[1], sizes, a.dtype)
    if (left % 1 == 0).all() and (right % 1 == 0).all():
        bound[sizes <= 1 / np.finfo(a.dtype).eps] = 0
    return exact, bound
""",
        loses={"bound-values": 4},
    ),
    Mistake(
        exercise="bound",
        name="rounds the reference before it compares",
        source="""
def furthest_off(output, exact, bound):
    if output.shape != exact.shape:
        raise ValueError(f"the output has the shape {output.shape}, the reference {exact.shape}")
    error = np.abs(output - exact.astype(output.dtype))
    beyond = np.where(np.isfinite(error), error - bound, np.inf)
    if not beyond.size or beyond.max() <= 0:
        return None
    return tuple(map(int, np.unravel_index(beyond.argmax(), beyond.shape)))
""",
        loses={"furthest": 5},
    ),
    Mistake(
        exercise="harness",
        name="takes a seed of 0 for none",
        source="""
def measure_pairs(
    baseline, entry, make, reference, *, pairs=PAIRS, seed=None, now=time.process_time
):
    draw = np.random.default_rng(seed or None)
    functions = (baseline, entry)
    seconds = [[0.0] * (1 + pairs) for _ in functions]
    for pair in range(1 + pairs):
        for turn in (pair, pair + 1):
            inputs = make(draw)
            expected = reference(*inputs)
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                seconds[side][pair] += fresh_call(functions[side], inputs, expected, now)
    return paired_ratios(seconds[0][1:], seconds[1][1:])
""",
        loses={"harness-details": 3},
    ),
]

ALTERNATIVES = [
    Alternative(
        "pairs",
        "a loop that looks at each time, and a root of the product",
        """
def paired_ratios(slower, faster):
    count = len(slower)
    if count != len(faster):
        raise ValueError("there are " + str(count) + " and " + str(len(faster)) + " times")
    found = []
    for i in range(count):
        if slower[i] <= 0 or faster[i] <= 0:
            raise ValueError(f"the clock saw nothing in pair {i}")
        found.append(slower[i] / faster[i])
    return found

def geometric_mean(ratios):
    return math.prod(ratios) ** (1 / len(ratios))
""",
    ),
    Alternative(
        "interval",
        "draws positions with NumPy",
        """
def bootstrap_interval(
    values, statistic=statistics.median, *, confidence=0.95, resamples=RESAMPLES, seed=0
):
    if len(values) <= 1:
        raise ValueError("no interval for so few values: " + str(len(values)))
    import numpy as np

    given = list(values)
    rows = np.random.default_rng(seed).integers(0, len(given), (resamples, len(given)))
    results = [statistic([given[i] for i in row]) for row in rows]
    results.sort()
    left_out = int(resamples * _share_outside(len(given), confidence))
    middle = results[left_out : resamples - left_out]
    return middle[0], middle[-1]
""",
    ),
    Alternative(
        "trials",
        "in steps, with a loop",
        """
def pairs_needed(ratios, precision, **options):
    if not precision > 0:
        raise ValueError("a precision is positive; this one is " + str(precision))
    low, high = bootstrap_interval(ratios, **options)
    wanted = 2 * precision * statistics.median(ratios)
    times = (high - low) / wanted
    count = math.ceil(times * times * len(ratios))
    return count if count > 2 else 2

def false_alarms(trials, **options):
    wrong = total = 0
    for values in trials:
        low, high = bootstrap_interval(values, **options)
        total += 1
        if low > 1 or high < 1:
            wrong += 1
    if total == 0:
        raise ValueError("there is no trial")
    return wrong / total
""",
    ),
    Alternative(
        "bound",
        "other orders, and a sorted search",
        """
def rounding_bound(terms, sizes, dtype=np.float32):
    return sizes * (2 * terms**0.5 * float(np.finfo(dtype).eps))

def product_reference(a, b):
    exact = np.matmul(a, b, dtype=np.float64)
    sizes = np.matmul(np.abs(a), np.abs(b), dtype=np.float64)
    whole = bool((a % 1 == 0).all()) and bool((b % 1 == 0).all())
    can_be_exact = sizes * np.finfo(a.dtype).eps <= 1
    bound = rounding_bound(len(b), sizes, a.dtype)
    return exact, np.where(whole & can_be_exact, 0.0, bound)

def furthest_off(output, exact, bound):
    if tuple(output.shape) != tuple(exact.shape):
        raise ValueError(f"{tuple(output.shape)} is not the shape {tuple(exact.shape)}")
    worst, where = 0.0, None
    given = np.asarray(output, dtype=np.float64)
    limits = np.broadcast_to(bound, exact.shape)
    for index in np.ndindex(*exact.shape):
        beyond = abs(float(given[index]) - float(exact[index])) - float(limits[index])
        if not math_is_finite(beyond):
            return index
        if beyond > worst:
            worst, where = beyond, index
    return where

def math_is_finite(value):
    return value == value and abs(value) != float("inf")
""",
    ),
    Alternative(
        "harness",
        "writes the four calls down, and keeps totals",
        """
def fresh_call(function, inputs, expected, now=time.process_time):
    copies = tuple(np.array(x, order="K", copy=True) for x in inputs)
    began = now()
    output = function(*copies)
    ended = now()
    if output.__class__ is not np.ndarray:
        raise TypeError("this is no array: " + output.__class__.__name__)
    if (wrong := difference([output], [expected])) is not None:
        raise ValueError(f"wrong: {wrong}")
    return ended - began

def measure_pairs(
    baseline, entry, make, reference, *, pairs=PAIRS, seed=None, now=time.process_time
):
    generator = np.random.default_rng(seed)
    totals = []
    for pair in range(pairs + 1):
        taken = {"A": 0.0, "B": 0.0}
        for letters in ("AB", "BA") if pair % 2 == 0 else ("BA", "AB"):
            inputs = make(generator)
            expected = reference(*inputs)
            for letter in letters:
                function = baseline if letter == "A" else entry
                taken[letter] += fresh_call(function, inputs, expected, now)
        totals.append((taken["A"], taken["B"]))
    del totals[0]
    return paired_ratios([a for a, _ in totals], [b for _, b in totals])
""",
    ),
]

EXCHANGED = "the comparison is the same from both sides"

EQUIVALENT = [
    Equivalent(
        "pairs",
        "paired_ratios: min([*slower, *faster], default=1.0) -> "
        "min([*slower, *faster], default=2.0)",
        "no pairs have any positive least time",
    ),
    Equivalent(
        "harness",
        "measure_pairs: pair + 1 -> pair - 1",
        "only whether a turn is even counts",
    ),
    Equivalent("trials", "pairs_needed: high - low -> low - high", "the reach is squared"),
    *[
        Equivalent(
            "bound",
            f"product_reference: np.array_equal({x}, np.rint({x})) -> "
            f"np.array_equal(np.rint({x}), {x})",
            EXCHANGED,
        )
        for x in ("left", "right")
    ],
    Equivalent(
        "bound",
        "furthest_off: output.astype(np.float64) - exact -> exact - output.astype(np.float64)",
        "its absolute value is taken",
    ),
]
