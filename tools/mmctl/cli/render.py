"""Values -> text. Pure; nothing here prints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

SCHEMA = 1


def as_json(value: Mapping[str, object]) -> str:
    """The text of `--json`: an object with "schema", keys as given."""
    return json.dumps({"schema": SCHEMA, **value}, indent=2, ensure_ascii=False)


def aligned(table: Sequence[Sequence[str]], *, numbers_right: bool = True) -> list[str]:
    """Lines of equal columns, two spaces apart; what looks like a number stands to the right,
    unless `numbers_right` is False.
    """
    columns = list(zip(*table, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [
        numbers_right and all(cell[:1].isdigit() or cell in ("", "-") for cell in column[1:])
        for column in columns
    ]
    return [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in table
    ]
