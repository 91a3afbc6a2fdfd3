"""A group of commands: help in sections, and what was meant by an unknown command."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from typer.core import TyperGroup


class SuggestingGroup(TyperGroup):
    """A group that looks for an unknown command in the groups below it as well.

    Its plain help has the sections (`rich_help_panel`) that the coloured one has.
    """

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, dict[str, Any]] = {}
        for name, command in self.commands.items():
            if not command.hidden:
                panel = getattr(command, "rich_help_panel", None)
                sections.setdefault(panel or "Commands", {})[name] = command
        width = max((len(name) for section in sections.values() for name in section), default=0)
        for title, section in sections.items():
            short = formatter.width - 6 - width
            rows = [(f"{n:{width}}", c.get_short_help_str(short)) for n, c in section.items()]
            with formatter.section(title):
                formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            below = {
                f"{name} {leaf}": leaf
                for name, command in self.commands.items()
                for leaf in getattr(command, "commands", {})
            }
            meant = suggestions(args[0], list(self.commands), below)
            hint = f" Did you mean {' or '.join(map(repr, meant))}?" if meant else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


def suggestions(given: str, here: list[str], below: dict[str, str]) -> list[str]:
    """Commands that a word may stand for, best first.

    Args:
        below: the last word of each command of the groups, by the whole command.

    >>> suggestions("strat", ["status"], {"module start": "start"})
    ['module start', 'status']
    """
    exact = [whole for whole, leaf in below.items() if leaf == given]
    if exact:
        return exact
    names = {name: name for name in here} | below
    close = get_close_matches(given, set(names.values()), n=3, cutoff=0.7)
    return [whole for leaf in close for whole, last in names.items() if last == leaf]
