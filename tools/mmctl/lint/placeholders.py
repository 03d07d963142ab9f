"""Places of a template that are to be filled: `${x}`, `{{ x }}`, `{% x %}`, and DALI's `TYPE_#x`.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_PLACEHOLDERS = re.compile(
    r"""\$\{\s{0,9}(?P<shell>[A-Za-z_]\w{0,99})\b[^}\n]{0,300}+\}
      |\{\{(?P<jinja>[^}\n]{0,300}+)\}\}
      |(?P<block>\{%[^\n]{0,300}?%\})
      |(?<=TYPE_)\#(?P<dali>[A-Za-z_]\w*)
      |(?P<remark>\#[^\n]*)
    """,
    re.VERBOSE,
)
"""Bounded, so that a long line of opening marks takes no longer than any other."""


class Placeholder(NamedTuple):
    """`name` is what fills it, the whole text where that is a statement."""

    name: str
    offset: int


def find_placeholders(content: str) -> Iterator[Placeholder]:
    """Those that nobody filled; the ones in remarks are left out."""
    for match in _PLACEHOLDERS.finditer(content):
        if match.lastgroup != "remark":
            yield Placeholder(_name(match), match.start())


def fill_placeholders(content: str, values: Mapping[str, str]) -> str:
    """With `values` at the places of their names; the others stay."""

    def filled(match: re.Match[str]) -> str:
        if match.lastgroup == "remark":
            return match.group()
        return values.get(_name(match), match.group())

    return _PLACEHOLDERS.sub(filled, content) if values else content


def _name(match: re.Match[str]) -> str:
    return match[match.lastgroup or 0].strip()
