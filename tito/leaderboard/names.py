"""Pseudonyms that look alike: two people may not have names that a reader takes for one.

After the skeletons of Unicode Technical Standard 39, in short: a name is of one script; two names
look alike if they are the same without case, spaces and punctuation, with each letter and digit
replaced by the Latin one that it looks like.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# ruff: noqa: RUF001, RUF002  letters that look alike are the subject

#: What Unicode recommends for identifiers (UAX 31, table 5), by the first word of a letter's name.
_EAST_ASIAN = "HANGUL CJK HIRAGANA KATAKANA KATAKANA-HIRAGANA BOPOMOFO"
_OTHERS = (
    "LATIN GREEK CYRILLIC ARMENIAN HEBREW ARABIC GEORGIAN ETHIOPIC DEVANAGARI BENGALI GURMUKHI "
    "GUJARATI ORIYA TAMIL TELUGU KANNADA MALAYALAM SINHALA THAI LAO TIBETAN MYANMAR KHMER"
)
_PHONETIC = re.compile("[\u01c0-\u01c3\u0250-\u02af\u1d00-\u1dbf\u2c60-\u2c7f\ua720-\ua7ff]")

#: What looks like a Latin letter. A capital of Greek does otherwise than its small form.
_CAPITALS = str.maketrans("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX")
_SMALL = str.maketrans(
    "01iıɩƅȷ" "авгеёзікмнорстухцчьѕјһԁԛԝҽӏ" "αβγεηικνορτυχω" "օսցհոզյք" "ロカニハエタトヘべぺ一",
    "ollllbj" "abreë3lkmhopctyxu4bsjhdqwel" "abyenlkvoptuxw" "ougnnqjp" "口力二八工夕卜へベペー",
)  # fmt: skip
#: Letters that nobody sees: two that fill the place of a missing part of Hangul, and a long stroke.
_UNSEEN = str.maketrans("", "", "\u115f\u1160\u0640")


def normalized(name: str) -> str:
    """A name as it is kept: compatible forms of letters (full-width ones) as the ordinary ones, and
    none that nobody sees."""
    return " ".join(unicodedata.normalize("NFKC", name).translate(_UNSEEN).split())


def mixes_scripts(name: str) -> bool:
    """Whether its letters are of several scripts, or not of those in everyday use.

    >>> mixes_scripts("Ada 1815"), mixes_scripts("Аda"), mixes_scripts("Ада")  # a Cyrillic А
    (False, True, False)
    """
    found = {unicodedata.name(c, "").partition(" ")[0] for c in name if c.isalpha()}
    is_east_asian = found <= set(_EAST_ASIAN.split())
    is_one = is_east_asian or (len(found) == 1 and found <= set(_OTHERS.split()))
    return not is_one or bool(_PHONETIC.search(name))


def look_alike(a: str, b: str) -> bool:
    """Whether one who reads quickly may take one name for the other.

    >>> look_alike("Al_ice 10", "a1icelo"), look_alike("team 1", "team 2")
    (True, False)
    """
    return not _skeletons(a).isdisjoint(_skeletons(b))


@lru_cache(maxsize=2**16)  # each new name is compared with all that are taken
def _skeletons(name: str) -> frozenset[str]:
    plain = "".join(str(unicodedata.digit(c, c)) for c in normalized(name) if c.isalnum())
    shapes = (plain.translate(_CAPITALS), plain)
    return frozenset(s.casefold().translate(_SMALL).replace("rn", "m") for s in shapes)
