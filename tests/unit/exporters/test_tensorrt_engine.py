"""`mmctl engine`: planned without a GPU; built, checked and installed with one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest
from engine_files import V10, V11, plan_bytes
from model_folders import write_model

from mmctl.cli.app import main
from mmctl.errors import InputError, Refused, WorldError
from mmctl.exporters.tensorrt.engine import build_engine, plan_engine, shown_command
from mmctl.exporters.tensorrt.spec import PLAN, BuildSpec
from mmctl.files import write_text
from mmctl.tensors import Signature, TensorSpec, parse_type
from mmctl.triton.releases import Version
from mmctl.triton.repository import LOCK, Lock, render_lock
from mmctl.workspace import Workspace

ONNX = b"the ONNX file"
YAML = "source: {onnx: net.onnx}\nbatching: {max_batch: 16, preferred: [4]}\nengine: {}\n"
GPU = "targets: {prod: {url: 'grpc://gpu', release: '25.10', gpus: 1}}\n"


def exported(root: Path, yaml: str = YAML, files: tuple[str, ...] = ("model.onnx",)) -> Workspace:
    """A workspace with a model that looks exported."""
    (root / "mmctl.yaml").write_text(GPU)
    space = write_model(root, "net", yaml)
    folder = space.models / "net"
    x, y = TensorSpec("x", parse_type("fp32[4]")), TensorSpec("y", parse_type("fp32"))
    digests = {name: sha256(ONNX).hexdigest() for name in files}
    lock = Lock(2, "key", Signature((x,), (y,), max_batch=1), digests)
    write_text(folder / LOCK, render_lock(lock))
    for name in files:
        (folder / "2").mkdir(exist_ok=True)
        (folder / "2" / name).write_bytes(ONNX)
    return space


@dataclass
class Writes:
    """A builder that writes the header of an engine."""

    version: Version = V10
    title: str = "a builder for tests"

    def build(self, spec: BuildSpec, folder: Path) -> None:
        assert (folder / spec.onnx).read_bytes() == ONNX
        (folder / PLAN).write_bytes(plan_bytes(self.version))


@pytest.fixture
def no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose `nvidia-smi` tells of one GPU."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text("#!/bin/sh\necho 9.0\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def quiet(_line: str) -> None:
    pass


def test_the_plan_is_made_of_lock_and_model_yaml(tmp_path: Path) -> None:
    planned = plan_engine(exported(tmp_path), "net")
    spec = planned.spec
    assert (spec.onnx, spec.onnx_sha256) == ("model.onnx", sha256(ONNX).hexdigest())
    assert [(p.min, p.opt, p.max) for p in spec.profiles] == [((1, 4), (4, 4), (16, 4))]
    assert (spec.target.name, str(spec.target.release)) == ("prod", "25.10")


@pytest.mark.parametrize(
    ("precision", "file"),
    [("fp32", "model.onnx"), ("fp16", "model.fp16.onnx"), ("int8", "model.trt.onnx")],
)
def test_the_file_has_the_precision_of_the_model(tmp_path: Path, precision: str, file: str) -> None:
    more = f"precision: {precision}\nverify: {{calibration: 'd:c', data: 'd:e'}}\n"
    space = exported(tmp_path, YAML + more, ("model.onnx", file))
    assert plan_engine(space, "net").spec.onnx == file


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_the_plan_and_the_command_are_what_one_gets(tmp_path: Path) -> None:
    space = exported(tmp_path)
    planned = plan_engine(space, "net")
    with pytest.raises(WorldError, match="no NVIDIA GPU, so no engine was built") as caught:
        build_engine(planned, quiet)
    assert caught.value.exit_code == 3
    written = tmp_path / ".mmctl" / "engines" / "net"
    assert json.loads((written / "build.json").read_text())["target"]["release"] == "25.10"
    assert (written / "model.onnx").read_bytes() == ONNX
    command = shown_command(planned)
    assert command in (caught.value.hint or "")
    assert '"--volume=$PWD/.mmctl/engines/net:/engine"' in command
    assert "tritonserver:25.10-py3" in command
    assert not (space.models / "net" / "2" / PLAN).exists()


@pytest.mark.usefixtures("gpu")
def test_an_engine_is_installed_beside_the_file_it_was_made_from(tmp_path: Path) -> None:
    space = exported(tmp_path)
    made = build_engine(plan_engine(space, "net"), quiet, Writes())
    folder = space.models / "net" / "2"
    assert made.path == folder / PLAN
    stamp = json.loads((folder / "engine.json").read_text())
    assert (stamp["tensorrt"], stamp["batches"]) == ("10.13.3.9", [1, 16])
    assert (stamp["compute_capability"], stamp["onnx_sha256"]) == ("9.0", sha256(ONNX).hexdigest())


@pytest.mark.usefixtures("gpu")
def test_an_engine_that_the_target_does_not_load_is_not_installed(tmp_path: Path) -> None:
    space = exported(tmp_path)
    with pytest.raises(Refused, match="T001 the engine was made by TensorRT 11"):
        build_engine(plan_engine(space, "net"), quiet, Writes(V11))
    assert [path.name for path in (space.models / "net" / "2").iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        pytest.param(YAML.replace("engine: {}\n", ""), "has no `engine`", id="not asked for"),
        pytest.param(
            YAML + "precision: int8\nverify: {calibration: 'd:c', data: 'd:e'}\n",
            r"version 2 has no model\.trt\.onnx",
            id="no file of that precision",
        ),
    ],
)
def test_what_no_engine_can_be_made_from_is_said(tmp_path: Path, yaml: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan_engine(exported(tmp_path, yaml), "net")


def test_a_model_that_was_never_exported_is_said(workspace: Path) -> None:
    with pytest.raises(InputError, match="`net` was never exported"):
        plan_engine(write_model(workspace, "net", YAML), "net")


def test_of_several_gpu_targets_one_is_named(tmp_path: Path) -> None:
    space = exported(tmp_path)
    two = GPU.replace("}}", "}, next: {url: 'grpc://b', release: '26.07', gpus: 1}}")
    (tmp_path / "mmctl.yaml").write_text(two)
    from mmctl.workspace import read_workspace

    space = read_workspace(space.root)
    with pytest.raises(InputError, match="`next`, `prod` have GPUs and different releases"):
        plan_engine(space, "net")
    assert str(plan_engine(space, "net", "next").spec.target.release) == "26.07"
    with pytest.raises(InputError, match="has no target `nex`"):
        plan_engine(space, "net", "nex")


def test_the_command_line_plans_without_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(tmp_path)
    assert main(["-C", str(tmp_path), "engine", "net", "--plan-only"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("net: planned .mmctl/engines/net/build.json\n  docker run ")
