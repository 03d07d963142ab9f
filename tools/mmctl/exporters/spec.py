"""model.yaml: where a model comes from and how it is served."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    InstanceOf,
    Tag,
    model_validator,
)

from mmctl.diagnostics import Finding, nearest
from mmctl.documents import load_entry, read_document
from mmctl.errors import InputError, InvalidFiles
from mmctl.exporters.accuracy.options import Precision, Verify, check_precision
from mmctl.exporters.base import Place, TensorName
from mmctl.exporters.precision.base import Quantize
from mmctl.exporters.sources import SOURCES
from mmctl.exporters.sources.huggingface import HuggingfaceSource
from mmctl.exporters.sources.onnx import OnnxSource
from mmctl.exporters.sources.python import PythonSource
from mmctl.exporters.sources.tensorrt import TensorrtSource
from mmctl.exporters.sources.torch import TorchSource
from mmctl.exporters.sources.trtllm import TrtllmSource
from mmctl.exporters.sources.vllm import VllmSource
from mmctl.exporters.tensorrt.entry import EngineEntry
from mmctl.tensors import Signature, TensorSpec, TensorType, parse_type
from mmctl.triton.generate import ONNX
from mmctl.triton.options import ServingOptions
from mmctl.workspace import Workspace, check_name

FILE = "model.yaml"


def _type_of(value: object) -> object:
    """A tensor type out of its text; list tensors belong to pipelines."""
    if not isinstance(value, str):
        raise ValueError('write a type, "fp32[384]" for example')
    found = parse_type(value)
    if found.items:
        raise ValueError(f"`{value}`: a model's tensor has no `*` axis")
    return found


DeclaredType = Annotated[InstanceOf[TensorType], BeforeValidator(_type_of)]


def _kind_of(value: Any) -> str | None:
    """Tag of the one key that names the kind of source; None when it is not one."""
    kinds = [kind for kind in SOURCES if isinstance(value, Mapping) and kind in value]
    return f"{kinds[0]} source" if len(kinds) == 1 else None


AnySource = Annotated[
    Annotated[OnnxSource, Tag("onnx source")]
    | Annotated[TorchSource, Tag("torch source")]
    | Annotated[HuggingfaceSource, Tag("huggingface source")]
    | Annotated[PythonSource, Tag("python source")]
    | Annotated[TensorrtSource, Tag("tensorrt source")]
    | Annotated[VllmSource, Tag("vllm source")]
    | Annotated[TrtllmSource, Tag("trtllm source")],
    Discriminator(
        _kind_of,
        custom_error_type="kind_of_source",
        custom_error_message=f"Write exactly one of {', '.join(SOURCES)}",
    ),
]


class ModelFile(ServingOptions):
    """The shape of model.yaml. `inputs` and `outputs` are for `python` and `tensorrt` sources."""

    source: AnySource
    rename: Annotated[dict[str, TensorName], Field(default_factory=dict)]
    precision: Precision = "fp32"
    quantize: Quantize = Quantize()
    engine: EngineEntry | None = None
    inputs: Annotated[dict[TensorName, DeclaredType], Field(default_factory=dict)]
    outputs: Annotated[dict[TensorName, DeclaredType], Field(default_factory=dict)]
    verify: Verify = Verify()

    @model_validator(mode="after")
    def _declares_what_cannot_be_read(self) -> ModelFile:
        if isinstance(self.source, PythonSource | TensorrtSource):
            if not (self.inputs and self.outputs):
                kind = "python" if isinstance(self.source, PythonSource) else "tensorrt"
                raise ValueError(f"a {kind} source needs `inputs` and `outputs`: {{name: type}}")
        elif self.inputs or self.outputs:
            raise ValueError(
                "`inputs` and `outputs` are for python and tensorrt sources; others are asked "
                "themselves"
            )
        return self

    @model_validator(mode="after")
    def _precision_can_be_proven(self) -> ModelFile:
        if self.source.backend != ONNX:
            given = {"rename": self.rename, "engine": self.engine}
            changed = {**given, "precision": self.precision != "fp32"}
            if wrong := [name for name, value in changed.items() if value]:
                raise ValueError(f"`{wrong[0]}` is for sources that are exported to ONNX")
        check_precision(self.precision, self.quantize, self.verify)
        return self

    @model_validator(mode="after")
    def _fits_its_engine(self) -> ModelFile:
        if isinstance(self.source, TensorrtSource):
            self.source.refuse_batches_beyond(self.batching)
        return self

    @model_validator(mode="after")
    def _leaves_to_the_engine(self) -> ModelFile:
        if self.source.backend.image:
            given = sorted(self.model_fields_set - {"source", "parameters"})
            if given:
                raise ValueError(f"`{given[0]}` is not for language models: the engine decides")
        return self

    @property
    def batched(self) -> bool:
        return self.batching.max_batch > 0 and not self.source.backend.image

    @property
    def declared(self) -> Signature:
        return Signature(
            inputs=tuple(TensorSpec(name, kind) for name, kind in self.inputs.items()),
            outputs=tuple(TensorSpec(name, kind) for name, kind in self.outputs.items()),
            max_batch=int(self.batched),
        )


@dataclass(frozen=True, slots=True)
class Model:
    """A model.yaml that was read, and the folder that it is in."""

    place: Place
    file: ModelFile

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def uses_packages(self) -> bool:
        return self.file.source.uses_packages


def read_model(workspace: Workspace, name: str) -> Model:
    """Raises InvalidFiles with every mistake of the file at its line and column."""
    if problem := check_name(name):
        raise InputError(problem)
    place = Place(workspace, name)
    path = place.folder / FILE
    if not path.is_file():
        raise InputError(
            f"there is no model `{name}`: {workspace.shown(path)} does not exist",
            hint=nearest(name, exportable_names(workspace)),
        )
    document = read_document(path, shown=workspace.shown(path))
    return Model(place, load_entry(ModelFile, document))


def read_models(workspace: Workspace, names: Iterable[str]) -> list[Model]:
    """Several models; the mistakes of all their files come in one InvalidFiles."""
    models: list[Model] = []
    findings: list[Finding] = []
    for name in names:
        try:
            models.append(read_model(workspace, name))
        except InvalidFiles as error:
            findings += error.findings
    if findings:
        raise InvalidFiles(findings)
    return models


def exportable_names(workspace: Workspace) -> list[str]:
    """Models that have a model.yaml."""
    return [name for name in workspace.model_names() if (workspace.models / name / FILE).is_file()]
