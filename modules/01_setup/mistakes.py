"""Wrong solutions that students write, with the points that they lose, and other right ones."""

from tito.lessons.mistake import Alternative, Equivalent, Mistake

MISTAKES = [
    Mistake(
        exercise="count-from-the-end",
        name="wraps what is out of range",
        source="""
def normalize_dim(dim, ndim, what="dim"):
    return operator.index(dim) % max(ndim, 1)
""",
        loses={"count-from-the-end-errors": 1, "count-from-the-end-edges": 1},
    ),
    Mistake(
        exercise="count-from-the-end",
        name="forgets 0-d tensors",
        source="""
def normalize_dim(dim, ndim, what="dim"):
    dim = operator.index(dim)
    if not -ndim <= dim < ndim:
        raise IndexError(f"{what} {dim} is out of range {-ndim} to {ndim - 1}")
    return dim % ndim
""",
        loses={"count-from-the-end-edges": 1},
    ),
    Mistake(
        exercise="count-from-the-end",
        name="takes any dimension of a 0-d tensor",
        source="""
def normalize_dim(dim, ndim, what="dim"):
    dim = operator.index(dim)
    if ndim == 0:
        return 0
    if not -ndim <= dim < ndim:
        raise IndexError(f"{what} {dim} is out of range {-ndim} to {ndim - 1}")
    return dim % ndim
""",
        loses={"count-from-the-end-edges": 1},
    ),
    Mistake(
        exercise="count-from-the-end",
        name="counts from 1",
        source="""
def normalize_dim(dim, ndim, what="dim"):
    dim = operator.index(dim)
    extent = max(ndim, 1)
    if not -extent < dim <= extent:
        raise IndexError(f"{what} {dim} is out of range {-extent} to {extent - 1}")
    return dim % extent
""",
        loses={
            "count-from-the-end-values": 2,
            "count-from-the-end-errors": 1,
            "count-from-the-end-edges": 1,
        },
    ),
    Mistake(
        exercise="size-of-minus-one",
        name="divides without looking at the remainder",
        source="""
def infer_size(shape, elements):
    if shape.count(-1) > 1:
        raise ShapeError(f"only one size may be -1: {shape}")
    rest = prod(s for s in shape if s != -1)
    return tuple(elements // rest if s == -1 else s for s in shape)
""",
        loses={"size-of-minus-one-errors": 2},
    ),
    Mistake(
        exercise="size-of-minus-one",
        name="multiplies the -1 in",
        source="""
def infer_size(shape, elements):
    if -1 not in shape:
        return shape
    if shape.count(-1) > 1:
        raise ShapeError(f"only one size may be -1: {shape}")
    rest = prod(shape)
    if rest == 0 or elements % rest:
        raise ShapeError(f"{elements} elements do not fit into {shape}")
    return tuple(elements // rest if s == -1 else s for s in shape)
""",
        loses={"size-of-minus-one-values": 2},
    ),
    Mistake(
        exercise="two-spellings",
        name="knows one spelling only",
        source="""
def shape_arguments(sizes):
    return tuple(operator.index(s) for s in sizes)
""",
        loses={"two-spellings-values": 2},
    ),
    Mistake(
        exercise="two-spellings",
        name="takes the sizes as they are",
        source="""
def shape_arguments(sizes):
    if len(sizes) == 1 and isinstance(sizes[0], Iterable):
        sizes = sizes[0]
    return tuple(sizes)
""",
        loses={"two-spellings-types": 2},
    ),
    Mistake(
        exercise="two-spellings",
        name="unpacks as long as there is something to unpack",
        source="""
def shape_arguments(sizes):
    while len(sizes) == 1 and isinstance(sizes[0], Iterable):
        sizes = sizes[0]
    return tuple(operator.index(s) for s in sizes)
""",
        loses={"two-spellings-types": 2},
    ),
    Mistake(
        exercise="two-spellings",
        name="knows two kinds of sequences only",
        source="""
def shape_arguments(sizes):
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = sizes[0]
    return tuple(operator.index(s) for s in sizes)
""",
        loses={"two-spellings-values": 2},
    ),
    Mistake(
        exercise="two-spellings",
        name="converts with int",
        source="""
def shape_arguments(sizes):
    if len(sizes) == 1 and isinstance(sizes[0], Iterable):
        sizes = sizes[0]
    return tuple(int(s) for s in sizes)
""",
        loses={"two-spellings-types": 2},
    ),
    Mistake(
        exercise="size-of-minus-one",
        name="asks for a size of 0 only where there are no elements",
        source="""
def infer_size(shape, elements):
    if -1 not in shape:
        return shape
    rest = prod(s for s in shape if s != -1)
    if shape.count(-1) > 1 or (rest == 0 and elements == 0) or elements % rest:
        raise ShapeError(f"{elements} elements do not fit into {shape}")
    return tuple(elements // rest if s == -1 else s for s in shape)
""",
        loses={"size-of-minus-one-errors": 2},
    ),
    Mistake(
        exercise="two-spellings",
        name="drops what comes after a sequence",
        source="""
def shape_arguments(sizes):
    if sizes and isinstance(sizes[0], Iterable):
        sizes = sizes[0]
    return tuple(operator.index(s) for s in sizes)
""",
        loses={"two-spellings-types": 2},
    ),
]

ALTERNATIVES = [
    Alternative(
        exercise="count-from-the-end",
        name="writes all dimensions down and looks there",
        source="""
def normalize_dim(dim, ndim, what="dim"):
    dim = operator.index(dim)
    front = list(range(max(1, ndim)))
    try:
        return front[dim]
    except IndexError:
        raise IndexError(f"no {what} {dim} in {[-len(front), *front[-1:]]}") from None
""",
    ),
    Alternative(
        exercise="count-from-the-end",
        name="adds where dim is negative",
        source="""
def normalize_dim(dim, ndim, what="dim"):
    n = ndim or 1
    asked = operator.index(dim)
    place = asked + n if asked < 0 else asked
    if place < 0 or place >= n:
        raise IndexError(f"{what}={asked}: from {-n} up to {n - 1}, please")
    return place
""",
    ),
    Alternative(
        exercise="size-of-minus-one",
        name="divides by one size after the other",
        source="""
def infer_size(shape, elements):
    missing = [i for i, size in enumerate(shape) if size == -1]
    if not missing:
        return shape
    if len(missing) > 1 or 0 in shape:
        raise ShapeError(f"{shape}: nobody knows which sizes you mean")
    left = elements
    for size in shape:
        if size != -1:
            left, rest = divmod(left, size)
            if rest:
                raise ShapeError(f"{shape} cannot hold them")
    place = missing[0]
    return (*shape[:place], left, *shape[place + 1 :])
""",
    ),
    Alternative(
        exercise="two-spellings",
        name="asks whether the one argument is a whole number",
        source="""
def shape_arguments(sizes):
    found = []
    if len(sizes) == 1 and hasattr(sizes[0], "__iter__"):
        sizes = list(sizes[0])
    for size in sizes:
        found.append(operator.index(size))
    return tuple(found)
""",
    ),
]

# Changes of the reference that are right too, and why.
FAST = "an int is no Iterable: the question only saves time"
ALONE = "there is exactly one, so the first is the last"
EQUIVALENT = [
    Equivalent(
        "two-spellings",
        "shape_arguments: len(sizes) == 1 and type(sizes[0]) is not int and isinstance(sizes[0], "
        "Iterable) -> len(sizes) == 1 and isinstance(sizes[0], Iterable)",
        FAST,
    ),
    Equivalent("two-spellings", "shape_arguments: type(sizes[0]) -> sizes[0]", FAST),
    Equivalent("two-spellings", "shape_arguments: sizes[0] -> sizes[-1]", ALONE),
    Equivalent("two-spellings", "shape_arguments: sizes[0] -> sizes[-1] (2)", ALONE),
    Equivalent("two-spellings", "shape_arguments: sizes[0] -> sizes[-1] (3)", ALONE),
]
