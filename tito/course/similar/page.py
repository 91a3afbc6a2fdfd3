"""The pairs side by side, as one page of HTML that asks nobody for anything."""

from __future__ import annotations

from html import escape

from tito.course.similar.compare import Pair, Report, Shared

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .2rem 1rem .2rem 0; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
pre { font: 13px/1.4 ui-monospace, monospace; overflow-x: auto; margin: 0; padding: .5rem;
      border: 1px solid #8888; }
mark { display: block; background: #e8a20040; color: inherit; }
"""
NOTE = (
    "The numbers count what two solutions share after the reference, the text that everyone was "
    "given and what is usual in this class were taken off. They are for choosing what to read, and "
    "say nothing of how it came about."
)


def page(report: Report) -> str:
    """A page with a table of the pairs, and below it each pair's cells with what they share."""
    title = f"Similar solutions: {escape(report.assignment)}"
    rows = "".join(_row(number, pair) for number, pair in enumerate(report.pairs, 1))
    details = "".join(_detail(n, pair, report) for n, pair in enumerate(report.pairs, 1))
    left_out = "".join(
        f"<li>{escape(who)}: {escape(why)}</li>" for who, why in sorted(report.skipped.items())
    )
    skipped = f"<h2>Not compared</h2><ul>{left_out}</ul>" if left_out else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head><body><h1>{title}</h1><p>{NOTE}</p>"
        f"<p>{len(report.solutions)} submissions, {len(report.pairs)} pairs that share something."
        "</p><table><thead><tr><th>pair</th><th>shared</th><th>of the smaller one</th>"
        f"<th>in</th></tr></thead><tbody>{rows}</tbody></table>{details}{skipped}</body></html>\n"
    )


def _row(number: int, pair: Pair) -> str:
    names = f"{escape(pair.left)} and {escape(pair.right)}"
    exercises = ", ".join(escape(each.exercise) for each in pair.exercises)
    return (
        f'<tr><td><a href="#pair-{number}">{names}</a></td><td>{pair.shared}</td>'
        f"<td>{pair.part:.0%} of {pair.of}</td><td>{exercises}</td></tr>"
    )


def _detail(number: int, pair: Pair, report: Report) -> str:
    parts = [
        f'<h2 id="pair-{number}">{escape(pair.left)} and {escape(pair.right)}: '
        f"{pair.shared} shared</h2>"
    ]
    for each in pair.exercises:
        parts.append(f'<h3>{escape(each.exercise)}</h3><div class="pair">')
        parts += [_cell(who, lines, each, report) for who, lines in _sides(pair, each)]
        parts.append("</div>")
    return "".join(parts)


def _sides(pair: Pair, each: Shared) -> list[tuple[str, tuple[int, ...]]]:
    return [(pair.left, each.left), (pair.right, each.right)]


def _cell(who: str, marked: tuple[int, ...], each: Shared, report: Report) -> str:
    source = report.solutions[who][each.exercise].split("\n")
    lines = "".join(
        f"<mark>{escape(line) or ' '}</mark>" if number in marked else f"{escape(line)}\n"
        for number, line in enumerate(source, 1)
    )
    return f"<div><b>{escape(who)}</b><pre>{lines}</pre></div>"
