"""What each Triton release knows. One row a fact; a release is written as text, "24.10"."""

from __future__ import annotations

from dataclasses import dataclass

from mmctl.errors import InputError

OLDEST = "23.10"
EMBEDDED = "24.10"
"""The release of the embedded server: tritonserver 2.51."""


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A Triton container release. Ordered by date."""

    year: int
    month: int

    def __str__(self) -> str:
        return f"{self.year}.{self.month:02}"

    @property
    def decoupled_sender_in_default_mode(self) -> bool:
        """A Python model may answer later by its response sender (24.06)."""
        return self >= Release(24, 6)

    @property
    def named_configs(self) -> bool:
        """`--model-config-name` picks `configs/<name>.pbtxt` (24.06)."""
        return self >= Release(24, 6)

    @property
    def queue_limit_safe_in_ensembles(self) -> bool:
        """`max_queue_size` in a branching ensemble neither hangs nor crashes (26.02)."""
        return self >= Release(26, 2)

    @property
    def response_parameters(self) -> bool:
        """`InferenceResponse(parameters=...)` exists in Python models (25.02)."""
        return self >= Release(25, 2)


def parse_release(text: str) -> Release:
    """`24.10` -> Release. Raises InputError for what is not a release from 23.10 on."""
    year, _, month = text.partition(".")
    if not (year.isdigit() and month.isdigit() and len(month) == 2 and 1 <= int(month) <= 12):
        raise InputError(
            f"`{text}` is not a Triton release", hint='write year and month in quotes, "24.10"'
        )
    release = Release(int(year), int(month))
    if release < Release(23, 10):
        raise InputError(f"Triton {text} is older than {OLDEST}, the oldest that mmctl knows")
    return release
