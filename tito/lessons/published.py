"""The names of `tinytorch` that modules of its functions publish by defining them.

`tinytorch/functions/publish.py` says what `publish(globals(), ...)` at the end of a module means;
here the same is read with `ast`, without running it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

FUNCTIONS_TABLE = "FUNCTIONS"


def publisher_of(body: Iterable[ast.stmt]) -> str | None:
    """The module whose table of published functions a module takes its names from.

    >>> publisher_of(ast.parse("from a.functions.publish import FUNCTIONS as _F").body)
    'a.functions.publish'
    """
    for node in body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom) and FUNCTIONS_TABLE in names:
            return node.module
    return None


def published_by(body: Iterable[ast.stmt]) -> dict[str, str]:
    """The functions that a module publishes: names, and what each is called in the module.

    Empty if it does not publish.

    Raises:
        ValueError: the arguments of `publish` are not literal.

    >>> call = "publish(globals(), hidden='g', aliases={'h': 'f'})"
    >>> published_by(ast.parse(f"def f(x): ...\\ndef g(x): ...\\n{call}").body)
    {'f': 'f', 'h': 'f'}
    """
    body = list(body)
    for node in body:
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "publish":
            options = {word.arg or "": ast.literal_eval(word.value) for word in call.keywords}
            defined = [n.name for n in body if isinstance(n, ast.FunctionDef) and n.name[0] != "_"]
            hidden = options.get("hidden", "").split()
            places = {name: name for name in defined if name not in hidden}
            places |= options.get("aliases", {})
            methods = options.get("methods", "").split()
            return {n: o for n, o in places.items() if o not in methods and not o.endswith("_")}
    return {}
