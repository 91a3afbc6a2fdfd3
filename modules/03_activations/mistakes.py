"""Wrong solutions that a student would plausibly write, and the points they lose."""

from tito.lessons.mistake import Mistake

MISTAKES = [
    Mistake(
        exercise="scalar-activations",
        name="takes the sigmoid's formula as it stands",
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
        loses={"softplus-threshold": 2, "softplus-beta": 1},
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
        exercise="softmax",
        name="takes the formula as it stands",
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
    e = (x - x.amax()).exp()
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
    e = (x - x.amax(dim, keepdim=True)).exp()
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
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e / e.sum()
""",
        loses={"softmax-values": 2, "softmax-large": 2},
    ),
]
