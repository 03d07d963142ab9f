"""The build key: what a version is made from. Equal keys are the same version everywhere."""

from __future__ import annotations

import importlib.metadata

from mmctl.errors import InputError, missing_extra
from mmctl.exporters.base import Source
from mmctl.exporters.spec import Model
from mmctl.files import digest_of
from mmctl.workspace import Workspace

SCHEMA = 1
"""Goes up when mmctl makes another file from the same source."""

LIBRARIES = {
    "onnx": "1.23.2",
    "onnxruntime": "1.32.0",
    "onnxscript": "0.7.2",
    "torch": "2.13.0",
    "transformers": "5.24.0",
}
"""What the `export` extra pins: other releases may write another file."""


def build_key(_workspace: Workspace, model: Model) -> str:
    """SHA-256 over the source and the options that end in the files of a version.

    Reads model.yaml, packages.txt and small files of the model's folder; never weights that have a
    declared hash. Batching counts only as far as there is a batch axis or none.
    """
    file = model.file
    return digest_of(
        {
            "schema": SCHEMA,
            "source": type(file.source).__name__,
            "origin": dict(file.source.origin(model.place)),
            "libraries": {name: LIBRARIES[name] for name in file.source.libraries},
            "rename": file.rename,
            "precision": file.precision,
            "batched": file.batched,
            "inputs": {name: str(kind) for name, kind in file.inputs.items()},
            "outputs": {name: str(kind) for name, kind in file.outputs.items()},
        }
    )


def check_libraries(source: Source) -> None:
    """Raises InputError unless this environment has what the source's build key names."""
    if not source.libraries:
        return
    for name in (*source.libraries, "onnxruntime"):
        try:
            found = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            raise missing_extra("exporting models", "export") from None
        if found != LIBRARIES[name]:
            raise InputError(
                f"build keys name {name} {LIBRARIES[name]}, and {found} is installed",
                hint="run `pip install 'mmctl[export]'`",
            )
