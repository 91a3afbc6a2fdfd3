"""Wrong solutions that students write, with the points that they lose, and other right ones."""

from tito.lessons.mistake import Alternative, Equivalent, Mistake

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
        raise ValueError(f"{old!r} is {text.count(old)} times in the text")
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
        loses={"fans": 2, "xavier-arguments": 1},
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
        loses={"xavier": 2, "xavier-arguments": 1},
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
    Mistake(
        exercise="first-weights",
        name="knows matrices only",
        source="""
def xavier_uniform_(tensor, gain=1.0, generator=None):
    bound = gain * math.sqrt(6 / (tensor.shape[0] + tensor.shape[1]))
    return uniform_(tensor, -bound, bound, generator)
""",
        loses={"xavier-arguments": 1},
    ),
    Mistake(
        exercise="linear-layer",
        name="leaves the bias at zero",
        source=changed(
            LINEAR,
            "init.reset_weight_and_bias(self.weight, self.bias)",
            "init.reset_weight_and_bias(self.weight, None)",
        ),
        loses={"linear-layer-parameters": 3},
    ),
    Mistake(
        exercise="module-tree",
        name="stops at the first module that it has given already",
        source="""
class Module(tinytorch.nn.Module):
    def named_modules(self, prefix="", remove_duplicate=True):
        seen = set()
        stack = [(prefix, self, ())]
        while stack:
            name, module, above = stack.pop()
            if remove_duplicate and id(module) in seen:
                return
            if id(module) in above:
                raise ValueError(f"module {name!r} contains itself")
            seen.add(id(module))
            yield name, module
            dot, path = f"{name}." if name else "", (*above, id(module))
            stack += [(dot + n, m, path) for n, m in module.own_modules()][::-1]
""",
        loses={"module-tree-shared": 2},
    ),
    Mistake(
        exercise="in-a-row",
        name="flattens to the end, whatever end_dim says",
        source="""
class Flatten(tinytorch.nn.Flatten):
    def forward(self, x):
        return flatten(x, self.start_dim)
""",
        loses={"in-a-row-values": 2},
    ),
    Mistake(
        exercise="dropout",
        name="answers in float32",
        source="""
def drop(x, shape, p, training, generator):
    check_probability(p)
    if not training or p == 0:
        return x
    if p == 1:
        return x * 0.0
    keep = rand(shape, generator=generator) >= p
    return x.to("float32") * (keep.to("float32") * (1 / (1 - p)))
""",
        loses={"dropout-arguments": 1},
    ),
    Mistake(
        exercise="linear-layer",
        name="makes new parameters when it is reset",
        source="""
class Linear(Module):
    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.has_bias, self.dtype = bias, parameter_dtype(device, dtype)
        self.reset_parameters()

    def reset_parameters(self):
        size, dtype = (self.out_features, self.in_features), self.dtype
        self.weight = Parameter(zeros(size, dtype=dtype))
        self.bias = Parameter(zeros(size[0], dtype=dtype)) if self.has_bias else None
        init.reset_weight_and_bias(self.weight, self.bias)

    def forward(self, x):
        return linear(x, self.weight, self.bias)

    def extra_repr(self):
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
""",
        loses={"linear-layer-parameters": 3},
    ),
    Mistake(
        exercise="first-weights",
        name="writes over a weight that requires a gradient",
        source="""
def xavier_uniform_(tensor, gain=1.0, generator=None):
    bound = gain * math.sqrt(6 / sum(fan_in_and_fan_out(tensor.shape)))
    return tensor.uniform_(-bound, bound, generator=generator)
""",
        loses={"xavier-arguments": 1},
    ),
    Mistake(
        exercise="linear-map",
        name="multiplies arrays, and the result has no history",
        source="""
def linear(x, w, b=None):
    out = tinytorch.tensor(x.detach().numpy() @ w.detach().numpy().T)
    return out if b is None else out + b
""",
        loses={"linear-map-values": 2},
    ),
    Mistake(
        exercise="linear-map",
        name="leaves sizes to -1, which an empty batch does not have",
        source="""
def linear(x, w, b=None):
    out = x.reshape(-1, w.shape[1]) @ w.t()
    out = out if b is None else out + b
    return out.reshape(*x.shape[:-1], -1)
""",
        loses={"linear-map-batches": 2},
    ),
    Mistake(
        exercise="module-tree",
        name="switches the mode of two levels below",
        source="""
class Module(tinytorch.nn.Module):
    def train(self, mode=True):
        self.training = mode
        for _, child in self.own_modules():
            child.training = mode
            for _, grandchild in child.own_modules():
                grandchild.training = mode
        return self
""",
        loses={"module-modes": 2},
    ),
    Mistake(
        exercise="in-a-row",
        name="goes through the children, of which each is there once",
        source="""
class Sequential(tinytorch.nn.Sequential):
    def forward(self, x):
        for layer in self.children():
            x = layer(x)
        return x
""",
        loses={"in-a-row-values": 2},
    ),
    Mistake(
        exercise="dropout",
        name="asks for p = 1 before it asks for the mode",
        source="""
def drop(x, shape, p, training, generator):
    check_probability(p)
    if p == 1:
        return x * 0.0
    if not training or p == 0:
        return x
    keep = rand(shape, dtype=x.dtype, generator=generator) >= p
    return x * (keep.to(x.dtype) * (1 / (1 - p)))
""",
        loses={"dropout-evaluation": 2},
    ),
    Mistake(
        exercise="dropout",
        name="looks at p in training only",
        source="""
def drop(x, shape, p, training, generator):
    if not training or p == 0:
        return x
    check_probability(p)
    if p == 1:
        return x * 0.0
    keep = rand(shape, dtype=x.dtype, generator=generator) >= p
    return x * (keep.to(x.dtype) * (1 / (1 - p)))
""",
        loses={"dropout-arguments": 1},
    ),
]

ALTERNATIVES = [
    Alternative(
        exercise="first-weights",
        name="multiplies in a loop, and asks for each mode",
        source="""
def fan_in_and_fan_out(shape):
    try:
        out, into, *window = shape
    except ValueError:
        raise ShapeError(f"{shape} is the shape of no weight") from None
    for size in window:
        out, into = out * size, into * size
    return into, out


def kaiming_std(shape, a, mode, nonlinearity):
    into, out = fan_in_and_fan_out(shape)
    if mode == "fan_in":
        fan = into
    elif mode == "fan_out":
        fan = out
    else:
        raise ValueError(f"fan_in and fan_out are possible; {mode} was asked for")
    return calculate_gain(nonlinearity, a) * (fan or 1) ** -0.5


def xavier_uniform_(tensor, gain=1.0, generator=None):
    into, out = fan_in_and_fan_out(tensor.shape)
    edge = gain * (6.0 / (into + out)) ** 0.5
    uniform_(tensor, -edge, edge, generator=generator)
    return tensor
""",
    ),
    Alternative(
        exercise="linear-map",
        name="with operators, on rows made by reshape",
        source="""
def linear(x, w, b=None):
    columns = w.shape[1]
    count = 1
    for size in x.shape[:-1]:
        count *= size
    y = x.reshape(count, columns) @ w.mT
    y = y.reshape(x.shape[:-1] + (w.shape[0],))
    return y if b is None else y + b
""",
    ),
    Alternative(
        exercise="linear-layer",
        name="makes the parameters first, and draws them itself",
        source="""
class Linear(Module):
    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        kind = parameter_dtype(device, dtype)
        super().__init__()
        self.bias = None
        self.weight = Parameter(zeros((out_features, in_features), dtype=kind))
        if bias:
            self.bias = Parameter(zeros((out_features,), dtype=kind))
        self.in_features, self.out_features = in_features, out_features
        self.reset_parameters()

    def reset_parameters(self):
        bound = 1 / max(self.in_features, 1) ** 0.5
        for parameter in (self.weight, self.bias):
            if parameter is not None:
                init.uniform_(parameter, -bound, bound)

    def forward(self, x):
        inputs = [x, self.weight] + ([] if self.bias is None else [self.bias])
        return apply(ops.linear, *inputs)

    def extra_repr(self):
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
""",
    ),
    Alternative(
        exercise="module-tree",
        name="by a recursion",
        source="""
class Module(tinytorch.nn.Module):
    def named_modules(self, prefix="", remove_duplicate=True):
        given = set()

        def walk(name, module, parents):
            if remove_duplicate and module in given:
                return
            if any(module is parent for parent in parents):
                raise ValueError(f"{name} would go on for ever")
            given.add(module)
            yield name, module
            for own, child in module.own_modules():
                full = own if name == "" else name + "." + own
                yield from walk(full, child, [*parents, module])

        return walk(prefix, self, [])

    def train(self, mode=True):
        for _, module in self.named_modules():
            setattr(module, "training", mode)
        return self
""",
    ),
    Alternative(
        exercise="in-a-row",
        name="by reduce, and by a reshape",
        source="""
class Sequential(tinytorch.nn.Sequential):
    def forward(self, x):
        layers = list(self)
        while layers:
            x = layers.pop(0)(x)
        return x


class Flatten(tinytorch.nn.Flatten):
    def forward(self, x):
        start = self.start_dim if self.start_dim >= 0 else x.ndim + self.start_dim
        end = self.end_dim if self.end_dim >= 0 else x.ndim + self.end_dim
        return flatten(x, start_dim=start, end_dim=end)
""",
    ),
    Alternative(
        exercise="dropout",
        name="divides by what is kept, and drops by where",
        source="""
def drop(x, shape, p, training, generator):
    check_probability(p)
    if not training:
        return x
    kept = 1.0 - p
    if kept == 0.0:
        return x - x
    if kept == 1.0:
        return x
    numbers = rand(shape, dtype=x.dtype, generator=generator)
    mask = (numbers < kept).to(x.dtype)
    return x * mask / kept
""",
    ),
]

# Changes of the reference that are right too, and why.
SAME_SHAPE = "a short cut: two dimensions come back as they are"
NOTHING_KEPT = "a Module keeps nothing of its own: attributes are found by their type"
REFUSALS = "zeros takes None and names as well; what is refused is not stated"
MEASURE_ZERO = "a draw is p itself once in 2^24 times"
ROUNDED = "the same draws with fewer bits: the same mask but once in 2^24 times"
EQUIVALENT = [
    Equivalent(
        "linear-map",
        "linear: out if x.ndim == 2 else out.reshape((*x.shape[:-1], w.shape[0])) -> "
        "out.reshape((*x.shape[:-1], w.shape[0]))",
        SAME_SHAPE,
    ),
    Equivalent("linear-layer", "Linear.__init__: super().__init__() -> nothing", NOTHING_KEPT),
    Equivalent("linear-layer", "Linear.__init__: super().__init__() -> super()", NOTHING_KEPT),
    Equivalent(
        "linear-layer",
        "Linear.__init__: dtype = parameter_dtype(device, dtype) -> nothing",
        REFUSALS,
    ),
    Equivalent(
        "dropout",
        "drop: rand(shape, dtype=x.dtype, generator=generator) >= p -> rand(shape, "
        "dtype=x.dtype, generator=generator) > p",
        MEASURE_ZERO,
    ),
    Equivalent(
        "dropout",
        "drop: rand(shape, dtype=x.dtype, generator=generator) -> rand(shape, generator=generator)",
        ROUNDED,
    ),
]
