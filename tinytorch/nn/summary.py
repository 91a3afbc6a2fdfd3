"""How a module prints: a tree, with the number of parameters in each part."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinytorch.nn.module import Module


def format_module(module: Module) -> str:
    """One line a module, indented by its depth, with what it holds behind a `#`:

        Sequential(  # 101,770 parameters
          (0): Linear(in_features=784, out_features=128, bias=True)  # 100,480 parameters
          (1): ReLU()
          (2): Linear(in_features=128, out_features=10, bias=True)  # 1,290 parameters
        )

    A shared parameter is counted once.
    """
    return "\n".join(_lines(module))


def _lines(module: Module) -> list[str]:
    name, extra, count = type(module).__name__, module.extra_repr(), _count(module)
    below: list[str] = []
    for label, child in module.own_modules():
        first, *rest = _lines(child)
        below += [f"  ({label}): {first}", *(f"  {line}" for line in rest)]
    if not below:
        return [f"{name}({extra}){count}"]
    return [f"{name}({extra}{count}", *below, ")"]


def _count(module: Module) -> str:
    """`  # 1,290 parameters, 640 frozen`, each shared one counted once."""
    parameters = list(module.parameters())
    total = sum(p.numel() for p in parameters)
    frozen = sum(p.numel() for p in parameters if not p.requires_grad)
    if not total:
        return ""
    return f"  # {total:,} parameters" + (f", {frozen:,} frozen" if frozen else "")
