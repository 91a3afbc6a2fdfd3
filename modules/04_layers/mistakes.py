"""Wrong solutions that a student would plausibly write, and the points they lose."""

from tito.lessons.mistake import Mistake

LINEAR = """
class Linear(Module):
    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        dtype = parameter_dtype(device, dtype)
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(zeros(out_features, in_features, dtype=dtype))
        self.bias = Parameter(zeros(out_features, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self):
        init.reset_weight_and_bias(self.weight, self.bias)

    def forward(self, x):
        if self.bias is None:
            return apply(ops.linear, x, self.weight)
        return apply(ops.linear, x, self.weight, self.bias)

    def extra_repr(self):
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
"""


def changed(text: str, old: str, new: str) -> str:
    """The text with `old`, which it has once, replaced."""
    if text.count(old) != 1:
        raise ValueError(f"{old!r} stands {text.count(old)} times in the text")
    return text.replace(old, new)


MISTAKES = [
    Mistake(
        exercise="first-weights",
        name="takes a weight for (in, out)",
        source="""
def fan_in_and_fan_out(shape):
    if len(shape) < 2:
        raise ShapeError(f"fans need two dimensions, not {shape}")
    field = math.prod(shape[2:])
    return shape[0] * field, shape[1] * field
""",
        loses={"fans": 2, "kaiming": 2},
    ),
    Mistake(
        exercise="first-weights",
        name="forgets the window of a convolution",
        source="""
def fan_in_and_fan_out(shape):
    if len(shape) < 2:
        raise ShapeError(f"fans need two dimensions, not {shape}")
    return shape[1], shape[0]
""",
        loses={"fans": 2},
    ),
    Mistake(
        exercise="first-weights",
        name="forgets the root",
        source="""
def kaiming_std(shape, a, mode, nonlinearity):
    fans = dict(zip(("fan_in", "fan_out"), fan_in_and_fan_out(shape)))
    if mode not in fans:
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', not {mode!r}")
    return calculate_gain(nonlinearity, a) / max(fans[mode], 1)
""",
        loses={"kaiming": 2},
    ),
    Mistake(
        exercise="first-weights",
        name="draws from the global generator",
        source="""
def xavier_uniform_(tensor, gain=1.0, generator=None):
    bound = gain * math.sqrt(6 / sum(fan_in_and_fan_out(tensor.shape)))
    return uniform_(tensor, -bound, bound)
""",
        loses={"xavier-arguments": 1},
    ),
    Mistake(
        exercise="first-weights",
        name="takes the deviation for the bound",
        source="""
def xavier_uniform_(tensor, gain=1.0, generator=None):
    bound = gain * math.sqrt(2 / sum(fan_in_and_fan_out(tensor.shape)))
    return uniform_(tensor, -bound, bound, generator)
""",
        loses={"xavier": 2},
    ),
    Mistake(
        exercise="linear-map",
        name="does not bring the dimensions back",
        source="""
def linear(x, w, b=None):
    out = apply(ops.matmul, movement.rows(x), w.t())
    return out if b is None else out + b
""",
        loses={"linear-map-batches": 2},
    ),
    Mistake(
        exercise="linear-map",
        name="forgets the bias",
        source="""
def linear(x, w, b=None):
    out = apply(ops.matmul, movement.rows(x), w.t())
    return out.reshape((*x.shape[:-1], w.shape[0]))
""",
        loses={"linear-map-values": 2},
    ),
    Mistake(
        exercise="linear-layer",
        name="keeps plain tensors, which nobody finds",
        source=changed(
            changed(LINEAR, "Parameter(zeros(out_features, in", "(zeros(out_features, in"),
            "Parameter(zeros(out_features, dtype",
            "(zeros(out_features, dtype",
        ),
        loses={"linear-layer-parameters": 3},
    ),
    Mistake(
        exercise="linear-layer",
        name="leaves the parameters at zero",
        source=changed(LINEAR, "        self.reset_parameters()\n", ""),
        loses={"linear-layer-parameters": 3},
    ),
    Mistake(
        exercise="linear-layer",
        name="keeps the weight as (in, out)",
        source=changed(
            changed(
                LINEAR,
                "zeros(out_features, in_features, dtype",
                "zeros(in_features, out_features, dtype",
            ),
            "apply(ops.linear, x, self.weight, self.bias)",
            "x @ self.weight + self.bias",
        ),
        loses={
            "linear-layer-values": 2,
            "linear-layer-parameters": 3,
        },
    ),
    Mistake(
        exercise="linear-layer",
        name="ignores the dtype",
        source=changed(
            changed(LINEAR, "in_features, dtype=dtype)", "in_features)"),
            "zeros(out_features, dtype=dtype)",
            "zeros(out_features)",
        ),
        loses={"linear-layer-details": 2},
    ),
    Mistake(
        exercise="module-tree",
        name="gives a shared module twice",
        source="""
class Module(tinytorch.nn.Module):
    def named_modules(self, prefix="", remove_duplicate=True):
        stack = [(prefix, self, ())]
        while stack:
            name, module, above = stack.pop()
            if id(module) in above:
                raise ValueError(f"module {name!r} contains itself")
            yield name, module
            dot, path = f"{name}." if name else "", (*above, id(module))
            stack += [(dot + n, m, path) for n, m in module.named_children()][::-1]
""",
        loses={"module-tree-shared": 2, "module-tree-circle": 1},
    ),
    Mistake(
        exercise="module-tree",
        name="puts the children on the stack in their order",
        source="""
class Module(tinytorch.nn.Module):
    def named_modules(self, prefix="", remove_duplicate=True):
        seen = set()
        stack = [(prefix, self, ())]
        while stack:
            name, module, above = stack.pop()
            if remove_duplicate and id(module) in seen:
                continue
            if id(module) in above:
                raise ValueError(f"module {name!r} contains itself")
            seen.add(id(module))
            yield name, module
            dot, path = f"{name}." if name else "", (*above, id(module))
            stack += [(dot + n, m, path) for n, m in module.named_children()]
""",
        loses={"module-tree-names": 3, "module-tree-shared": 2},
    ),
    Mistake(
        exercise="module-tree",
        name="switches the mode of itself and its children only",
        source="""
class Module(tinytorch.nn.Module):
    def train(self, mode=True):
        self.training = mode
        for module in self.children():
            module.training = mode
        return self
""",
        loses={"module-modes": 2},
    ),
    Mistake(
        exercise="in-a-row",
        name="calls forward, past the hooks",
        source="""
class Sequential(tinytorch.nn.Sequential):
    def forward(self, x):
        for layer in self:
            x = layer.forward(x)
        return x
""",
        loses={"in-a-row-hooks": 2},
    ),
    Mistake(
        exercise="in-a-row",
        name="gives every layer the same x",
        source="""
class Sequential(tinytorch.nn.Sequential):
    def forward(self, x):
        out = x
        for layer in self:
            out = layer(x)
        return out
""",
        loses={"in-a-row-values": 2},
    ),
    Mistake(
        exercise="in-a-row",
        name="flattens the batch too",
        source="""
class Flatten(tinytorch.nn.Flatten):
    def forward(self, x):
        return flatten(x)
""",
        loses={"in-a-row-values": 2},
    ),
    Mistake(
        exercise="dropout",
        name="does not scale what is kept",
        source="""
def drop(x, shape, p, training, generator):
    check_probability(p)
    if not training or p == 0:
        return x
    keep = rand(shape, dtype=x.dtype, generator=generator) >= p
    return x * keep.to(x.dtype)
""",
        loses={"dropout-training": 3},
    ),
    Mistake(
        exercise="dropout",
        name="keeps with probability p",
        source="""
def drop(x, shape, p, training, generator):
    check_probability(p)
    if not training or p == 0:
        return x
    if p == 1:
        return x * 0.0
    keep = rand(shape, dtype=x.dtype, generator=generator) < p
    return x * (keep.to(x.dtype) * (1 / (1 - p)))
""",
        loses={"dropout-training": 3},
    ),
    Mistake(
        exercise="dropout",
        name="drops in evaluation too",
        source="""
def drop(x, shape, p, training, generator):
    check_probability(p)
    if p == 1:
        return x * 0.0
    keep = rand(shape, dtype=x.dtype, generator=generator) >= p
    return x * (keep.to(x.dtype) * (1 / (1 - p)))
""",
        loses={"dropout-evaluation": 2},
    ),
    Mistake(
        exercise="dropout",
        name="draws from the global generator and checks nothing",
        source="""
def drop(x, shape, p, training, generator):
    if not training or p == 0:
        return x
    if p == 1:
        return x * 0.0
    keep = rand(shape, dtype=x.dtype) >= p
    return x * (keep.to(x.dtype) * (1 / (1 - p)))
""",
        loses={"dropout-arguments": 1},
    ),
]
