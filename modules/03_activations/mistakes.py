"""Wrong solutions that students write, with the points that they lose, and other right ones."""

from tito.lessons.mistake import Alternative, Equivalent, Mistake

MISTAKES = [
    Mistake(
        exercise="scalar-activations",
        name="takes the sigmoid's formula as written",
        source="""
def sigmoid(a):
    return 1 / (1 + math.exp(-a))
""",
        loses={"sigmoid-extremes": 2},
    ),
    Mistake(
        exercise="scalar-activations",
        name="turns NaN into 0",
        source="""
def relu(a):
    return a if a > 0 else 0
""",
        loses={"activations-nan": 1},
    ),
    Mistake(
        exercise="scalar-activations",
        name="takes the absolute value",
        source="""
def relu(a):
    return max(a, -a)
""",
        loses={"relu-values": 2},
    ),
    Mistake(
        exercise="leaky-and-elu",
        name="subtracts 1 from exp",
        source="""
def elu(x, alpha=1.0):
    below = x <= 0
    return where(below, (where(below, x, 0.0).exp() - 1.0) * alpha, x)
""",
        loses={"elu-near-zero": 1},
    ),
    Mistake(
        exercise="leaky-and-elu",
        name="gives the slope to both sides",
        source="""
def leaky_relu(x, negative_slope=0.01):
    return where(x > 0, x, 0.0) + x * negative_slope
""",
        loses={"leaky-values": 2},
    ),
    Mistake(
        exercise="leaky-and-elu",
        name="forgets alpha",
        source="""
def elu(x, alpha=1.0):
    below = x <= 0
    return where(below, expm1(where(below, x, 0.0)), x)
""",
        loses={"elu-values": 2},
    ),
    Mistake(
        exercise="softplus",
        name="has no threshold",
        source="""
def softplus(x, beta=1.0, threshold=20.0):
    return log1p(exp(x * beta)) / beta
""",
        loses={
            "softplus-threshold": 2,
            "softplus-beta": 1,
            "logsigmoid-values": 2,
            "mish-and-celu-values": 2,
        },
    ),
    Mistake(
        exercise="softplus",
        name="computes exp where it is not picked",
        source="""
def softplus(x, beta=1.0, threshold=20.0):
    return where(x * beta > threshold, x, log1p(exp(x * beta)) / beta)
""",
        loses={"softplus-beta": 1, "mish-and-celu-values": 2},
    ),
    Mistake(
        exercise="softplus",
        name="forgets to divide by beta",
        source="""
def softplus(x, beta=1.0, threshold=20.0):
    beyond = x * beta > threshold
    return where(beyond, x, log1p(exp(where(beyond, 0.0, x * beta))))
""",
        loses={"softplus-beta": 1},
    ),
    Mistake(
        exercise="gelu",
        name="has one form only",
        source="""
def gelu(x, *, approximate):
    return x * 0.5 * ((x * SQRT_HALF).erf() + 1.0)
""",
        loses={"gelu-tanh": 2},
    ),
    Mistake(
        exercise="gelu",
        name="forgets the root in erf",
        source="""
def gelu(x, *, approximate):
    if approximate == "tanh":
        inner = (x + x * x * x * GELU_CUBIC) * SQRT_2_OVER_PI
        return x * 0.5 * (inner.tanh() + 1.0)
    return x * 0.5 * (x.erf() + 1.0)
""",
        loses={"gelu-exact": 2},
    ),
    Mistake(
        exercise="made-of-others",
        name="takes the logarithm of the sigmoid",
        source="""
def logsigmoid(x):
    return (1 / (1 + exp(-x))).log()
""",
        loses={"logsigmoid-values": 2},
    ),
    Mistake(
        exercise="made-of-others",
        name="keeps softplus' usual threshold",
        source="""
def logsigmoid(x):
    return -softplus(-x)
""",
        loses={"logsigmoid-values": 2},
    ),
    Mistake(
        exercise="made-of-others",
        name="celu is elu",
        source="""
def celu(x, alpha=1.0):
    return elu(x, alpha)
""",
        loses={"mish-and-celu-values": 2},
    ),
    Mistake(
        exercise="made-of-others",
        name="celu overflows where nobody looks",
        source="""
def celu(x, alpha=1.0):
    return where(x <= 0, expm1(x / alpha) * alpha, x)
""",
        loses={"mish-and-celu-values": 2},
    ),
    Mistake(
        exercise="made-of-others",
        name="mish without its gate's softplus",
        source="""
def mish(x):
    return x * tanh(x)
""",
        loses={"mish-and-celu-values": 2},
    ),
    Mistake(
        exercise="softmax",
        name="takes the formula as written",
        source="""
def softmax(x, *, dim):
    if x.ndim == 0 or x.shape[dim] == 0:
        return x * 0 + 1.0
    e = x.exp()
    return e / e.sum(dim, keepdim=True)
""",
        loses={"softmax-large": 2},
    ),
    Mistake(
        exercise="softmax",
        name="shifts by the largest of all scores",
        source="""
def softmax(x, *, dim):
    if x.ndim == 0 or x.shape[dim] == 0:
        return x * 0 + 1.0
    e = (x - x.amax().detach()).exp()
    return e / e.sum(dim, keepdim=True)
""",
        loses={"softmax-large": 2},
    ),
    Mistake(
        exercise="softmax",
        name="takes the logarithm of the softmax",
        source="""
def log_softmax(x, *, dim):
    if x.ndim == 0 or x.shape[dim] == 0:
        return x * 0
    e = (x - x.amax(dim, keepdim=True).detach()).exp()
    return (e / e.sum(dim, keepdim=True)).log()
""",
        loses={"log-softmax-values": 2},
    ),
    Mistake(
        exercise="softmax",
        name="divides by the sum over everything",
        source="""
def softmax(x, *, dim):
    if x.ndim == 0 or x.shape[dim] == 0:
        return x * 0 + 1.0
    e = (x - x.amax(dim, keepdim=True).detach()).exp()
    return e / e.sum()
""",
        loses={"softmax-values": 2, "softmax-large": 2},
    ),
    Mistake(
        exercise="leaky-and-elu",
        name="takes the larger of the two lines",
        source="""
def leaky_relu(x, negative_slope=0.01):
    return where(x > x * negative_slope, x, x * negative_slope)
""",
        loses={"leaky-values": 2},
    ),
    Mistake(
        exercise="leaky-and-elu",
        name="computes exp where it is not picked",
        source="""
def elu(x, alpha=1.0):
    return where(x > 0, x, expm1(x) * alpha)
""",
        loses={"elu-near-zero": 1},
    ),
    Mistake(
        exercise="softmax",
        name="adds a little to the sum, to be safe",
        source="""
def softmax(x, *, dim):
    if x.ndim == 0 or x.shape[dim] == 0:
        return x * 0 + 1.0
    e = (x - x.amax(dim, keepdim=True).detach()).exp()
    return e / (e.sum(dim, keepdim=True) + 1e-6)
""",
        loses={"softmax-values": 2},
    ),
    Mistake(
        exercise="softmax",
        name="lets a gradient through the shift",
        source="""
def softmax(x, *, dim):
    if x.ndim == 0 or x.shape[dim] == 0:
        return x * 0 + 1.0
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)
""",
        loses={"softmax-edges": 1},
    ),
    Mistake(
        exercise="scalar-activations",
        name="multiplies by the comparison",
        source="""
def relu(a):
    return a if a != a else a * (a > 0)
""",
        loses={"relu-values": 2},
    ),
    Mistake(
        exercise="scalar-activations",
        name="bounds the exponent by 500",
        source="""
def sigmoid(a):
    a = max(min(a, 500.0), -500.0) if a == a else a
    return 1.0 / (1.0 + math.exp(-a))
""",
        loses={"sigmoid-extremes": 2},
    ),
    Mistake(
        exercise="leaky-and-elu",
        name="goes through a list of numbers, and the result has no history",
        source="""
def leaky_relu(x, negative_slope=0.01):
    numbers = x.reshape(-1).tolist()
    changed = [a if a > 0 else a * negative_slope for a in numbers]
    return tinytorch.tensor(changed, dtype=x.dtype).reshape(x.shape)
""",
        loses={"leaky-values": 2},
    ),
    Mistake(
        exercise="leaky-and-elu",
        name="adds both sides, each times its condition",
        source="""
def leaky_relu(x, negative_slope=0.01):
    return x * (x > 0) + x * (x <= 0) * negative_slope
""",
        loses={"leaky-values": 2},
    ),
    Mistake(
        exercise="gelu",
        name="asks math.erf for each number, and the share has no history",
        source="""
def gelu(x, *, approximate):
    if approximate == "tanh":
        inner = (x + x * x * x * GELU_CUBIC) * SQRT_2_OVER_PI
        return x * 0.5 * (inner.tanh() + 1.0)
    share = [0.5 * (1 + math.erf(a * SQRT_HALF)) for a in x.reshape(-1).tolist()]
    return x * tinytorch.tensor(share, dtype=x.dtype).reshape(x.shape)
""",
        loses={"gelu-exact": 2},
    ),
]

ALTERNATIVES = [
    Alternative(
        exercise="scalar-activations",
        name="asks for the sign first",
        source="""
def relu(a):
    if a != a:
        return a
    return a if a > 0 else 0


def sigmoid(a):
    if a >= 0:
        return 1 / (1 + math.exp(-a))
    e = math.exp(a)
    return e / (e + 1)
""",
    ),
    Alternative(
        exercise="scalar-activations",
        name="by tanh near 0, by exp far out",
        source="""
def relu(a):
    return 0 if a <= 0 else a


def sigmoid(a):
    if abs(a) < 10:
        return 0.5 + 0.5 * math.tanh(a / 2)
    return math.exp(a) if a < -37 else 1.0 / (1.0 + math.exp(-a))
""",
    ),
    Alternative(
        exercise="leaky-and-elu",
        name="adds the two sides, each clamped at 0",
        source="""
def leaky_relu(x, negative_slope=0.01):
    slope = (x > 0).to(x.dtype) * (1.0 - negative_slope) + negative_slope
    return x * slope


def elu(x, alpha=1.0):
    left = expm1(where(x > 0, 0.0, x))
    return where(x > 0, x, left * alpha)
""",
    ),
    Alternative(
        exercise="softplus",
        name="by exp of what is below 0",
        source="""
def softplus(x, beta=1.0, threshold=20.0):
    t = x * beta
    picked = t > threshold
    t = where(picked, 0.0, t)
    smooth = where(t > 0, t, 0.0) + log1p(exp(where(t > 0, -t, t)))
    return where(picked, x, smooth / beta)
""",
    ),
    Alternative(
        exercise="gelu",
        name="by a share of x",
        source="""
def gelu(x, *, approximate):
    if approximate == "none":
        share = (x * SQRT_HALF).erf()
    else:
        share = (SQRT_2_OVER_PI * x * (1.0 + GELU_CUBIC * x * x)).tanh()
    return (x + x * share) / 2
""",
    ),
    Alternative(
        exercise="softmax",
        name="each by the other's pieces",
        source="""
def softmax(x, *, dim):
    if 0 in x.shape:
        return x.exp()
    if not x.shape:
        return (x - x).exp()
    top = x.detach().amax(dim, keepdim=True)
    powers = exp(x - top)
    return powers * (1.0 / powers.sum(dim, keepdim=True))


def log_softmax(x, *, dim):
    if 0 in x.shape or x.ndim < 1:
        return x - x
    x = x - x.detach().amax(dim, keepdim=True)
    return x - exp(x).sum(dim, keepdim=True).log()
""",
    ),
    Alternative(
        exercise="made-of-others",
        name="by cases of the sign, the curves from tanh's own formula and from elu",
        source="""
def logsigmoid(x):
    return where(x < 0, x, 0.0) - log1p(exp(where(x < 0, x, -x)))


def mish(x):
    inner = exp(-softplus(x) * 2.0)
    return x * (1.0 - inner) / (1.0 + inner)


def celu(x, alpha=1.0):
    return elu(x / alpha) * alpha
""",
    ),
]

# Changes of the reference that are right too, and why.
BOTH = "near 0 both forms are exact"
ZERO = "at 0 both sides are 0; the slope there is not stated"
UNPICKED = "any finite number will do where the other side is picked"
BY_ONE = "a short cut: multiplied or divided by 1 it is the same"
EQUIVALENT = [
    Equivalent("scalar-activations", "sigmoid: a >= 0 -> a > 0", BOTH),
    Equivalent("leaky-and-elu", "leaky_relu: x > 0 -> x >= 0", ZERO),
    Equivalent("leaky-and-elu", "elu: x < 0 if alpha == 1 else x <= 0 -> x < 0", ZERO),
    Equivalent("leaky-and-elu", "elu: x < 0 if alpha == 1 else x <= 0 -> x <= 0", ZERO),
    Equivalent("leaky-and-elu", "elu: alpha == 1 -> alpha != 1", ZERO),
    Equivalent("leaky-and-elu", "elu: alpha == 1 -> alpha == 2", ZERO),
    Equivalent("leaky-and-elu", "elu: alpha == 1 -> alpha == 0", ZERO),
    Equivalent("leaky-and-elu", "elu: x < 0 -> x <= 0", ZERO),
    Equivalent("leaky-and-elu", "elu: x <= 0 -> x < 0", ZERO),
    Equivalent("leaky-and-elu", "elu: where(below, x, 0.0) -> where(below, x, 1.0)", UNPICKED),
    Equivalent("softplus", "softplus: x if beta == 1 else x * beta -> x * beta", BY_ONE),
    Equivalent("softplus", "softplus: beta == 1 -> beta == 0", BY_ONE),
    Equivalent(
        "softplus",
        "softplus: where(beyond, 0.0, scaled) -> where(beyond, 1.0, scaled)",
        UNPICKED,
    ),
    Equivalent(
        "softplus",
        "softplus: smooth if beta == 1 else smooth / beta -> smooth / beta",
        BY_ONE,
    ),
    Equivalent("softplus", "softplus: beta == 1 -> beta == 0 (2)", BY_ONE),
    Equivalent("made-of-others", "celu: x <= 0 -> x < 0", ZERO),
    Equivalent("made-of-others", "celu: where(below, x, 0.0) -> where(below, x, 1.0)", UNPICKED),
]
