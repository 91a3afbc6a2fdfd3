"""Wrong solutions that a student would plausibly write, and the points they lose."""

from tito.lessons.mistake import Alternative, Equivalent, Mistake

REGISTER = """
def register_backend(name, factory, *, replace=False):
    if isinstance(factory, type):
        factory = adapted(factory)
    if name in _factories and not replace:
        raise BackendError(f"there is a backend {name!r} already; pass replace=True to replace it")
    _factories[name] = factory
    _instances.pop(name, None)
"""

FIND = """
def find_backend(backend):
    if isinstance(backend, ComputeBackend):
        return backend
    if backend not in _instances:
        if backend not in _factories:
            raise BackendError(f"there is no backend {backend!r}; there are {list_backends()}")
        instance = _factories[backend]()
        if not isinstance(instance, ComputeBackend):
            raise BackendError(
                f"backend {backend!r}: {type(instance).__name__} is not a ComputeBackend"
            )
        _instances[backend] = instance
    return _instances[backend]
"""

CONTEXT = """
def on_backend(state, backend):
    return State(state.mode, state.below, backend, state.grad, state.phase)


class StateContext(tinytorch.state.StateContext):
    def __enter__(self):
        self._token = STATE.set(self.state)

    def __exit__(self, *error):
        STATE.reset(self._token)


def current_backend():
    return STATE.get().backend or backends.get_backend()
"""

FINDING = """
class ComputeBackend(tinytorch.backends.ComputeBackend):
    def find_kernel(self, op):
        own = getattr(self, op.name, None)
        if own is not None:
            return own
        family = getattr(self, op.kind, None)
        if family is not None:
            return lambda *arrays, **params: family(op, *arrays, **params)
        kernel = reference.find_kernel(op)
        if kernel is None:
            raise NotImplementedError(f"{type(self).__name__} has no kernel for {op.name}")
        return kernel
"""

TABLE = """
def _looped(scalar):
    def kernel(*operands):
        ones = [1] * len(operands)
        dtype = bool if isinstance(scalar(*ones), bool) else np.result_type(*operands)
        return np.vectorize(scalar, otypes=[dtype])(*operands)

    return kernel


def find_kernel(op):
    if op.name in _FUNCTIONS:
        return _FUNCTIONS[op.name]
    if op.kind == "elementwise":
        return _looped(op.scalar)
    return None
"""

PROMISE = """
def _checking(kernel, plan, backend):
    meta = plan.meta

    def checked(*inputs, **params):
        array = np.asarray(kernel(*inputs, **params))
        if array.shape != meta.shape or array.dtype != meta.dtype.dtype:
            raise BackendError(
                f"{type(backend).__name__}.{plan.op.name} returned "
                f"{array.dtype}{list(array.shape)}, but the op's rules say {meta}"
            )
        return array

    return checked


class ComputeBackend(tinytorch.backends.ComputeBackend):
    def add_kernel(self, plan):
        if len(self.kernels) >= KERNELS:
            self.kernels.clear()
        kernel = self.specialize(plan)
        if "trusted" not in vars(type(self)) or not plan.meta.shape:
            kernel = _checking(kernel, plan, self)
        self.kernels[plan] = kernel
        return kernel
"""

COLUMNS = """
def _columns(x, kernel, stride, padding, dilation, groups):
    windows = windows2d(pad2d(x, padding), kernel, stride, dilation)
    n, c, oh, ow, kh, kw = windows.shape
    split = windows.reshape(n, groups, c // groups, oh, ow, kh, kw)
    rows = split.transpose(1, 0, 3, 4, 2, 5, 6)
    return rows.reshape(groups, n * oh * ow, c // groups * kh * kw)


def _positions(g, groups):
    n, o, oh, ow = g.shape
    split = g.reshape(n, groups, o // groups, oh, ow)
    return split.transpose(1, 0, 3, 4, 2).reshape(groups, n * oh * ow, o // groups)
"""

CONVOLUTION = """
def conv2d(x, w, b=None, *, stride, padding, dilation, groups):
    n, o = x.shape[0], w.shape[0]
    oh, ow = (
        window_positions(x.shape[i + 2], w.shape[i + 2], stride[i], padding[i], dilation[i])
        for i in range(2)
    )
    columns = _columns(x, w.shape[2:], stride, padding, dilation, groups)
    out = columns @ w.reshape(groups, o // groups, columns.shape[2]).transpose(0, 2, 1)
    out = out.reshape(groups, n, oh, ow, o // groups).transpose(1, 0, 4, 2, 3)
    out = np.ascontiguousarray(out.reshape(n, o, oh, ow))
    if b is not None:
        out += b[:, None, None]
    return out
"""

WEIGHT = """
def conv2d_weight(x, g, *, kernel_size, stride, padding, dilation, groups):
    o, cg = g.shape[1], x.shape[1] // groups
    columns = _columns(x, kernel_size, stride, padding, dilation, groups)
    out = _positions(g, groups).transpose(0, 2, 1) @ columns
    return out.reshape(o, cg, *kernel_size)
"""

INPUT = """
def conv2d_input(g, w, *, input_size, stride, padding, dilation, groups):
    n, o, oh, ow = g.shape
    _, cg, kh, kw = w.shape
    columns = _positions(g, groups) @ w.reshape(groups, o // groups, cg * kh * kw)
    spread = columns.reshape(groups, n, oh, ow, cg, kh, kw).transpose(1, 0, 4, 2, 3, 5, 6)
    h, wd = (s + 2 * p for s, p in zip(input_size, padding))
    out = np.zeros((n, groups, cg, h, wd), g.dtype)
    for i in range(kh):
        for j in range(kw):
            top, left = i * dilation[0], j * dilation[1]
            rows = slice(top, top + (oh - 1) * stride[0] + 1, stride[0])
            cols = slice(left, left + (ow - 1) * stride[1] + 1, stride[1])
            out[..., rows, cols] += spread[..., i, j]
    return _unpad(out.reshape(n, groups * cg, h, wd), padding)
"""


def changed(source: str, old: str, new: str) -> str:
    assert source.count(old) == 1, old
    return source.replace(old, new)


MISTAKES = [
    Mistake(
        exercise="registry",
        name="makes the backend when it is registered",
        source=changed(
            REGISTER, "    _instances.pop(name, None)", "    _instances[name] = factory()"
        )
        + FIND,
        loses={"registry-names": 3, "registry-refused": 4, "registry-details": 3},
    ),
    Mistake(
        exercise="registry",
        name="an old instance survives its replacement",
        source=changed(REGISTER, "    _instances.pop(name, None)\n", "") + FIND,
        loses={"registry-refused": 4},
    ),
    Mistake(
        exercise="registry",
        name="makes a new backend each time",
        source=REGISTER
        + changed(
            FIND,
            "        _instances[backend] = instance\n    return _instances[backend]",
            "        return instance\n    return _instances[backend]",
        ),
        loses={"registry-names": 3, "registry-refused": 4},
    ),
    Mistake(
        exercise="registry",
        name="remembers before it checks",
        source=REGISTER
        + changed(
            FIND,
            "instance = _factories[backend]()",
            "instance = _instances[backend] = _factories[backend]()",
        ),
        loses={"registry-refused": 4},
    ),
    Mistake(
        exercise="registry",
        name="forgets to adapt a class",
        source=changed(
            REGISTER,
            """    if isinstance(factory, type):
        factory = adapted(factory)
""",
            "",
        )
        + FIND,
        loses={"registry-details": 3},
    ),
    Mistake(
        exercise="context",
        name="always restores the default",
        source=changed(
            CONTEXT,
            "STATE.reset(self._token)",
            "STATE.set(State(None, None, None, True, 'forward'))",
        ),
        loses={"context-blocks": 4, "context-threads": 4},
    ),
    Mistake(
        exercise="context",
        name="changes the state in place",
        source=changed(
            CONTEXT,
            "    return State(state.mode, state.below, backend, state.grad, state.phase)",
            "    state.backend = backend\n    return state",
        ),
        loses={"context-blocks": 4, "context-threads": 4},
    ),
    Mistake(
        exercise="context",
        name="begins with a fresh state",
        source=changed(
            CONTEXT,
            "State(state.mode, state.below, backend, state.grad, state.phase)",
            "State(None, None, backend, True, 'forward')",
        ),
        loses={"context-blocks": 4, "context-threads": 4},
    ),
    Mistake(
        exercise="context",
        name="swallows errors",
        source=changed(
            CONTEXT,
            "        STATE.reset(self._token)",
            "        STATE.reset(self._token)\n        return True",
        ),
        loses={"context-blocks": 4},
    ),
    Mistake(
        exercise="finding",
        name="forgets the method for the kind",
        source=changed(
            FINDING,
            """        family = getattr(self, op.kind, None)
        if family is not None:
            return lambda *arrays, **params: family(op, *arrays, **params)
""",
            "",
        ),
        loses={"finding-order": 5, "finding-details": 3},
    ),
    Mistake(
        exercise="finding",
        name="calls the method for the kind without the op",
        source=changed(
            FINDING, "lambda *arrays, **params: family(op, *arrays, **params)", "family"
        ),
        loses={"finding-order": 5, "finding-details": 3},
    ),
    Mistake(
        exercise="finding",
        name="drops the parameters",
        source=changed(
            FINDING,
            "lambda *arrays, **params: family(op, *arrays, **params)",
            "lambda *arrays: family(op, *arrays)",
        ),
        loses={"finding-details": 3},
    ),
    Mistake(
        exercise="finding",
        name="returns None where nobody has a kernel",
        source=changed(
            FINDING,
            """        if kernel is None:
            raise NotImplementedError(f"{type(self).__name__} has no kernel for {op.name}")
""",
            "",
        ),
        loses={"finding-details": 3},
    ),
    Mistake(
        exercise="table",
        name="lets NumPy guess the dtype",
        source=changed(TABLE, "np.vectorize(scalar, otypes=[dtype])", "np.vectorize(scalar)"),
        loses={"table-edges": 2},
    ),
    Mistake(
        exercise="table",
        name="comparisons answer with floats",
        source=changed(TABLE, "bool if isinstance(scalar(*ones), bool) else ", ""),
        loses={"table-values": 4, "table-edges": 2},
    ),
    Mistake(
        exercise="table",
        name="loops over every elementwise op",
        source=changed(
            TABLE,
            """    if op.name in _FUNCTIONS:
        return _FUNCTIONS[op.name]
    if op.kind == "elementwise":
        return _looped(op.scalar)
    return None""",
            """    if op.kind == "elementwise":
        return _looped(op.scalar)
    return _FUNCTIONS.get(op.name)""",
        ),
        loses={"table-edges": 2},
    ),
    Mistake(
        exercise="promise",
        name="looks at the shape only",
        source=changed(PROMISE, " or array.dtype != meta.dtype.dtype", ""),
        loses={"promise-checked": 4},
    ),
    Mistake(
        exercise="promise",
        name="returns what the kernel gave, not the array",
        source=changed(
            changed(
                PROMISE,
                "array = np.asarray(kernel(*inputs, **params))",
                "given = kernel(*inputs, **params)\n        array = np.asarray(given)",
            ),
            "        return array\n",
            "        return given\n",
        ),
        loses={"promise-checked": 4, "promise-trusted": 4},
    ),
    Mistake(
        exercise="promise",
        name="trust is inherited",
        source=changed(
            PROMISE, '"trusted" not in vars(type(self))', 'not hasattr(self, "trusted")'
        ),
        loses={"promise-trusted": 4},
    ),
    Mistake(
        exercise="promise",
        name="never forgets",
        source=changed(
            PROMISE,
            """        if len(self.kernels) >= KERNELS:
            self.kernels.clear()
""",
            "",
        ),
        loses={"promise-trusted": 4},
    ),
    Mistake(
        exercise="promise",
        name="remembers nothing",
        source=changed(PROMISE, "        self.kernels[plan] = kernel\n", ""),
        loses={"promise-checked": 4, "promise-trusted": 4},
    ),
    Mistake(
        exercise="columns",
        name="reshapes without bringing the dimensions into order",
        source=changed(
            COLUMNS,
            "    rows = split.transpose(1, 0, 3, 4, 2, 5, 6)\n    return rows.",
            "    return split.",
        ),
        loses={
            "columns-values": 4,
            "columns-batches": 2,
            "convolution-values": 4,
            "convolution-groups": 2,
            "gradients-details": 4,
        },
    ),
    Mistake(
        exercise="columns",
        name="forgets the padding",
        source=changed(COLUMNS, "pad2d(x, padding)", "x"),
        loses={
            "columns-values": 4,
            "convolution-values": 4,
            "convolution-groups": 2,
            "gradients-weight": 3,
            "gradients-details": 4,
        },
    ),
    Mistake(
        exercise="columns",
        name="the images come before the groups",
        source=changed(COLUMNS, "split.transpose(1, 0, 3, 4, 2)", "split.transpose(0, 1, 3, 4, 2)"),
        loses={"columns-batches": 2, "gradients-details": 4},
    ),
    Mistake(
        exercise="convolution",
        name="reshapes the product as if channels came first",
        source=changed(
            CONVOLUTION,
            "    out = out.reshape(groups, n, oh, ow, o // groups).transpose(1, 0, 4, 2, 3)\n",
            "",
        ),
        loses={"convolution-values": 4, "convolution-groups": 2},
    ),
    Mistake(
        exercise="convolution",
        name="adds the bias along the last dimension",
        source=changed(CONVOLUTION, "out += b[:, None, None]", "out = out + b"),
        loses={"convolution-values": 4},
    ),
    Mistake(
        exercise="convolution",
        name="takes stride and padding of the height for both",
        source=changed(
            CONVOLUTION, "stride[i], padding[i], dilation[i]", "stride[0], padding[0], dilation[0]"
        ),
        loses={"convolution-groups": 2},
    ),
    Mistake(
        exercise="convolution-gradients",
        name="one group's product for all",
        source=changed(
            WEIGHT,
            "_columns(x, kernel_size, stride, padding, dilation, groups)",
            "_columns(x, kernel_size, stride, padding, dilation, 1)",
        )
        + INPUT,
        loses={"gradients-details": 4},
    ),
    Mistake(
        exercise="convolution-gradients",
        name="the last window wins where windows overlap",
        source=WEIGHT + changed(INPUT, "out[..., rows, cols] +=", "out[..., rows, cols] ="),
        loses={"gradients-input": 3, "gradients-details": 4},
    ),
    Mistake(
        exercise="convolution-gradients",
        name="leaves the padding on",
        source=WEIGHT
        + changed(
            INPUT,
            "_unpad(out.reshape(n, groups * cg, h, wd), padding)",
            "out.reshape(n, groups * cg, h, wd)",
        ),
        loses={"gradients-input": 3, "gradients-details": 4},
    ),
    Mistake(
        exercise="convolution-gradients",
        name="ignores the dilation",
        source=WEIGHT
        + changed(INPUT, "top, left = i * dilation[0], j * dilation[1]", "top, left = i, j"),
        loses={"gradients-details": 4},
    ),
    Mistake(
        exercise="registry",
        name="throws the instance away before it refuses",
        source="""
def register_backend(name, factory, *, replace=False):
    _instances.pop(name, None)
    if isinstance(factory, type):
        factory = adapted(factory)
    if name in _factories and not replace:
        raise BackendError(f"{name} is taken")
    _factories[name] = factory
""",
        loses={"registry-refused": 4},
    ),
    Mistake(
        exercise="registry",
        name="hides why a factory failed",
        source="""
def find_backend(backend):
    if isinstance(backend, ComputeBackend):
        return backend
    if backend not in _instances:
        if backend not in _factories:
            raise BackendError(f"there is no {backend!r}; there are {list_backends()}")
        try:
            made = _factories[backend]()
        except Exception as error:
            raise BackendError(f"{backend} cannot be made") from error
        if not isinstance(made, ComputeBackend):
            raise BackendError(f"{backend} made a {type(made).__name__}")
        _instances[backend] = made
    return _instances[backend]
""",
        loses={"registry-details": 3},
    ),
    Mistake(
        exercise="context",
        name="keeps what was in force in one list for all threads and tasks",
        source="""
_before = []


class StateContext(tinytorch.state.StateContext):
    def __enter__(self):
        _before.append(STATE.get())
        STATE.set(self.state)

    def __exit__(self, *error):
        STATE.set(_before.pop())
""",
        loses={"context-threads": 4},
    ),
    Mistake(
        exercise="finding",
        name="looks in the class itself, and not in those it derives from",
        source="""
class ComputeBackend(tinytorch.ComputeBackend):
    def find_kernel(self, op):
        methods = vars(type(self))
        if op.name in methods:
            return getattr(self, op.name)
        if op.kind in methods:
            return lambda *arrays, **params: getattr(self, op.kind)(op, *arrays, **params)
        kernel = reference.find_kernel(op)
        if kernel is None:
            raise NotImplementedError(f"{type(self).__name__}: write a kernel for {op.name}")
        return kernel
""",
        loses={"finding-order": 5},
    ),
    Mistake(
        exercise="promise",
        name="looks at the first call only",
        source="""
def _checking(kernel, plan, backend):
    seen = []

    def checked(*inputs, **params):
        array = np.asarray(kernel(*inputs, **params))
        wrong = array.shape != plan.meta.shape or array.dtype != plan.meta.dtype.dtype
        if wrong and not seen:
            raise BackendError(
                f"{type(backend).__name__}.{plan.op.name}: {array.dtype}{list(array.shape)}, "
                f"not {plan.meta}"
            )
        seen.append(True)
        return array

    return checked
""",
        loses={"promise-checked": 4},
    ),
    Mistake(
        exercise="promise",
        name="brings as many elements into the shape that was promised",
        source="""
def _checking(kernel, plan, backend):
    def checked(*inputs, **params):
        array = np.asarray(kernel(*inputs, **params))
        if array.size != plan.meta.size or array.dtype != plan.meta.dtype.dtype:
            raise BackendError(
                f"{type(backend).__name__}.{plan.op.name}: {array.dtype}{list(array.shape)}, "
                f"not {plan.meta}"
            )
        return array.reshape(plan.meta.shape)

    return checked
""",
        loses={"promise-checked": 4},
    ),
]

ALTERNATIVES = [
    Alternative(
        "registry",
        "asks for forgiveness, and ends early",
        """
def register_backend(name, factory, *, replace=False):
    taken = name in _factories
    made = adapted(factory) if isinstance(factory, type) else factory
    if taken and replace is False:
        raise BackendError("the name " + name + " belongs to another backend")
    _factories.update({name: made})
    if name in _instances:
        del _instances[name]


def find_backend(backend):
    if isinstance(backend, ComputeBackend):
        return backend
    try:
        return _instances[backend]
    except KeyError:
        pass
    factory = _factories.get(backend)
    if factory is None:
        raise BackendError("no backend " + str(backend) + ", only " + " ".join(_factories))
    found = factory()
    if isinstance(found, ComputeBackend):
        return _instances.setdefault(backend, found)
    raise BackendError(str(backend) + " makes a " + type(found).__name__)
""",
    ),
    Alternative(
        "context",
        "keeps the old state instead of the token",
        """
def on_backend(state, backend):
    return State(backend=backend, mode=state.mode, below=state.below, phase=state.phase,
                 grad=state.grad)


class StateContext(tinytorch.state.StateContext):
    def __enter__(self):
        self._token = STATE.get()
        STATE.set(self.state)

    def __exit__(self, kind, error, trace):
        STATE.set(self._token)


def current_backend():
    chosen = STATE.get().backend
    if chosen is None:
        return backends.get_backend()
    return chosen
""",
    ),
    Alternative(
        "finding",
        "a partial function, and the search in a loop",
        """
from functools import partial


class ComputeBackend(tinytorch.backends.ComputeBackend):
    def find_kernel(self, op):
        if hasattr(self, op.name):
            return getattr(self, op.name)
        if hasattr(self, op.kind):
            return partial(getattr(self, op.kind), op)
        found = reference.find_kernel(op)
        if found is not None:
            return found
        raise NotImplementedError("write " + op.name + " in " + type(self).__name__)
""",
    ),
    Alternative(
        "table",
        "elements one by one into an empty array",
        """
def _looped(scalar):
    def kernel(*operands):
        answer = scalar(*[1 for _ in operands])
        dtype = bool if type(answer) is bool else np.result_type(*operands)
        arrays = np.broadcast_arrays(*operands)
        out = np.empty(arrays[0].shape, dtype)
        for index in np.ndindex(out.shape):
            out[index] = scalar(*[a[index] for a in arrays])
        return out

    return kernel


def find_kernel(op):
    function = _FUNCTIONS.get(op.name)
    if function is None and op.kind == "elementwise":
        function = _looped(op.scalar)
    return function
""",
    ),
    Alternative(
        "promise",
        "says what is wrong in other words",
        """
def _checking(kernel, plan, backend):
    promised = (plan.meta.shape, plan.meta.dtype.dtype)

    def held(*inputs, **params):
        array = np.array(kernel(*inputs, **params), copy=None)
        found = (array.shape, array.dtype)
        if found == promised:
            return array
        raise BackendError(f"{plan.op.name} of {type(backend).__name__}: {found}, not {plan.meta}")

    return held


class ComputeBackend(tinytorch.backends.ComputeBackend):
    def add_kernel(self, plan):
        kernel = self.specialize(plan)
        is_trusted = "trusted" in type(self).__dict__ and plan.meta.shape != ()
        if len(self.kernels) == KERNELS:
            self.kernels.clear()
        self.kernels[plan] = kernel if is_trusted else _checking(kernel, plan, self)
        return self.kernels[plan]
""",
    ),
    Alternative(
        "columns",
        "a product of its own for each group, put together",
        """
def _columns(x, kernel, stride, padding, dilation, groups):
    windows = windows2d(pad2d(x, padding), kernel, stride, dilation)
    parts = np.split(windows, groups, axis=1)
    n, c, oh, ow, kh, kw = parts[0].shape
    return np.stack([
        np.moveaxis(part, 1, 3).reshape(n * oh * ow, c * kh * kw) for part in parts
    ])


def _positions(g, groups):
    parts = np.split(np.moveaxis(g, 1, 3), groups, axis=3)
    return np.stack([part.reshape(-1, part.shape[3]) for part in parts])
""",
    ),
    Alternative(
        "convolution",
        "an image and a group at a time",
        """
def conv2d(x, w, b=None, *, stride, padding, dilation, groups):
    extents = zip(x.shape[2:], w.shape[2:], stride, padding, dilation)
    size = [window_positions(*extent) for extent in extents]
    each = w.shape[0] // groups
    out = np.zeros((x.shape[0], w.shape[0], *size), np.result_type(x, w))
    for n in range(x.shape[0]):
        rows = _columns(x[n : n + 1], w.shape[2:], stride, padding, dilation, groups)
        for k in range(groups):
            filters = w[k * each : (k + 1) * each].reshape(each, -1)
            out[n, k * each : (k + 1) * each] = (filters @ rows[k].T).reshape(each, *size)
    return out if b is None else out + b.reshape(1, -1, 1, 1)
""",
    ),
    Alternative(
        "convolution-gradients",
        "einsum, and loops over positions",
        """
def conv2d_weight(x, g, *, kernel_size, stride, padding, dilation, groups):
    rows = _columns(pad2d(x, padding), kernel_size, stride, (0, 0), dilation, groups)
    out = np.einsum("gpo,gpc->goc", _positions(g, groups), rows)
    return out.reshape(g.shape[1], x.shape[1] // groups, *kernel_size)


def conv2d_input(g, w, *, input_size, stride, padding, dilation, groups):
    n, o, oh, ow = g.shape
    cg, kh, kw = w.shape[1:]
    height, width = input_size[0] + 2 * padding[0], input_size[1] + 2 * padding[1]
    out = np.zeros((n, groups, cg, height, width), g.dtype)
    filters = w.reshape(groups, o // groups, cg, kh, kw)
    split = g.reshape(n, groups, o // groups, oh, ow)
    for i in range(oh):
        for j in range(ow):
            window = np.einsum("ngo,gochw->ngchw", split[..., i, j], filters)
            top, left = i * stride[0], j * stride[1]
            down, right = top + dilation[0] * (kh - 1) + 1, left + dilation[1] * (kw - 1) + 1
            out[..., top : down : dilation[0], left : right : dilation[1]] += window
    return _unpad(out.reshape(n, groups * cg, height, width), padding)
""",
    ),
]

SAME_ORDER = "both dimensions are joined again, in the order in which they are stored"
FROM_THE_END = "of four dimensions, the one at i + 2 is the one at i - 2"

EQUIVALENT = [
    Equivalent(
        "columns",
        "_columns: windows.reshape(n, groups, c // groups, oh, ow, kh, kw) -> "
        "windows.reshape(n, groups, c // groups, ow, oh, kh, kw)",
        SAME_ORDER,
    ),
    Equivalent(
        "columns",
        "_columns: windows.reshape(n, groups, c // groups, oh, ow, kh, kw) -> "
        "windows.reshape(n, groups, c // groups, oh, ow, kw, kh)",
        SAME_ORDER,
    ),
    Equivalent(
        "columns",
        "_positions: g.reshape(n, groups, o // groups, oh, ow) -> "
        "g.reshape(n, groups, o // groups, ow, oh)",
        SAME_ORDER,
    ),
    Equivalent("convolution", "conv2d: i + 2 -> i - 2", FROM_THE_END),
    Equivalent("convolution", "conv2d: i + 2 -> i - 2 (2)", FROM_THE_END),
    Equivalent(
        "convolution",
        "conv2d: out.reshape(groups, n, oh, ow, o // groups) -> "
        "out.reshape(groups, n, ow, oh, o // groups)",
        SAME_ORDER,
    ),
]
