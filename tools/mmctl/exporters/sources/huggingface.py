"""Source `huggingface`: a checkpoint that transformers can load, with safetensors weights.

    source: {huggingface: "package:NAME/model", sha256: ..., task: sentence-embedding}
    source: {huggingface: org/name, revision: 40 hex digits, task: text-classification}

Without `revision` it is a folder, beside model.yaml or in a model package, and `sha256` is that of
its `model.safetensors`. With `revision` it is an id of the Hugging Face hub: the snapshot is
downloaded, and the same code goes on from there. Only the folder is covered by tests: the download
was never tried against the hub itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import model_validator

from mmctl.errors import InputError, WorldError
from mmctl.exporters.base import Commit, Exported, Place, Say, Sha256, Source, Task
from mmctl.exporters.heads import HEADS, HeadName, load_checkpoint
from mmctl.exporters.onnx_file import prove_and_save
from mmctl.exporters.packages import PREFIX, package_pin, pin_of
from mmctl.exporters.resources import locate, verify
from mmctl.exporters.tracing import trace
from mmctl.files import sha256_file

WEIGHTS = "model.safetensors"
SNAPSHOT_FILES = ["*.json", "*.safetensors", "*.txt"]


class HuggingfaceSource(Source):
    """`task` decides the head, the inputs and the output's name: see `HEADS`."""

    libraries = ("onnx", "onnxscript", "torch", "transformers")

    huggingface: str
    task: HeadName
    sha256: Sha256 | None = None
    revision: Commit | None = None

    @model_validator(mode="after")
    def _packages_are_declared(self) -> HuggingfaceSource:
        if self.huggingface.startswith(PREFIX) and self.sha256 is None:
            raise ValueError(f"`sha256` is missing: that of {WEIGHTS} in the package")
        return self

    @property
    def uses_packages(self) -> bool:
        return self.pip is not None or self.huggingface.startswith(PREFIX)

    def origin(self, place: Place) -> Mapping[str, object]:
        return {"task": self.task, **self._identity(place)}

    def _identity(self, place: Place) -> Mapping[str, object]:
        if self.revision:
            return {"hub": self.huggingface, "revision": self.revision}
        if self.huggingface.startswith(PREFIX):
            pinned = (
                pin_of(place.workspace, self.pip)
                if self.pip
                else package_pin(place.workspace, self.huggingface)
            )
            path = self.huggingface.removeprefix(PREFIX).partition("/")[2]
            return {"package": pinned, "path": path, "sha256": self.sha256}
        return {"files": _files_of(locate(place, self.huggingface), self.sha256)}

    def locate(self, place: Place, say: Say) -> Path:
        if self.revision:
            folder = _fetch_snapshot(place, self.huggingface, self.revision, say)
        else:
            folder = locate(place, self.huggingface)
        if not (folder / "config.json").is_file():
            raise InputError(
                f"{place.shown}: `{self.huggingface}` has no config.json",
                hint="name a folder that transformers can load, or give `revision` for a hub id",
            )
        if self.sha256 is not None:
            if not (folder / WEIGHTS).is_file():
                raise InputError(f"{place.shown}: `{self.huggingface}` has no {WEIGHTS}")
            verify(place, f"{self.huggingface}/{WEIGHTS}", folder / WEIGHTS, self.sha256)
        return folder

    def export(self, task: Task) -> Exported:
        head = HEADS[self.task]
        model = load_checkpoint(task.located, head.loader)
        module = head.module(model, task.located)
        example = head.example(model.config)
        return prove_and_save(trace(module, example, (head.output,), batched=task.batched), task)


def _files_of(folder: Path, weights_sha256: str | None) -> dict[str, str]:
    """SHA-256 by path of what a checkpoint is made of; declared weights are not read."""
    files = [*folder.rglob("*.json"), *folder.rglob("*.safetensors")]
    found = {file.relative_to(folder).as_posix(): file for file in files}
    declared = {WEIGHTS: weights_sha256} if weights_sha256 else {}
    return {
        **{path: sha256_file(file) for path, file in sorted(found.items()) if path not in declared},
        **declared,
    }


def _fetch_snapshot(place: Place, name: str, revision: str, say: Say) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    say(f"{place.name}: {name} from the Hugging Face hub")
    folder = place.workspace.state / "downloads" / revision
    try:
        return Path(
            snapshot_download(
                name, revision=revision, allow_patterns=SNAPSHOT_FILES, local_dir=folder
            )
        )
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise WorldError(
            f"{place.shown}: cannot get `{name}` at {revision[:7]} from the hub: "
            f"{str(error).strip().partition(chr(10))[0]}",
            hint="check the id, the revision and the network",
        ) from error
