"""Text of students in a browser: it shows, and does nothing else."""

from __future__ import annotations

import base64

import pytest

from tito.course.sanitize import clean, pictures, render, sanitize_markdown, without_remote

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff" + bytes(20)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "# Title\n\n*so* it **is**: `x: y`, and\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |",
        "see [the paper](https://arxiv.org/abs/1) or write to <me@example.org>",
        "math: $a < b$ and $$\\frac{x: 1}{y}$$",
        "```python\njavascript = 'javascript:alert(1)'\n```",
        "note: javascript: is a language",
        "![mine](attachment:a.png) ![file](plots/loss.png)",
        "",
    ],
)
def test_what_only_shows_stays_as_it_is(text: str) -> None:
    assert sanitize_markdown(text, {"a.png": {"image/png": PNG}}) == text


@pytest.mark.parametrize(
    "text",
    [
        "[click](javascript:alert(1))",
        "[click](JaVaScRiPt:alert(1))",
        "[click](&#106;avascript:alert(1))",
        "[click](vbscript:x)",
        "[click](data:text/html;base64,PHNjcmlwdD4=)",
        "[click](file:///etc/passwd)",
        "[click][x]\n\n[x]: javascript:alert(1)",
        "![see](https://tracker.example/x.png)",
        "![see](//tracker.example/x.png)",
        "![see](data:image/svg+xml;base64,PHN2Zz4=)",
        "![see][x]\n\n[x]: http://tracker.example/x.png",
        "[click](<java\tscript:alert(1)>)",
        "[click](java&Tab;script:alert(1))",
        "<img src=x onerror=alert(1)>",
        "<svg><a href=x>y</a></svg>",
        "````\n```\n````\n[click](javascript:1)",
    ],
)
def test_what_would_run_or_call_home_is_shown_as_text(text: str) -> None:
    made = sanitize_markdown(text, {})
    assert made != text
    html = render(made, {})
    assert "<a " not in html.lower()
    assert "<img" not in html


def test_only_checked_pictures_are_kept() -> None:
    attachments = {
        "good.png": {"image/png": PNG},
        "photo.jpg": {"image/jpeg": JPEG, "text/html": "<script>"},
        "wrong.png": {"image/png": JPEG},
        "page.html": {"text/html": "<script>"},
        "drawing.svg": {"image/svg+xml": "<svg/>"},
        "broken.png": {"image/png": PNG + "\"'>"},
        "odd": 3,
    }
    kept = pictures(attachments)
    assert kept == {"good.png": {"image/png": PNG}, "photo.jpg": {"image/jpeg": JPEG}}
    assert pictures(None) == pictures([1]) == {}
    text = "![a](attachment:good.png) ![b](attachment:wrong.png)"
    assert sanitize_markdown(text, kept) == "![a](attachment:good.png) ![b](left-out)"


def test_pages_are_cleaned_once_more() -> None:
    picture = f'<img src="data:image/png;base64,{PNG}" alt="x">'
    assert clean(picture) == picture
    assert clean('<a href="javascript:x">t</a><script>1</script>').count("javascript") == 0
    page = (
        '<script src="https://cdn.example/MathJax.js"> </script><p>a</p>\n'
        '<script type="text/x-mathjax-config">\ninit()\n</script><script>ours()</script>'
    )
    assert without_remote(page) == "<p>a</p>\n<script>ours()</script>"
