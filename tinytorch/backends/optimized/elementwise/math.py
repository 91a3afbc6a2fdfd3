"""exp and its relatives as polynomials: short straight-line code that LLVM vectorises.

A call of the C library's `expf` computes one number; inlined into a loop, the functions here
compute as many as a vector register holds. Each works for float32 and float64, by the type of its
argument.

| function | largest error, float32 | float64 | at the edges                                  |
|----------|------------------------|---------|-----------------------------------------------|
| exp      | 1.1 ulp                | 1.1     | 0 and infinity beyond the format's range      |
| exp2     | 1.1                    | 1.1     | exact for whole numbers                       |
| expm1    | 2.0                    | 2.0     | -1 at -inf; full accuracy near 0              |
| tanh     | 2.5                    | 3.0     | -1 and 1; full accuracy near 0                |
| erf      | 6.0                    | 1.5     | -1 and 1 exactly                              |

NaN gives NaN. `exp_of_negative` is `exp` for arguments up to 0, with 0 in place of subnormal
results; it takes two thirds of the time: on AVX-512, 16 results cost 9 multiply-adds, which fill
the two multipliers, and 5 other instructions beside them. `order_key` maps numbers to integers in
the same order: a largest integer LLVM finds with vector instructions, a largest float it does not,
since there the answer depends on where a NaN is.

The errors are measured in `tests/backends/optimized/test_math.py`.

The functions allow contraction of a multiplication and an addition, but no reassociation: it would
undo the two-part subtractions that keep the low bits.

Sources: W. Cody, W. Waite, "Software manual for the elementary functions", 1980, chapter 6
(argument reduction); Eigen, MathFunctionsImpl.h (coefficients of erf).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from tinytorch.backends.reference_special import ERF_TERMS
from tinytorch.jit.library import JIT, compile_source, kernel

__all__ = [
    "erf",
    "exp",
    "exp2",
    "exp_of_negative",
    "expm1",
    "from_order_key",
    "normal",
    "order_key",
    "standard_normal",
    "tanh",
]

EXACT = frozenset({"contract"})
exact_kernel = kernel(fastmath=EXACT, force_inline=True)


# The bits of a number, and the number of some bits. Numba wants the type named in the expression.


@exact_kernel
def _bits_of_single(x: Any) -> Any:
    return np.float32(x).view(np.int32)


@exact_kernel
def _single_of_bits(n: Any) -> Any:
    return np.int32(n).view(np.float32)


@exact_kernel
def _bits_of_double(x: Any) -> Any:
    return np.float64(x).view(np.int64)


@exact_kernel
def _double_of_bits(n: Any) -> Any:
    return np.int64(n).view(np.float64)


def _emit_fma(typing_context: Any, x: Any, y: Any, z: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fma(*values)

    return x(x, x, x), generate


def _fma_twin(x: Any, y: Any, z: Any) -> Any:
    if not math.isfinite(x * y) or not math.isfinite(z):
        return x * y + z  # which is not within fractions
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    return type(x)(float(exact))


fma: Any = intrinsic(_emit_fma) if JIT else _fma_twin
"""fma(x, y, z): x * y + z with one rounding, also where the processor has no such instruction."""


class Format:
    """A floating-point format: its types, and the numbers that its functions need.

    Attributes:
        real, integer: the NumPy types of that width.
        mantissa: bits after the point.
        bias: of the exponent field.
        exp_terms: c of  exp(r) = 1 + r + r^2 (c[0] + c[1] r + ...)  for |r| <= log(2) / 2. Their
            largest error is the least possible, a twentieth of an ulp: Taylor's series needs more.
        ln2_high, ln2_low: log(2) in two parts; the high one has so few bits that its product with
            an exponent is exact.
        lowest, highest: arguments beyond which exp is 0 and infinity.
        log_terms: coefficients of the logarithm, fdlibm's Lg1, Lg2, ...
    """

    def __init__(
        self,
        real: Any,
        integer: Any,
        ln2_high: float,
        lowest: float,
        highest: float,
        exp_terms: list[float],
        log_terms: list[float],
    ) -> None:
        info = np.finfo(real)
        self.real, self.integer = real, integer
        self.bits, self.from_bits = (
            (_bits_of_single, _single_of_bits)
            if real is np.float32
            else (_bits_of_double, _double_of_bits)
        )
        self.mantissa = integer(info.nmant)
        self.bias = integer(info.maxexp - 1)
        self.ln2_high = real(ln2_high)
        self.ln2_low = real(math.log(2) - ln2_high)
        if real is np.float64:  # log(2) itself is rounded: its missing part
            self.ln2_low = real(1.90821492927058770002e-10)
        self.lowest, self.highest = real(lowest), real(highest)
        self.exp_terms, self.log_terms = exp_terms, log_terms
        # Adding this number rounds to an integer, which then is in the low bits of the sum.
        self.rounder = real(1.5 * 2.0**info.nmant)
        self.rounder_bits = int(self.rounder.view(integer))


SINGLE = Format(
    np.float32, np.int32, 0.693359375, -104.0, 89.0,
    [0.4999999344336285, 0.16666520568496866, 0.04166838883391298, 0.0083687244075714159,
     0.0013814579042054785],
    [0.66666662693, 0.40000972152, 0.28498786688, 0.24279078841],
)  # fmt: skip
DOUBLE = Format(
    np.float64, np.int64, 6.93147180369123816490e-01, -746.0, 710.0,
    [0.5, 0.16666666666666683, 0.041666666666666093, 0.0083333333333170206, 0.0013888888889115956,
     0.00019841269896417655, 2.4801586926167842e-5, 2.7557234827882755e-6, 2.755758212853137e-7,
     2.5112048805195848e-8, 2.0826570021465596e-9],
    [6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
     2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
     1.479819860511658591e-01],
)  # fmt: skip


def polynomial(coefficients: list[float], real: Any) -> Callable[[Any], Any]:
    """A kernel for c[0] + c[1] x + c[2] x^2 + ..., by Horner's rule, in the type `real`."""
    names = {f"c{i}": real(c) for i, c in enumerate(coefficients)}
    text = f"c{len(coefficients) - 1}"
    for i in reversed(range(len(coefficients) - 1)):
        text = f"({text}) * x + c{i}"
    source = f"def horner(x):\n    return {text}\n"
    return compile_source("horner", source, names, fastmath=EXACT, force_inline=True)


def by_type(single: Callable[..., Any], double: Callable[..., Any]) -> Callable[[Any], Any]:
    """One function for both formats: kernels that call it get the one for the argument's type."""

    def function(x: Any) -> Any:
        return single(x) if isinstance(x, (np.float32, np.int32)) else double(x)

    if JIT:

        def choose(x):  # type: ignore[no-untyped-def]  # numba compares the two signatures
            if x in (types.float32, types.int32):
                return lambda x: single(x)
            return lambda x: double(x)

        overload(function, jit_options={"fastmath": set(EXACT), "forceinline": True})(choose)
    return function


def by_types(single: Callable[..., Any], double: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """`by_type` for functions of two numbers, which are of one type."""

    def function(x: Any, y: Any) -> Any:
        return single(x, y) if isinstance(x, np.float32) else double(x, y)

    if JIT:

        def choose(x, y):  # type: ignore[no-untyped-def]
            if x == types.float32:
                return lambda x, y: single(x, y)
            return lambda x, y: double(x, y)

        overload(function, jit_options={"fastmath": set(EXACT), "forceinline": True})(choose)
    return function


def _reduction(f: Format) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """x = n log(2) + r with integer n and |r| <= log(2) / 2; and 2**n from n.

    Then exp(x) = 2**n exp(r), and the series of exp(r) - 1 converges fast.
    """
    real, integer, mantissa, bias = f.real, f.integer, f.mantissa, f.bias
    bits, from_bits = f.bits, f.from_bits
    log2_e, ln2_high, ln2_low = real(1 / math.log(2)), f.ln2_high, f.ln2_low
    rounder, rounder_bits = f.rounder, f.rounder_bits
    series = polynomial(f.exp_terms, real)

    @exact_kernel
    def reduce(x: Any) -> Any:
        """n, and exp(r) - 1."""
        shifted = x * log2_e + rounder
        rounded = shifted - rounder
        r = (x - rounded * ln2_high) - rounded * ln2_low
        return integer(bits(shifted) - rounder_bits), r + r * r * series(r)

    @exact_kernel
    def power_of_two(n: Any) -> Any:
        return from_bits((n + bias) << mantissa)

    return reduce, power_of_two


def _make_exp(f: Format) -> Callable[[Any], Any]:
    reduce, power_of_two = _reduction(f)
    lowest, highest, one = f.lowest, f.highest, f.integer(1)

    @exact_kernel
    def exp(x: Any) -> Any:
        x = lowest if x < lowest else x  # a comparison with NaN is false: NaN stays
        x = highest if x > highest else x
        n, rest = reduce(x)
        half = n >> one
        # in two steps, since 2**n itself may be too large or too small for the format
        return (power_of_two(half) * rest + power_of_two(half)) * power_of_two(n - half)

    return exp


def _make_exp2(f: Format) -> Callable[[Any], Any]:
    """2**x = 2**n exp((x - n) log(2)), n the nearest integer: exact for whole numbers."""
    _, power_of_two = _reduction(f)
    series, bits, integer = polynomial(f.exp_terms, f.real), f.bits, f.integer
    rounder, rounder_bits, one = f.rounder, f.rounder_bits, f.integer(1)
    info, ln2 = np.finfo(f.real), f.real(math.log(2))
    lowest, highest = f.real(info.minexp - info.nmant - 2), f.real(info.maxexp + 1)

    @exact_kernel
    def exp2(x: Any) -> Any:
        x = lowest if x < lowest else x
        x = highest if x > highest else x
        shifted = x + rounder
        n = integer(bits(shifted) - rounder_bits)
        r = (x - (shifted - rounder)) * ln2
        rest, half = r + r * r * series(r), n >> one
        return (power_of_two(half) * rest + power_of_two(half)) * power_of_two(n - half)

    return exp2


def _make_exp_of_negative(f: Format) -> Callable[[Any], Any]:
    reduce, _ = _reduction(f)
    bits, from_bits, mantissa, one, zero = f.bits, f.from_bits, f.mantissa, f.real(1), f.real(0)
    lowest = f.real(math.log(np.finfo(f.real).smallest_normal) + 0.1)

    @exact_kernel
    def exp_of_negative(x: Any) -> Any:
        n, rest = reduce(x)
        # the sum is between 0.7 and 1.5: adding to its exponent field multiplies it by 2**n
        result = bits(one + rest) + (n << mantissa)
        # below `lowest` that is nonsense, and of a NaN it may make a number
        otherwise = bits(zero if x < zero else x)
        return from_bits(result if x >= lowest else otherwise)

    return exp_of_negative


def _make_expm1(f: Format) -> Callable[[Any], Any]:
    reduce, power_of_two = _reduction(f)
    lowest, highest = f.real(-40), f.highest
    half, two, one = f.real(0.5), f.real(2), f.integer(1)
    smallest = np.finfo(f.real).smallest_normal

    @exact_kernel
    def expm1(x: Any) -> Any:
        clipped = lowest if x < lowest else x
        clipped = highest if clipped > highest else clipped
        n, rest = reduce(clipped)
        # 2**(n - 1), since 2**n may be too large
        scale = power_of_two(n - one)
        result = two * (scale * rest + (scale - half))
        return x if abs(x) < smallest else result  # also keeps the sign of zero

    return expm1


def _make_tanh(f: Format) -> Callable[[Any], Any]:
    expm1, largest, two = _make_expm1(f), f.real(40), f.real(2)

    @exact_kernel
    def tanh(x: Any) -> Any:
        """tanh |x| = (exp(2 |x|) - 1) / (exp(2 |x|) + 1)."""
        magnitude = abs(x)
        doubled = two * magnitude
        doubled = largest if doubled > largest else doubled
        t = expm1(doubled)
        return np.copysign(t / (t + two), x)

    return tanh


def _make_order_key(f: Format) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Integers in the order of the numbers (a NaN is at one of the two ends); and back."""
    bits, from_bits, integer = f.bits, f.from_bits, f.integer
    below_sign, sign = integer(np.iinfo(integer).max), integer(np.iinfo(integer).bits - 1)

    @exact_kernel
    def order_key(x: Any) -> Any:
        pattern = bits(x)  # of two negative numbers the larger has the smaller pattern: turn it
        return integer(pattern ^ ((pattern >> sign) & below_sign))

    @exact_kernel
    def from_order_key(key: Any) -> Any:
        return from_bits(key ^ ((key >> sign) & below_sign))

    return order_key, from_order_key


def _make_erf() -> Callable[[Any], Any]:
    """A rational function of x^2, times x; beyond 3.925 the result rounds to 1."""
    above = polynomial(
        [-1.60960333262415e-02, -2.95459980854025e-03, -7.34990630326855e-04,
         -5.69250639462346e-05, -2.10102402082508e-06, 2.77068142495902e-08,
         -2.72614225801306e-10], np.float32,
    )  # fmt: skip
    below = polynomial(
        [-1.42647390514189e-02, -7.37332916720468e-03, -1.68282697438203e-03,
         -2.13374055278905e-04, -1.45660718464996e-05], np.float32,
    )  # fmt: skip
    furthest, one = np.float32(3.925), np.float32(1)

    @exact_kernel
    def erf(x: Any) -> Any:
        square = x * x
        result = x * above(square) / below(square)
        return np.copysign(one, x) if abs(x) > furthest else result

    return erf


def _make_erf_double() -> Callable[[Any], Any]:
    """x times a polynomial of x^2 up to 1, of the least largest error; beyond, 1 - exp(x p(x))."""
    near = polynomial(
        [1.1283791670955126, -0.37612638903183543, 0.11283791670945006, -0.02686617064323777,
         0.0052239776071164225, -0.0008548325975389692, 0.00012055294904839707,
         -1.492473690741966e-05, 1.6447424703317362e-06, -1.6208483801871705e-07,
         1.3720064546777686e-08, -7.795898827002142e-10], np.float64,
    )  # fmt: skip
    far = polynomial([float(term) for term in ERF_TERMS[np.dtype(np.float64)]], np.float64)
    exp_of, furthest, one = _make_exp_of_negative(DOUBLE), np.float64(6), np.float64(1)

    @exact_kernel
    def erf(x: Any) -> Any:
        size = abs(x)
        clipped = furthest if size > furthest else size
        beyond = np.copysign(one - exp_of(clipped * far(clipped)), x)
        inside = one if size > one else x
        return beyond if size > one else inside * near(inside * inside)

    return erf


def standard_normal(x: float) -> tuple[float, float]:
    """The probability that a standard normal variable is below x, and e^(-x^2/2): what compiled
    code computes by `normal`."""
    return 0.5 * (1 + math.erf(x * math.sqrt(0.5))), math.exp(-0.5 * x * x)


def _make_normal() -> Callable[[Any], Any]:
    """The probability below x is e^(-x^2/2) p(|x|) for negative x, and 1 less that otherwise.

    p is fitted so that the error of what is multiplied by x and by e^(-x^2/2) is least: 4e-8.
    """
    scaled_tail = polynomial(
        [0.5, -0.3989403, 0.249963575, -0.13274852, 0.0617610731, -0.0252192508, 0.00877026604,
         -0.00245600029, 0.000515591038, -7.43387026e-05, 6.45791131e-06, -2.52130723e-07],
        np.float32,
    )  # fmt: skip
    exp_of, furthest = _make_exp_of_negative(SINGLE), np.float32(5.3)
    half, one, zero = np.float32(0.5), np.float32(1), np.float32(0)

    @exact_kernel
    def normal(x: Any) -> Any:
        size = abs(x)
        clipped = furthest if size > furthest else size
        density = exp_of(-half * x * x)
        tail = density * scaled_tail(clipped)
        return tail if x < zero else one - tail, density

    return normal


def _make_normal_double() -> Callable[[Any], Any]:
    exp_of, erf_of = _make_exp_of_negative(DOUBLE), _make_erf_double()
    half, one, root = np.float64(0.5), np.float64(1), np.float64(math.sqrt(0.5))

    @exact_kernel
    def normal(x: Any) -> Any:
        return half * (one + erf_of(x * root)), exp_of(-half * x * x)

    return normal


_orders = _make_order_key(SINGLE), _make_order_key(DOUBLE)

exp = by_type(_make_exp(SINGLE), _make_exp(DOUBLE))
exp2 = by_type(_make_exp2(SINGLE), _make_exp2(DOUBLE))
exp_of_negative = by_type(_make_exp_of_negative(SINGLE), _make_exp_of_negative(DOUBLE))
expm1 = by_type(_make_expm1(SINGLE), _make_expm1(DOUBLE))
order_key = by_type(_orders[0][0], _orders[1][0])
from_order_key = by_type(_orders[0][1], _orders[1][1])
tanh = by_type(_make_tanh(SINGLE), _make_tanh(DOUBLE))
erf = by_type(_make_erf(), _make_erf_double())
normal = by_type(_make_normal(), _make_normal_double())
