"""Values -> text. Pure; nothing here prints."""

from __future__ import annotations

import json
from collections.abc import Mapping

SCHEMA = 1


def as_json(value: Mapping[str, object]) -> str:
    """The text of `--json`: an object with "schema", keys as given."""
    return json.dumps({"schema": SCHEMA, **value}, indent=2, ensure_ascii=False)
