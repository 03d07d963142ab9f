"""Lists of words as one regular expression, and texts in the form it expects."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

# What readers do not see: soft hyphen, zero-width characters, direction marks, variation
# selectors, fillers (Unicode's default ignorable code points)
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]"
)
_LATIN = "0-9a-z\u00df-\u024f"


def plain(text: str) -> str:
    """Lower case, without invisible characters, wide and decorated letters made ordinary."""
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).lower()


def expression(words: Iterable[str]) -> re.Pattern[str]:
    """Finds any of `words` in a `plain` text, the longest where several begin.

    Latin words are found between word boundaries only. Others are found anywhere, because
    Chinese is written without spaces.
    """
    distinct = {plain(word) for word in words} - {""}
    latin = {word for word in distinct if word.isascii()}
    return re.compile(f"(?<![{_LATIN}]){_any_of(latin)}(?![{_LATIN}])|{_any_of(distinct - latin)}")


def _any_of(words: Iterable[str]) -> str:
    """A tree of shared beginnings: a long list then costs little more than a short one."""
    tails: dict[str, set[str]] = {}
    for word in words:
        if word:
            tails.setdefault(word[0], set()).add(word[1:])
    branches = [re.escape(first) + _any_of(rest) for first, rest in sorted(tails.items())]
    if not branches:
        return "" if "" in words else "(?!)"
    return f"(?:{'|'.join(branches)}){'?' if '' in words else ''}"
