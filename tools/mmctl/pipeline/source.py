"""What a person wrote about one pipeline, read from disk: nothing is imported or run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import RootModel, field_validator, model_validator

from mmctl.diagnostics import nearest
from mmctl.documents import Data, Document, Entry, load_entry, read_document
from mmctl.errors import InputError
from mmctl.files import is_inside, read_text
from mmctl.workspace import Workspace

COMMON = "common"
PACKAGE = "package:"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that steps may open: `content`, or a file of a model package (`package:NAME/path`).

    `sha256` is what the user says a package's file has; "" when they do not say.
    """

    name: str
    content: bytes = b""
    package: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class SourceText:
    """A Python file; `path` as findings name it."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class PipelineSource:
    """The files of one folder of ensembles/, and the modules that all pipelines share.

    `modules` are the *.py beside pipeline.yaml by module name, `steps` among them if it exists.
    """

    name: str
    document: Document
    modules: Mapping[str, SourceText] = field(default_factory=dict)
    common: Mapping[str, SourceText] = field(default_factory=dict)
    assets: Mapping[str, Asset] = field(default_factory=dict)
    requirements: str = ""

    def called_names(self) -> set[str]:
        """Models and pipelines that nodes call; also when the file has mistakes."""
        return set(self.calls())

    def calls(self) -> dict[str, str]:
        """Called name -> the first node that calls it."""
        found: dict[str, str] = {}
        data = self.document.data
        nodes = data.get("nodes") if isinstance(data, dict) else None
        for name, node in nodes.items() if isinstance(nodes, dict) else ():
            model = node.get("model") if isinstance(node, dict) else None
            if isinstance(model, str):
                found.setdefault(model, name)
        return found

    @property
    def uses_packages(self) -> bool:
        """Whether a step opens a file of a model package."""
        named = (text.startswith(PACKAGE) for text in _texts(self.document.data))
        return any(named) or any(asset.package for asset in self.assets.values())


def read_pipeline(workspace: Workspace, name: str) -> PipelineSource:
    """Raises InputError when the pipeline or a file of it cannot be read, InvalidFiles when
    pipeline.yaml or assets.yaml is not YAML.
    """
    folder = workspace.pipelines / name
    path = folder / "pipeline.yaml"
    if not path.is_file():
        raise InputError(
            f"`{name}` is not a pipeline of this workspace",
            hint=nearest(name, workspace.pipeline_names()),
        )
    requirements = folder / "requirements.txt"
    return PipelineSource(
        name=name,
        document=read_document(path, shown=workspace.shown(path)),
        modules=_read_modules(workspace, folder),
        common=_read_modules(workspace, workspace.pipelines / COMMON),
        assets=_read_assets(workspace, folder),
        requirements=read_text(requirements) if requirements.is_file() else "",
    )


def _read_modules(workspace: Workspace, folder: Path) -> dict[str, SourceText]:
    return {
        path.stem: SourceText(workspace.shown(path), read_text(path))
        for path in sorted(folder.glob("*.py"))
    }


class AssetEntry(Entry):
    """`"package:NAME/path"`, or `{file: "package:NAME/path", sha256: ...}`."""

    file: str
    sha256: str = ""

    @model_validator(mode="before")
    @classmethod
    def _expand_text(cls, value: object) -> object:
        return {"file": value} if isinstance(value, str) else value

    @field_validator("file")
    @classmethod
    def _is_of_a_package(cls, value: str) -> str:
        if not value.startswith(PACKAGE):
            raise ValueError(f"write a file of a package, {PACKAGE}NAME/path")
        return value


class AssetsFile(RootModel[dict[str, AssetEntry]]):
    """The shape of assets.yaml: what steps open as `assets/NAME` -> where it comes from."""

    @field_validator("root")
    @classmethod
    def _names_stay_inside(cls, value: dict[str, AssetEntry]) -> dict[str, AssetEntry]:
        for name in value:
            if not is_inside(name):
                raise ValueError(f"`{name}` leaves the folder assets/")
        return value


def _read_assets(workspace: Workspace, folder: Path) -> dict[str, Asset]:
    found = {}
    for path in sorted((folder / "assets").rglob("*")):
        name = path.relative_to(folder / "assets").as_posix()
        if path.is_file() and not path.name.startswith("."):
            found[name] = Asset(name, path.read_bytes())
    path = folder / "assets.yaml"
    if path.is_file():
        found |= _parse_assets(read_document(path, shown=workspace.shown(path)))
    return found


def _parse_assets(document: Document) -> dict[str, Asset]:
    return {
        name: Asset(name, package=entry.file, sha256=entry.sha256)
        for name, entry in load_entry(AssetsFile, document).root.items()
    }


def _texts(data: Data) -> Iterator[str]:
    match data:
        case str():
            yield data
        case dict():
            for value in data.values():
                yield from _texts(value)
        case list():
            for value in data:
                yield from _texts(value)
