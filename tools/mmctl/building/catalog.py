"""What can be called in a workspace, and with which tensors: read from locks and configs alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mmctl.compiler.merged import OnnxModel
from mmctl.errors import InputError, InvalidFiles
from mmctl.exporters.spec import Model, read_model
from mmctl.files import read_text
from mmctl.lint.repository import Target, read_config
from mmctl.tensors import Signature
from mmctl.triton.generate import ONNX
from mmctl.triton.pbtxt import called_models, config_of, signature_of
from mmctl.triton.repository import CONFIG, Lock, is_foreign, is_generated, read_lock
from mmctl.workspace import Workspace, check_name


@dataclass(frozen=True, slots=True)
class Catalog:
    """Models that people made. `locked` are those with model.yaml that have been exported.

    `foreign` are the user's own folders: mmctl knows their config and never writes them.
    """

    models: Mapping[str, Model]
    locks: Mapping[str, Lock]
    foreign: Mapping[str, Signature]

    @property
    def signatures(self) -> dict[str, Signature]:
        """Of everything that is not generated and can be called now."""
        exported = {
            name: model_signature(self.models[name], lock) for name, lock in self.locks.items()
        }
        return {**self.foreign, **exported}

    @property
    def onnx(self) -> dict[str, OnnxModel]:
        """Exported models that can be merged with others."""
        files = {name: self.models[name].file for name in self.locks}
        return {
            name: OnnxModel(file, file.verify.tolerance)
            for name, file in files.items()
            if file.source.backend is ONNX
        }

    @property
    def instances(self) -> dict[str, int]:
        """How many copies of each model run on CPUs; of foreign ones that is not known."""
        return {name: model.file.instances.cpu or 1 for name, model in self.models.items()}


def read_catalog(workspace: Workspace) -> Catalog:
    """Raises InputError for a broken lock and for a name that is no name, InvalidFiles for a
    config.pbtxt of the user's that cannot be read.
    """
    models: dict[str, Model] = {}
    locks: dict[str, Lock] = {}
    foreign: dict[str, Signature] = {}
    for name in workspace.model_names():
        folder = workspace.models / name
        if is_generated(folder):
            continue
        if is_foreign(folder):
            foreign[name] = _foreign_signature(workspace, name)
            continue
        if problem := check_name(name):
            raise InputError(f"{workspace.shown(folder)}: {problem}", hint="rename the folder")
        models[name] = read_model(workspace, name)
        if (lock := read_lock(folder)) is not None:
            locks[name] = lock
    _refuse_collisions(workspace, (*models, *foreign))
    return Catalog(models, locks, foreign)


def model_signature(model: Model, lock: Lock) -> Signature:
    """The lock knows the tensors; how large a batch may be is a setting of model.yaml.

    A model that answers in a stream has none for a pipeline, which calls it in vain.
    """
    if model.file.source.backend.image:
        return Signature((), ())
    batched = lock.signature.max_batch > 0
    return replace(lock.signature, max_batch=model.file.batching.max_batch if batched else 0)


def _foreign_signature(workspace: Workspace, name: str) -> Signature:
    """Raises InvalidFiles when the config.pbtxt of a folder of the user's cannot be read."""
    path = workspace.models / name / CONFIG
    config = read_config(path, workspace.shown(path), Target())
    if config.broken:
        raise InvalidFiles(config.findings)
    return signature_of(config_of(config.message))


def foreign_calls(workspace: Workspace, name: str) -> tuple[str, ...]:
    """Models that a foreign ensemble calls."""
    path = workspace.models / name / CONFIG
    return called_models(read_text(path), where=workspace.shown(path))


def _refuse_collisions(workspace: Workspace, names: Iterable[str]) -> None:
    """Models and pipelines share one name space: a pipeline becomes a model of its name."""
    both = sorted(set(names) & set(workspace.pipeline_names()))
    if both:
        raise InputError(
            f"`{both[0]}` is both a model and a pipeline",
            hint=f"rename model_repository/{both[0]} or ensembles/{both[0]}",
        )
