"""Merged models in a workspace: when their file is made, and when what is there is enough."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_folders import write_model
from onnx_samples import Ports, onnx_model

from mmctl.building.build import Built, build, compile_only
from mmctl.building.drift import find_drift
from mmctl.errors import InputError
from mmctl.triton.repository import Lock, read_lock
from mmctl.workspace import Workspace, read_workspace

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

PIPELINE = """
pipeline: pair
inputs: {x: "fp32[4]"}
nodes:
  wide: {model: widen, inputs: {x: x}}
  narrow: {model: narrow, inputs: {x: wide.y}}
outputs: {y: narrow.y}
fuse: [wide, narrow]
"""


def scaled(size: int, factor: float) -> bytes:
    """y = x * factor for rows of `size` numbers."""
    port: Ports = {"x": ("FLOAT", ["N", size])}
    return onnx_model(
        port, {"y": ("FLOAT", ["N", size])}, [("Mul", ["x", "f"], ["y"], {})],
        {"f": np.float32([factor])},
    )  # fmt: skip


def write_scaled(root: Path, name: str, factor: float) -> Workspace:
    return write_model(
        root, name, "source: {onnx: net.onnx}\nbatching: {max_batch: 4}\n",
        net_onnx=scaled(4, factor),
    )  # fmt: skip


@pytest.fixture
def space(workspace: Path) -> Workspace:
    write_scaled(workspace, "widen", 3)
    write_scaled(workspace, "narrow", 0.5)
    folder = workspace / "ensembles" / "pair"
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(PIPELINE)
    return read_workspace(workspace)


def run(space: Workspace, *names: str, reprove: bool = False) -> tuple[Built, list[str]]:
    said: list[str] = []
    return build(space, names, said.append, reprove=reprove), said


def lock_of(space: Workspace, name: str = "pair__narrow") -> Lock:
    lock = read_lock(space.models / name)
    assert lock is not None
    return lock


def answer(space: Workspace, version: int = 1) -> list[float]:
    path = space.models / "pair__narrow" / str(version) / "model.onnx"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    result: Any = session.run(["y"], {"x": np.float32([[1, 2, 3, 4]])})
    return list(result[0][0])


def manifest(space: Workspace, name: str, version: int = 1) -> dict[str, Any]:
    text = (space.models / name / str(version) / "manifest.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def test_the_version_of_a_merged_model_holds_its_members_and_calls_none(space: Workspace) -> None:
    run(space)
    assert answer(space) == [1.5, 3, 4.5, 6]
    assert manifest(space, "pair__narrow")["calls"] == {}
    assert manifest(space, "pair")["calls"] == {"pair__narrow": 1}
    lock = lock_of(space)
    assert [row["gate"] for row in lock.evidence] == ["onnx checker", "parity", "batch law"]
    assert list(lock.files) == ["model.onnx"]


def test_a_second_build_makes_and_writes_nothing(space: Workspace) -> None:
    run(space)
    assert run(space)[1] == []
    assert find_drift(space) == []


def test_the_check_needs_no_weights_and_no_time(space: Workspace) -> None:
    run(space)
    for folder in space.models.glob("*/1"):
        shutil.rmtree(folder)
    started = time.process_time()
    assert find_drift(space) == []
    assert time.process_time() - started < 2
    compile_only(space, [])


def test_a_clean_clone_makes_the_file_and_keeps_the_lock(space: Workspace) -> None:
    run(space)
    path = space.models / "pair__narrow" / "model.lock"
    elsewhere = path.read_text().replace('"opset": 17', '"opset": 99')
    path.write_text(elsewhere)
    shutil.rmtree(space.models / "pair__narrow" / "1")
    run(space)
    assert answer(space) == [1.5, 3, 4.5, 6]
    assert path.read_text() == elsewhere
    run(space, reprove=True)
    assert '"opset": 17' in path.read_text(), "--reprove measures anew"


def test_another_member_is_another_version_of_the_merged_model_and_of_its_pipeline(
    space: Workspace,
) -> None:
    run(space)
    write_scaled(space.root, "widen", 8)
    run(space)
    assert answer(space, 2) == [4, 8, 12, 16]
    assert (lock_of(space).version, lock_of(space, "pair").version) == (2, 2)
    write_scaled(space.root, "widen", 3)
    run(space)
    assert (lock_of(space).version, lock_of(space, "pair").version) == (1, 1)
    assert lock_of(space).evidence


def test_a_setting_of_a_member_is_none_of_the_merged_models_version(space: Workspace) -> None:
    run(space)
    before = lock_of(space)
    file = space.models / "widen" / "model.yaml"
    file.write_text(file.read_text().replace("max_batch: 4", "max_batch: 2"))
    run(space)
    assert lock_of(space) == before
    assert "max_batch_size: 2" in (space.models / "pair__narrow" / "config.pbtxt").read_text()


def test_what_only_a_build_can_make_is_told(space: Workspace) -> None:
    run(space, "widen", "narrow")
    with pytest.raises(InputError, match="`pair__narrow` was not merged yet") as caught:
        compile_only(space, [])
    assert caught.value.hint == "run `mmctl build`"
    assert not (space.models / "pair").exists()
    assert "model_repository/pair__narrow/model.lock: missing" in find_drift(space)


def test_members_that_nobody_calls_are_not_served_with_the_pipeline(space: Workspace) -> None:
    assert run(space, "pair")[0].models == ("pair__narrow", "pair")
    assert run(space)[0].models == ("narrow", "widen", "pair__narrow", "pair")
    assert run(space, "pair", "widen")[0].models == ("widen", "pair__narrow", "pair")


def test_without_fuse_the_members_are_called_and_the_merged_folder_goes(space: Workspace) -> None:
    run(space)
    path = space.pipelines / "pair" / "pipeline.yaml"
    path.write_text(PIPELINE.replace("fuse: [wide, narrow]\n", ""))
    assert run(space, "pair")[0].models == ("narrow", "widen", "pair")
    assert not (space.models / "pair__narrow").exists()
    assert lock_of(space, "pair").version == 2
