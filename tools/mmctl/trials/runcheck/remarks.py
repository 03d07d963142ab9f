"""What a run has shown of a model, before it has a place in a file. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mmctl.diagnostics import Severity

Place = tuple[str | int, ...]
"""Where in a config: as in `ConfigText.at`, but tensors by name; or a line and a column."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding of the model `model`; `at` is empty where no place in its config is to blame."""

    model: str
    code: str
    message: str
    hint: str | None = None
    severity: Severity = Severity.ERROR
    at: Place = ()
