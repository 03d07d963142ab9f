"""The build key: what a version is made from. Equal keys are the same version everywhere."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence

from mmctl.errors import InputError, missing_extra
from mmctl.exporters.accuracy.origin import digest_of_samples
from mmctl.exporters.precision import STAGES
from mmctl.exporters.spec import Model, ModelFile
from mmctl.files import digest_of
from mmctl.triton.providers import check_runtimes, installed_runtimes
from mmctl.workspace import Workspace

SCHEMA = 1
"""Goes up when mmctl makes another file from the same source."""

LIBRARIES = {
    "nvidia-modelopt": "0.47.0",
    "onnx": "1.23.2",
    "onnxconverter-common": "1.16.0",
    "onnxruntime": "1.32.0",
    "onnxscript": "0.7.2",
    "torch": "2.13.0",
    "transformers": "5.24.0",
}
"""What the `export` extra pins: other releases may write another file."""


def build_key(workspace: Workspace, model: Model) -> str:
    """SHA-256 over the source and the options that end in the files of a version, or that their
    acceptance rests on.

    Reads model.yaml, packages.txt, calibration/ and small files of the model's folder; never
    weights that have a declared hash. Batching counts only as far as there is a batch axis or none.
    """
    file = model.file
    return digest_of(
        {
            "schema": SCHEMA,
            "source": type(file.source).__name__,
            "origin": dict(file.source.origin(model.place)),
            "libraries": {name: LIBRARIES[name] for name in libraries_of(file)},
            "rename": file.rename,
            "precision": file.precision,
            "batched": file.batched,
            "inputs": {name: str(kind) for name, kind in file.inputs.items()},
            "outputs": {name: str(kind) for name, kind in file.outputs.items()},
            **_proven_on(workspace, file),
        }
    )


def libraries_of(file: ModelFile) -> list[str]:
    """Rows of LIBRARIES that shape the file: the source's, and those of any stage that may run."""
    stages = [stage for name, stage in STAGES.items() if name.split("-")[0] == file.precision]
    return sorted({*file.source.libraries, *(name for s in stages for name in s.libraries)})


def _proven_on(workspace: Workspace, file: ModelFile) -> dict[str, object]:
    """What a conversion, or a score on labels, rests on; nothing for a plain FP32 model."""
    if file.precision == "fp32" and not file.verify.has_floor:
        return {}
    return {
        "quantize": file.quantize.model_dump(mode="json"),
        "samples": dict(_sample_digests(workspace, file)),
    }


def _sample_digests(workspace: Workspace, file: ModelFile) -> Iterator[tuple[str, object]]:
    for role in ("calibration", "data", "metric"):
        address = getattr(file.verify, role)
        if address is not None:
            own = role != "metric" or ":" in address
            yield role, [address, digest_of_samples(workspace.root, address) if own else None]


def check_libraries(file: ModelFile) -> None:
    """Raises InputError unless this environment has what the build key names."""
    if libraries := libraries_of(file):
        require_libraries(libraries)


def require_libraries(libraries: Sequence[str]) -> None:
    """As `check_libraries`; what proves the files is needed too."""
    check_runtimes(installed_runtimes())
    for name in (*libraries, "onnxruntime"):
        try:
            found = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            raise missing_extra("exporting models", "export") from None
        if found != LIBRARIES[name]:
            raise InputError(
                f"build keys name {name} {LIBRARIES[name]}, and {found} is installed",
                hint="run `pip install 'mmctl[export]'`",
            )
