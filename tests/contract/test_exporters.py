"""What every kind of source promises."""

import ast
import importlib.metadata
import inspect
import pkgutil
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from mmctl.errors import InputError
from mmctl.exporters import sources
from mmctl.exporters.base import Source
from mmctl.exporters.keys import LIBRARIES, check_libraries
from mmctl.exporters.sources import SOURCES
from mmctl.exporters.spec import AnySource, ModelFile
from mmctl.triton.generate import ONNX, PYTHON, TENSORRT, TRTLLM, VLLM

EXAMPLES: dict[str, dict[str, object]] = {
    "onnx": {"onnx": "net.onnx"},
    "torch": {"torch": "source:build"},
    "huggingface": {"huggingface": "checkpoint", "task": "feature-extraction"},
    "python": {"python": "model.py"},
    "tensorrt": {"tensorrt": "model.plan"},
    "vllm": {"vllm": "/models/llama"},
    "trtllm": {"trtllm": "/models/llama"},
}


def source(kind: str) -> Source:
    return SOURCES[kind].model_validate(EXAMPLES[kind])


def file_of(kind: str) -> ModelFile:
    return ModelFile.model_validate({"source": EXAMPLES[kind]})


def test_every_module_of_the_folder_is_a_row_of_the_table() -> None:
    modules = {module.name for module in pkgutil.iter_modules(sources.__path__)}
    assert modules == set(SOURCES) == set(EXAMPLES)
    assert {kind: cls.__module__.rpartition(".")[2] for kind, cls in SOURCES.items()} == {
        kind: kind for kind in SOURCES
    }


def test_model_yaml_takes_every_kind_of_the_table() -> None:
    union = get_args(AnySource)[0]
    kinds = {get_args(member)[0]: get_args(member)[1].tag for member in get_args(union)}
    assert kinds == {cls: f"{kind} source" for kind, cls in SOURCES.items()}


@pytest.mark.parametrize("kind", SOURCES)
def test_the_key_that_names_the_kind_is_the_one_that_must_be_there(kind: str) -> None:
    fields = SOURCES[kind].model_fields
    assert fields[kind].is_required()
    assert source(kind).backend in (ONNX, PYTHON, TENSORRT, VLLM, TRTLLM)
    assert not source(kind).uses_packages


@pytest.mark.parametrize("kind", SOURCES)
def test_heavy_libraries_are_imported_inside_functions(kind: str) -> None:
    tree = ast.parse(inspect.getsource(inspect.getmodule(SOURCES[kind]) or sources))
    imported = {
        name.partition(".")[0]
        for node in tree.body
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not imported & {"torch", "onnx", "onnxruntime", "transformers", "huggingface_hub"}


@pytest.mark.parametrize("kind", [kind for kind in SOURCES if SOURCES[kind].libraries])
def test_without_its_libraries_it_says_what_to_install(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_installed(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", nothing_installed)
    with pytest.raises(InputError, match="exporting models needs the `export` extra") as caught:
        check_libraries(file_of(kind))
    assert caught.value.hint == "run `pip install 'mmctl[export]'`"


@pytest.mark.parametrize("kind", [kind for kind in SOURCES if SOURCES[kind].libraries])
def test_with_another_release_of_its_libraries_it_refuses(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0.9")
    with pytest.raises(InputError, match=r"build keys name \w+ [\d.]+, and 0.9 is installed"):
        check_libraries(file_of(kind))


@pytest.mark.parametrize("kind", [kind for kind in SOURCES if SOURCES[kind].libraries])
def test_a_local_build_of_the_pinned_release_is_that_release(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{LIBRARIES[name]}+cpu")
    check_libraries(file_of(kind))


def test_libraries_of_the_build_key_are_pinned_by_the_extra(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    pinned = dict(
        requirement.split("==")
        for requirement in project["optional-dependencies"]["export"]
        if "==" in requirement
    )
    assert {name: pinned[name] for name in LIBRARIES} == LIBRARIES
