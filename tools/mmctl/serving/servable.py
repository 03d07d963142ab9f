"""Which models a server can have: some need a container image of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mmctl.errors import InputError
from mmctl.exporters import exportable_names
from mmctl.exporters.spec import read_model
from mmctl.workspace import Workspace

Say = Callable[[str], None]


def without_images(
    workspace: Workspace, models: Sequence[str], asked: Iterable[str], say: Say
) -> tuple[str, ...]:
    """The models that need no image of their own; of the others it is told where to serve them.

    Raises InputError when one of them is in `asked`.
    """
    images = _images(workspace, models)
    for name, image in images.items():
        where = f"a container whose image ends in `{image}`"
        if name in asked:
            raise InputError(
                f"`{name}` is a language model: the embedded Triton has no engine for it",
                hint=f"serve it in {where}: `mmctl serve {name} --docker IMAGE`",
            )
        say(f"`{name}` is not served here, only in {where}")
    return tuple(name for name in models if name not in images)


def _images(workspace: Workspace, models: Iterable[str]) -> dict[str, str]:
    """Ends of image names by model, for those that need one."""
    known = set(exportable_names(workspace))
    found = {
        name: read_model(workspace, name).file.source.backend.image
        for name in models
        if name in known
    }
    return {name: image for name, image in found.items() if image}
