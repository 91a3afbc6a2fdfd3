"""Text of students as it is shown in a browser: nothing in it runs, and nothing calls home.

Markdown is rendered as nbconvert does it; if a link, a picture or an element of the HTML would do
more than show, the text is shown as it was written. Feedback pages are cleaned by nh3 (the Rust
library ammonia) as well.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

import nh3

MOST_PICTURE = 4_000_000  # characters of base64
PICTURES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
SCHEMES = {"http", "https", "mailto"}
TAGS = nh3.ALLOWED_TAGS | {"section", "input"}
ATTRIBUTES = {**nh3.ALLOWED_ATTRIBUTES, "*": {"id", "class", "align"}}
NAMES = {"href", "src", "alt", "title", "class", "id", "style", "align", "start", "type", "checked",
         "disabled", "name"}  # fmt: skip
CONTROL = re.compile(r"[\x00-\x1f]")  # browsers leave them out of addresses
INSIDE = re.compile(r"data:image/(png|jpeg);base64,[A-Za-z0-9+/=\s]*")
BESIDE = re.compile(r"(?:attachment:)?[\w][\w.% -]*(?:/[\w][\w.% -]*)*")  # a file, no host
ATTACHED = re.compile(r"attachment:([^\s)\"'>]+)")
REMOTE = re.compile(
    r"<script[^>]*\ssrc=[\"'](?:https?:)?//[^>]*>.*?</script>|"
    r"<link[^>]*\shref=[\"'](?:https?:)?//[^>]*>|"
    r"<script type=[\"']text/x-mathjax-config[\"']>.*?</script>",
    re.DOTALL | re.IGNORECASE,
)


def pictures(attachments: Any) -> dict[str, dict[str, str]]:
    """The PNG and JPEG pictures among the attachments of a cell, by name."""
    kept: dict[str, dict[str, str]] = {}
    for name, bundle in attachments.items() if isinstance(attachments, dict) else ():
        if isinstance(bundle, dict) and isinstance(name, str) and len(kept) < 20:
            good = {kind: data for kind, data in bundle.items() if is_picture(kind, data)}
            if good:
                kept[name] = good
    return kept


def is_picture(kind: str, data: Any) -> bool:
    """It goes into a page as it is, so it has to be base64 and nothing else."""
    if kind not in PICTURES or not isinstance(data, str) or len(data) > MOST_PICTURE:
        return False
    try:
        raw = base64.b64decode(data.replace("\n", ""), validate=True)
    except ValueError:
        return False
    return raw.startswith(PICTURES[kind])


def sanitize_markdown(text: str, attachments: Mapping[str, Any]) -> str:
    """Markdown of a student's: as it is, or as a block of text if it would do more than show.

    Args:
        attachments: the pictures that are kept; references to others are taken out.
    """

    def known(found: re.Match[str]) -> str:
        return found[0] if found[1] in attachments else "left-out"

    text = ATTACHED.sub(known, text)
    try:
        shows_only = _shows_only(render(text, attachments))
    except Exception:  # the renderer may stumble over anything
        shows_only = False
    if shows_only:
        return text
    fence = "`" * (3 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def render(text: str, attachments: Mapping[str, Any]) -> str:
    """The HTML that nbconvert, and so nbgrader, makes of Markdown."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    renderer = IPythonRenderer(escape=False, attachments=dict(attachments))
    return str(MarkdownWithMath(renderer=renderer).render(text))


def _shows_only(html: str) -> bool:
    from bs4 import BeautifulSoup

    for element in BeautifulSoup(html, "html.parser").find_all(True):
        for name, value in element.attrs.items():
            text = CONTROL.sub("", value if isinstance(value, str) else " ".join(value))
            if name not in NAMES or _only_ours(element.name, name, text) is None:
                return False
        if element.name not in TAGS:
            return False
    return True


def clean(html: str) -> str:
    """HTML without what runs, and without what another host would be asked for."""
    return nh3.clean(
        html,
        tags={*TAGS},
        attributes={tag: {*names} for tag, names in ATTRIBUTES.items()},
        url_schemes={*SCHEMES, "data"},
        attribute_filter=_only_ours,
    )


def _only_ours(element: str, name: str, value: str) -> str | None:
    """The value of an attribute; None if it leads to where it must not."""
    if name in ("src", "srcset", "data", "poster"):
        return value if INSIDE.fullmatch(value) or BESIDE.fullmatch(value) else None
    if name in ("href", "cite"):
        scheme = re.match(r"([^/?#]*?):", value.lower())
        return value if scheme is None or scheme[1] in SCHEMES else None
    return value


def without_remote(page: str) -> str:
    """A page of nbconvert's without the scripts and styles that it would fetch (MathJax is one)."""
    return REMOTE.sub("", page)
