"""The model.py of a Python model, as bytes: it is read and never imported."""

from __future__ import annotations

from dataclasses import dataclass

from mmctl.files import is_inside
from mmctl.lint.remembered import remembered
from mmctl.lint.repository import Model, join, read_bytes

PYTHON = "python"
MAX_CODE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Code:
    """`shown` is the path as findings name it; `content` is None where it cannot be read, and
    `unreadable` says why.
    """

    shown: str
    content: bytes | None
    unreadable: str = ""

    @property
    def completes_config(self) -> bool:
        """Whether the model may add to its config while it loads."""
        return self.content is not None and b"auto_complete_config" in self.content


@remembered
def code_of(model: Model) -> Code | None:
    """The code of the highest version that Triton serves; None where there is none."""
    if model.backend != PYTHON or not model.served_versions:
        return None
    version = max(model.served_versions)
    name = model.model_filename
    if name.split("/")[0] not in model.versions[version] or not is_inside(name):
        return None
    if not (model.path / str(version)).is_dir():
        return None  # `mmctl build` makes it
    shown = join(model.shown, f"{version}/{name}")
    try:
        return Code(shown, read_bytes(model.version_file(version), MAX_CODE))
    except (OSError, ValueError) as error:
        return Code(shown, None, getattr(error, "strerror", None) or str(error))
