"""The text of loops around a scalar definition, by the kinds of its operands.

A kind is a letter: an array walked along ("v", a vector of the register's width at a time), a
number that stays the same throughout ("s", a Python scalar), and, where operands broadcast, a row
that is walked along again in each row ("b", a bias) and an array of which one element serves a
whole row ("r").
"""

from __future__ import annotations

BLOCK = 256  # elements whose arguments are looked at together


def each(
    indent: int, count: str, targets: list[str], operands: list[str], is_limited: bool
) -> list[str]:
    """The innermost loop, over vectors (names that end in `[]`) and numbers.

    Where the definition is limited, `fits` is asked about each block first, and a block in which it
    says no is left to `anywhere`, the definition by the C library.
    """

    def call(function: str, suffix: str = "") -> str:
        return f"{function}({', '.join(o.replace('[]', f'{suffix}[k]') for o in operands)})"

    if not is_limited:
        found = ", ".join(f"{target}[k]" for target in targets)
        lines = [f"for k in range({count}):", f"    {found} = {call('scalar')}"]
    else:
        found = ", ".join(f"{target}_part[k]" for target in targets)
        vectors = dict.fromkeys([*targets, *(o[:-2] for o in operands if o.endswith("[]"))])
        lines = [f"for begin in range(0, {count}, {BLOCK}):"]
        lines += [f"    {name}_part = {name}[begin : begin + {BLOCK}]" for name in vectors]
        each = f"for k in range({targets[0]}_part.size):"
        lines += ["    fit = True", f"    {each}", f"        fit &= {call('fits', '_part')}"]
        for test, function in (("if fit:", "scalar"), ("else:", "anywhere")):
            lines += [f"    {test}", f"        {each}"]
            lines += [f"            {found} = {call(function, '_part')}"]
    return [" " * indent + line for line in lines]


def small_source(kinds: str, is_limited: bool) -> str:
    """A loop over all elements of flat arrays."""
    lines = [f"def small({names(kinds)}, out):"]
    lines += [f"    v{i} = real(x{i})" for i, kind in enumerate(kinds) if kind == "s"]
    operands = [f"x{i}[]" if kind == "v" else f"v{i}" for i, kind in enumerate(kinds)]
    return "\n".join([*lines, *each(4, "out.size", ["out"], operands, is_limited), ""])


def flat_source(kinds: str, is_limited: bool) -> str:
    """A loop over all elements; arrays of any number of dimensions."""
    names = [f"x{i}" for i in range(len(kinds))]
    arrays = [n for n, kind in zip(names, kinds, strict=True) if kind == "v"]
    lines = [f"def flat({', '.join(names)}, out):"]
    lines += [f"    {n}_ = {n}.ravel()" for n in (*arrays, "out")]
    lines += [f"    {n}_ = real({n})" for n in names if n not in arrays]
    operands = [f"{n}_[]" if n in arrays else f"{n}_" for n in names]
    lines += each(4, "out_.size", ["out_"], operands, is_limited)
    return "\n".join(lines) + "\n"


def matrix_source(kinds: str, is_limited: bool) -> str:
    """Two loops over a matrix; an operand is a matrix, a row that all rows use, or a number."""
    lines = [f"def matrix({names(kinds)}, out):"]
    lines += [f"    v{i} = real(x{i})" for i, kind in enumerate(kinds) if kind == "s"]
    lines += [f"    v{i} = x{i}" for i, kind in enumerate(kinds) if kind == "b"]
    lines += ["    for i in range(out.shape[0]):", "        row = out[i]"]
    lines += [f"        v{i} = x{i}[i]" for i, kind in enumerate(kinds) if kind == "v"]
    operands = [f"v{i}" if kind == "s" else f"v{i}[]" for i, kind in enumerate(kinds)]
    lines += each(8, "row.size", ["row"], operands, is_limited)
    return "\n".join(lines) + "\n"


def nested_source(kinds: str, is_limited: bool, results: int = 1) -> str:
    """Three nested loops, the outermost over `first:last`; flat arrays.

    `geometry` holds the lengths of the two inner loops, then for each operand where it begins and
    its steps in the two outer ones (unused for a number): one array costs less to pass than many
    integers.
    """
    which = [""] if results == 1 else [*map(str, range(results))]
    outs = ", ".join(f"out{i}" for i in which)
    lines = [
        f"def nested(first, last, geometry, {names(kinds)}, {outs}):",
        "    rows, columns = geometry[0], geometry[1]",
    ]
    for i, kind in enumerate(kinds):
        begin, outer, inner = (f"geometry[{2 + 3 * i + j}]" for j in range(3))
        lines.append(
            f"    v{i} = real(x{i})"
            if kind == "s"
            else f"    begin{i}, outer{i}, inner{i} = {begin}, {outer}, {inner}"
        )
    lines += ["    for a in range(first, last):", "        for b in range(rows):"]
    operands = []
    for i, kind in enumerate(kinds):
        operands.append(f"v{i}[]" if kind == "v" else f"v{i}")
        if kind != "s":
            lines.append(f"            p{i} = begin{i} + a * outer{i} + b * inner{i}")
        if kind == "v":
            lines.append(f"            v{i} = x{i}[p{i} : p{i} + columns]")
        elif kind == "r":
            lines.append(f"            v{i} = x{i}[p{i}]")
    lines += [
        "            p = (a * rows + b) * columns",
        *(f"            row{i} = out{i}[p : p + columns]" for i in which),
        *each(12, "columns", [f"row{i}" for i in which], operands, is_limited),
    ]
    return "\n".join(lines) + "\n"


def nested_parallel_source(kinds: str, is_limited: bool) -> str:
    return (
        f"def nested_parallel(threads, first, last, geometry, {names(kinds)}, out):\n"
        "    for t in prange(threads):\n"
        "        a, b = last * t // threads, last * (t + 1) // threads\n"
        f"        nested(a, b, geometry, {names(kinds)}, out)\n"
    )


def names(kinds: str) -> str:
    return ", ".join(f"x{i}" for i in range(len(kinds)))
