"""Names from a server, a served tree, a manifest, a lock, a config or a list of targets never
become paths outside of their folder: the doors at which names become paths, and names that try.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from deploy_worlds import leaf, wanted
from file_trees import write
from onnx_backend_alone import load_backend
from onnx_samples import Sample, identity

from mmctl.building.served import extra_files
from mmctl.cli.app import main
from mmctl.client.status import IndexEntry
from mmctl.deploy.gather import gather_back
from mmctl.deploy.plan import plan_deploy
from mmctl.deploy.state import HeldModel, TreeState, calls_of
from mmctl.deploy.target import state_of
from mmctl.deploy.tree import LocalTree, held_of, is_name
from mmctl.errors import InputError
from mmctl.exporters.packages import resolve
from mmctl.files import inside, is_inside
from mmctl.lint.repository import Target, read_model
from mmctl.pipeline.source import AssetsFile
from mmctl.server.info import info_path, log_path
from mmctl.trials.runcheck.folder import read_warm_up
from mmctl.trials.runcheck.model import WarmUp
from mmctl.triton.pbtxt import parse_config
from mmctl.triton.repository import read_lock
from mmctl.workspace import read_workspace

HOSTILE = [
    pytest.param("../x", id="above"),
    pytest.param("..", id="the folder above"),
    pytest.param("/etc/x", id="absolute"),
    pytest.param("a/../../x", id="down and up"),
    pytest.param("a/b/../../../x", id="deep and up"),
    pytest.param("./../x", id="here and up"),
    pytest.param("x\0y", id="NUL"),
    pytest.param("", id="empty"),
    pytest.param(".", id="the folder itself"),
    pytest.param("x" * 256, id="a long name"),
    pytest.param("ü" * 128, id="a long name in bytes"),
    pytest.param("/".join(["x" * 200] * 20), id="a long path"),
    pytest.param("x\udcff", id="no text"),
]
NAMES = [str(case.values[0]) for case in HOSTILE]

GOOD = ["x", "a/b.txt", "a/./b", "..x", "x..", "...", "a b", "größe", "日本", "x" * 255, "a//b"]

SECRET = "a file of somebody else"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder two below another one, whose files must all be as they were at the end."""
    files = {"x": SECRET, "y.json": SECRET, "in/x": SECRET, "in/model/": ""}
    around = write(tmp_path / "around", files)
    before = _content(around)
    yield around / "in" / "model"
    after = _content(around)
    assert {path: after[path] for path in after if "/in/model/" not in path} == before


def _content(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_leads_out_of_a_folder_or_cannot_be_there_is_refused(name: str, folder: Path) -> None:
    assert not is_inside(name)
    with pytest.raises(InputError, match=r"who: .* is no path inside the folder") as caught:
        inside(folder, name, where="who")
    assert len(caught.value.message) < 120
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("name", GOOD)
def test_odd_names_are_none_the_worse_for_it(name: str, folder: Path) -> None:
    path = inside(folder, name)
    assert path.resolve().is_relative_to(folder.resolve())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("it can be there")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_model_of_a_served_tree_is_never_elsewhere(name: str, folder: Path) -> None:
    tree = LocalTree(folder)
    source = str(write(folder / "source", {"model.py": ""}))
    doors: list[Callable[[], object]] = [
        lambda: tree.copy(name, 1, source),
        lambda: tree.write(name, {"config.pbtxt": b""}),
        lambda: tree.write(name, {}),
        lambda: tree.drop(name, 1),
        lambda: tree.forget(name, 1),
        lambda: tree.keep(name),
        lambda: tree.bring_back(name),
        lambda: tree.erase(name),
        lambda: tree.source_of(name, 1),
        lambda: tree.plan_of(name, 1),
    ]
    for door in doors:
        with pytest.raises(InputError, match="no path inside"):
            door()


@pytest.mark.parametrize("name", HOSTILE)
def test_with_one_file_of_a_model_that_would_be_elsewhere_none_is_written(
    name: str, folder: Path
) -> None:
    for path in (name, f"{name}/plan.json"):
        if not is_inside(path):
            with pytest.raises(InputError, match="no path inside"):
                LocalTree(folder).write("m", {"a.txt": b"", path: b"", "config.pbtxt": b""})
    assert not (folder / "m").exists()


@pytest.mark.parametrize("name", [name for name in NAMES if len(name) < 100])
def test_no_model_can_have_such_a_name(name: str) -> None:
    assert not is_name(name)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_server_says_that_it_has_is_not_looked_for_on_disk(name: str) -> None:
    index = [IndexEntry(name, "1", "READY"), IndexEntry("m", name, "READY", name)]
    server = state_of([*index, IndexEntry(name, "", "UNAVAILABLE", "broken")])
    plan = plan_deploy([wanted("m", 1, leaf())], TreeState(), server, whole=True)
    assert {step.model for step in plan.steps} == {"m"}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_manifest_says_that_it_calls_is_looked_for_among_the_models(name: str) -> None:
    manifest = json.dumps({"build_key": "k", "calls": {name: 1}, "config": leaf()})
    held = held_of(manifest.encode(), [], 1, str, kept=False)
    state = TreeState({"m": HeldModel({1: held}, {"config.pbtxt": leaf().encode()})})
    tree = LocalTree(Path("/nowhere"))
    with pytest.raises(InputError, match="the target has no"):
        gather_back(tree, state, {"m": 1})


@pytest.mark.parametrize(
    "manifest",
    [
        b"[" * 100_000,
        b'{"calls": [1]}',
        b'{"calls": "../x"}',
        b'{"calls": {"a": "../x"}}',
        b'{"calls": {"a": null}}',
        b"\xff\xfe\x00",
        b"7",
    ],
)
def test_a_manifest_that_is_none_of_ours_says_nothing(manifest: bytes) -> None:
    held = held_of(manifest, [], 1, lambda: "its content", kept=False)
    assert (held.key, dict(held.calls)) == ("its content", {})


@pytest.mark.parametrize(
    "pins", [["../x"], "../x", {"../x": "../y"}, {"a": None}, {"a": []}, {"a": "1" * 5000}]
)
def test_pins_of_a_plan_that_is_none_of_ours_call_nothing(pins: object) -> None:
    plan = json.dumps({"schema": 1, "nodes": [], "pins": pins}).encode()
    files = {"config.pbtxt": leaf().encode(), "1/plan.json": plan}
    assert list(calls_of(files, (1,))) == []


@pytest.mark.parametrize("number", ["1" * 19, "9" * 5000, "01", "-1", "1_0", "١", "1\n"])
def test_a_number_that_no_version_has_is_no_version(number: str, folder: Path) -> None:
    if len(number) < 255:
        write(folder, {f"m/{number}/model.py": "", "m/config.pbtxt": leaf()})
        assert LocalTree(folder).read().models["m"].versions == {}
    assert state_of([IndexEntry("m", number, "UNAVAILABLE")]).ready == {}


@pytest.mark.parametrize("version", ["../../x", "/etc", None, [], "1/../.."])
def test_a_lock_whose_version_is_no_number_is_refused(version: object, folder: Path) -> None:
    empty: dict[str, object] = {"inputs": [], "outputs": []}
    lock = {"schema": 1, "version": version, "build_key": "", "signature": empty, "files": {}}
    text = json.dumps({**lock, "precision": "fp32", "evidence": [], "history": []})
    with pytest.raises(InputError, match="not a lock"):
        read_lock(write(folder, {"model.lock": text}))


@pytest.mark.parametrize("name", [name for name in NAMES if name and "\udcff" not in name])
def test_labels_of_a_config_are_served_from_the_models_folder_alone(
    name: str, folder: Path
) -> None:
    quoted = json.dumps(name, ensure_ascii=False).replace("\0", "\\000").replace("\\u0000", "\\000")
    output = f'output {{ name: "y" data_type: TYPE_FP32 dims: 3 label_filename: {quoted} }}'
    config = parse_config(f'backend: "python"\n{output}', where="config.pbtxt")
    with pytest.raises(InputError, match=r"model/config\.pbtxt: .* is no path inside"):
        extra_files(folder, config)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_warm_up_file_is_read_from_its_folder_alone(name: str, folder: Path) -> None:
    write(folder, {"config.pbtxt": leaf(), "warmup/good": "data", "1/model.py": ""})
    model = read_model(folder, "model", Target())
    warm_up = WarmUp("w", {}, {"bad": name, "good": "good"}, frozenset())
    assert read_warm_up(model, warm_up) == {"good": b"data"}


@pytest.fixture
def backend(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_backend(root, monkeypatch)


@pytest.mark.parametrize("name", ["../../../x", "a/../../../../x", "./../../../etc/x"])
def test_the_onnx_backend_opens_no_file_outside_of_the_repository(
    name: str, folder: Path, backend: ModuleType
) -> None:
    sample = Sample("net", graph=None, more={"default_model_filename": name})
    sample.write(folder)
    arguments = {
        "model_name": "net",
        "model_repository": str(folder / "net"),
        "model_version": "1",
        "model_instance_name": "net_0_0",
        "model_config": json.dumps(sample.config()),
    }
    with pytest.raises(Exception, match=f"'{name}' leads out of the model repository"):
        backend.TritonPythonModel().initialize(arguments)


def test_models_of_one_repository_may_share_a_file(folder: Path, backend: ModuleType) -> None:
    write(folder, {"shared/net.onnx": identity()})
    sample = Sample("net", graph=None, more={"default_model_filename": "../../shared/net.onnx"})
    config = backend.rules.read_config(sample.config())
    path = str(folder / "shared" / "net.onnx")
    assert backend.model_file(config, path) == path


@pytest.mark.parametrize("name", [name for name in NAMES if name])
def test_a_file_of_a_package_is_inside_of_it(name: str, workspace: Path) -> None:
    with pytest.raises(InputError, match="not the address of a package's file"):
        resolve(read_workspace(workspace), f"package:pytest/{name}")


@pytest.mark.parametrize("name", [name for name in NAMES if "\udcff" not in name])
def test_an_asset_is_inside_of_its_folder(name: str) -> None:
    with pytest.raises(ValueError, match="leaves the folder assets/"):
        AssetsFile.model_validate({name: "package:pytest/x"})


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("", ".", "..")])
def test_a_target_has_its_files_in_the_workspace(name: str, workspace: Path) -> None:
    space = read_workspace(workspace)
    doors: list[Callable[[], object]] = [
        lambda: space.served(name),
        lambda: info_path(space.state, name),
        lambda: log_path(space.state, name),
    ]
    for door in doors:
        with pytest.raises(InputError, match="no path inside"):
            door()


@pytest.mark.parametrize("command", ["stop", "logs"])
def test_no_command_looks_for_a_server_elsewhere(
    command: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = workspace / "other.json"
    other.write_text("{}")
    words = ["-C", str(workspace), command, "--target", "../../other"]
    assert main(words) == 2
    assert "is no path inside the folder" in capsys.readouterr().err
    assert other.read_text() == "{}"


def test_a_target_of_mmctl_yaml_that_leads_elsewhere_is_refused(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = "targets: {'../../x': {url: 'h:1', repository: 's3://bucket/models'}}\n"
    (workspace / "mmctl.yaml").write_text(targets)
    assert main(["-C", str(workspace), "history", "../../x"]) == 2
    assert "is no path inside the folder" in capsys.readouterr().err
    assert not (workspace.parent / "x.lock").exists()
