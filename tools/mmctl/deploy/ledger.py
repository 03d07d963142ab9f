"""The ledger of a target: one line for every deployment, never changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from mmctl.deploy.steps import Move
from mmctl.errors import MmctlError
from mmctl.triton.repository import NEXT

SCHEMA = 1
What = Literal["deploy", "canary", "shadow", "promote", "undo", "rollback", "prune", "rebuild"]
Outcome = Literal["begun", "done", "refused", "failed", "interrupted"]


def entry(
    what: What,
    moves: Mapping[str, Move],
    outcome: Outcome,
    *,
    names: Sequence[str] = (),
    reason: str = "",
) -> dict[str, Any]:
    """A line of the ledger. `models` has the live versions before and after, `keys` the build keys
    of the versions after.
    """
    return {
        "schema": SCHEMA,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "what": what,
        "names": list(names),
        "models": {name: [list(m.before), list(m.after)] for name, m in moves.items()},
        "keys": {
            name: {str(version): key for version, key in m.keys.items()}
            for name, m in moves.items()
            if m.keys
        },
        "outcome": outcome,
        **({"reason": reason} if reason else {}),
    }


def keys_of(entries: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, str]]:
    """The build key that each number was used for, by model: the first one counts. A candidate's
    is that of its model.
    """
    found: dict[str, dict[int, str]] = {}
    for line in entries:
        for name, keys in line.get("keys", {}).items():
            for version, key in keys.items():
                found.setdefault(name.removesuffix(NEXT), {}).setdefault(int(version), key)
    return found


def outcome_of(error: BaseException) -> Outcome:
    if not isinstance(error, MmctlError):
        return "interrupted"
    return "refused" if error.exit_code == 1 else "failed"
