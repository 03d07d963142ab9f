"""Version numbers, locks and configs, shown on models of the Python backend: they need no torch."""

import json
import shutil
from pathlib import Path

import pytest
from model_folders import PYTHON_MODEL, PYTHON_YAML, snapshot, write_model, write_python_model

from mmctl.errors import InputError, MmctlError, Refused
from mmctl.exporters import ExportOutcome, child, export_model
from mmctl.exporters.process import ERROR, JOB
from mmctl.triton.pbtxt import parse_config
from mmctl.triton.repository import read_build_key, read_lock
from mmctl.workspace import Workspace

OTHER_MODEL = PYTHON_MODEL + "# another one\n"


def silent(_line: str) -> None: ...


def export(space: Workspace, *, reprove: bool = False) -> ExportOutcome:
    return export_model(space, "echo", reprove=reprove, say=silent)


@pytest.fixture
def space(workspace: Path) -> Workspace:
    return write_python_model(workspace)


@pytest.fixture
def folder(space: Workspace) -> Path:
    return space.models / "echo"


def test_the_first_export_makes_version_1(space: Workspace, folder: Path) -> None:
    outcome = export(space)
    lock = read_lock(folder)
    assert lock is not None
    assert (outcome.version, outcome.changed) == (1, True)
    assert lock.history == ((1, lock.build_key),)
    assert [str(spec) for spec in lock.signature.outputs] == ["label: string", "scores: fp32[3]"]
    assert lock.signature.max_batch == 1
    assert sorted(lock.files) == ["model.py"]
    assert lock.evidence == ({"gate": "syntax", "python": "3.10"},)
    assert read_build_key(folder / "1") == lock.build_key
    assert (folder / "1" / "model.py").read_text() == PYTHON_MODEL
    config = parse_config((folder / "config.pbtxt").read_text(), where="")
    assert (config.name, config.backend, config.max_batch_size) == ("echo", "python", 8)
    assert not list(folder.glob(".*")), "no temporary folder stays"


@pytest.mark.parametrize(
    "yaml",
    [
        pytest.param(PYTHON_YAML, id="unchanged"),
        pytest.param(f"# A comment\n{PYTHON_YAML}precision: fp32 # written out\n", id="commented"),
    ],
)
def test_the_same_build_key_rewrites_nothing(space: Workspace, folder: Path, yaml: str) -> None:
    export(space)
    (folder / "model.yaml").write_text(yaml)
    before = snapshot(folder)
    assert not export(space).changed
    assert snapshot(folder) == before


def test_a_setting_rewrites_the_config_of_the_same_version(space: Workspace, folder: Path) -> None:
    export(space)
    lock = (folder / "model.lock").read_bytes()
    (folder / "model.yaml").write_text(PYTHON_YAML.replace("8", "16") + "instances: {gpu: 1}\n")
    outcome = export(space)
    assert (outcome.version, outcome.changed) == (1, True)
    assert (folder / "model.lock").read_bytes() == lock
    assert "max_batch_size: 16" in (folder / "config.pbtxt").read_text()
    assert "max_batch_size: 16" in (folder / "1" / "manifest.json").read_text()
    assert (folder / "configs" / "gpu.pbtxt").is_file()
    (folder / "model.yaml").write_text(PYTHON_YAML)
    assert export(space).changed
    assert not (folder / "configs" / "gpu.pbtxt").exists()


def test_a_new_build_key_gets_the_next_number_and_the_old_folder_stays(
    space: Workspace, folder: Path
) -> None:
    first = export(space).lock.build_key
    (folder / "model.py").write_text(OTHER_MODEL)
    outcome = export(space)
    assert outcome.version == 2
    assert outcome.lock.history == ((1, first), (2, outcome.lock.build_key))
    assert read_build_key(folder / "1") == first
    assert (folder / "1" / "model.py").read_text() == PYTHON_MODEL
    assert (folder / "2" / "model.py").read_text() == OTHER_MODEL


def test_going_back_gets_the_old_number_back(space: Workspace, folder: Path) -> None:
    export(space)
    (folder / "model.py").write_text(OTHER_MODEL)
    export(space)
    (folder / "model.py").write_text(PYTHON_MODEL)
    outcome = export(space)
    assert outcome.version == 1
    assert [version for version, _ in outcome.lock.history] == [2, 1]


def test_a_clean_clone_builds_the_folder_and_keeps_the_lock(space: Workspace, folder: Path) -> None:
    export(space)
    lock = (folder / "model.lock").read_text()
    elsewhere = lock.replace('"python": "3.10"', '"python": "measured elsewhere"')
    (folder / "model.lock").write_text(elsewhere)
    shutil.rmtree(folder / "1")
    assert export(space).changed
    assert (folder / "1" / "model.py").is_file()
    assert (folder / "model.lock").read_text() == elsewhere
    assert export(space, reprove=True).version == 1
    assert (folder / "model.lock").read_text() == lock, "--reprove measures anew"


def test_a_folder_of_another_branch_is_replaced(space: Workspace, folder: Path) -> None:
    (folder / "model.py").write_text(OTHER_MODEL)
    export(space)
    (folder / "model.lock").unlink()
    (folder / "model.py").write_text(PYTHON_MODEL)
    assert export(space).version == 1
    assert (folder / "1" / "model.py").read_text() == PYTHON_MODEL


def test_a_version_folder_that_is_not_ours_is_never_replaced(
    space: Workspace, folder: Path
) -> None:
    (folder / "1").mkdir()
    (folder / "1" / "model.onnx").write_text("weights of somebody")
    with pytest.raises(InputError, match="model_repository/echo/1: was not made by mmctl"):
        export(space)
    assert (folder / "1" / "model.onnx").read_text() == "weights of somebody"


def test_the_batch_axis_is_part_of_the_version(space: Workspace, folder: Path) -> None:
    export(space)
    (folder / "model.yaml").write_text(PYTHON_YAML.replace("{max_batch: 8}", "none"))
    outcome = export(space)
    assert outcome.version == 2
    assert outcome.lock.signature.max_batch == 0
    assert "max_batch_size: 0" in (folder / "config.pbtxt").read_text()


@pytest.mark.parametrize(
    ("model", "kind", "said"),
    [
        pytest.param("def (", InputError, r"model.py:1: not Python", id="no Python"),
        pytest.param(
            "match x:\n    case 1: ...\ntype X = int\n", InputError, "model.py:3", id="newer syntax"
        ),
        pytest.param("x = 1\n", Refused, "has no class `TritonPythonModel`", id="no class"),
        pytest.param(
            "class TritonPythonModel:\n    def initialize(self, args): ...\n",
            Refused,
            "model.py:1: `TritonPythonModel` has no method `execute`",
            id="no execute",
        ),
    ],
)
def test_a_model_py_that_triton_could_not_load_leaves_nothing(
    space: Workspace, folder: Path, model: str, kind: type[MmctlError], said: str
) -> None:
    export(space)
    (folder / "model.py").write_text(model)
    before = snapshot(folder)
    with pytest.raises(kind, match=f"^model_repository/echo: .*{said}"):
        export(space)
    assert snapshot(folder) == before
    assert sorted(path.name for path in folder.iterdir()) == [
        "1",
        "config.pbtxt",
        "model.lock",
        "model.py",
        "model.yaml",
    ]


def test_other_files_come_along_under_their_paths(workspace: Path) -> None:
    yaml = PYTHON_YAML.replace("model.py}", "serve.py, files: [words/bad.txt]}")
    space = write_model(workspace, "echo", yaml, serve_py=PYTHON_MODEL)
    words = space.models / "echo" / "words" / "bad.txt"
    with pytest.raises(InputError, match=r"`words/bad.txt` does not exist"):
        export(space)
    words.parent.mkdir()
    words.write_text("darn\n")
    assert sorted(export(space).lock.files) == ["model.py", "words/bad.txt"]
    assert (space.models / "echo" / "1" / "words" / "bad.txt").read_text() == "darn\n"
    words.write_text("darn\nheck\n")
    assert export(space).version == 2


def test_options_that_cannot_be_served_leave_nothing(space: Workspace, folder: Path) -> None:
    (folder / "model.yaml").write_text(PYTHON_YAML + "response_cache: true\n")
    with pytest.raises(InputError, match="response_cache would mix up requests"):
        export(space)
    assert sorted(path.name for path in folder.iterdir()) == ["model.py", "model.yaml"]


def test_sources_that_change_during_the_export_are_noticed(
    space: Workspace, folder: Path, tmp_path: Path
) -> None:
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    scratch.mkdir()
    out.mkdir()
    job = {
        "root": str(space.root),
        "model": "echo",
        "build_key": "of what model.py was when the export began",
        "located": str(folder / "model.py"),
        "out": str(out),
    }
    (scratch / JOB).write_text(json.dumps(job))
    child.main(scratch)
    error = json.loads((scratch / ERROR).read_text())
    assert error["message"].endswith("model.yaml or its sources changed during the export")
    assert error["exit_code"] == 2
    assert not (scratch / "model.lock").exists()
