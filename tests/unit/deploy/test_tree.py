"""The local tree: what is read from it, and that nothing is ever half-written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mmctl.building.served import ledger_path
from mmctl.deploy.ledger import entry
from mmctl.deploy.steps import Move
from mmctl.deploy.tree import LocalTree
from mmctl.errors import WorldError

CONFIG = b'name: "m" backend: "python" version_policy { specific { versions: [ 1 ] } }\n'


@pytest.fixture
def tree(tmp_path: Path) -> LocalTree:
    (tmp_path / "served").mkdir()
    return LocalTree(tmp_path / "served")


def source(tmp_path: Path, version: int, **files: str) -> str:
    """A version folder as a build leaves it."""
    folder = tmp_path / "built" / str(version)
    folder.mkdir(parents=True)
    manifest = {"schema": 1, "version": version, "build_key": f"key{version}", "calls": {"a": 7}}
    (folder / "manifest.json").write_text(json.dumps({**manifest, "config": "whole"}))
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return str(folder)


def serve(tree: LocalTree, tmp_path: Path) -> None:
    tree.copy("m", 1, source(tmp_path, 1, model_py="one", plan_json="{}"))
    tree.write("m", {"config.pbtxt": CONFIG, "labels.txt": b"cat\n", "1/plan.json": b"{}"})


def test_what_was_written_is_read(tree: LocalTree, tmp_path: Path) -> None:
    serve(tree, tmp_path)
    model = tree.read().models["m"]
    assert model.live == (1,)
    assert set(model.files) == {"config.pbtxt", "labels.txt", "1/plan.json"}
    held = model.versions[1]
    assert (held.key, held.config, held.calls, held.runner) == ("key1", "whole", {"a": 7}, True)


def test_a_plan_is_written_over_the_link_and_not_through_it(
    tree: LocalTree, tmp_path: Path
) -> None:
    serve(tree, tmp_path)
    tree.write("m", {"config.pbtxt": CONFIG, "1/plan.json": b"other"})
    assert (tmp_path / "built" / "1" / "plan.json").read_text() == "{}"
    assert not (tree.root / "m" / "labels.txt").exists()


def test_without_files_and_versions_the_folder_goes(tree: LocalTree, tmp_path: Path) -> None:
    serve(tree, tmp_path)
    tree.write("m", {})
    assert tree.read().models["m"].live == ()
    tree.drop("m", 1)
    assert list(tree.root.iterdir()) == []


def test_kept_versions_lie_beside_the_tree_and_come_back(tree: LocalTree, tmp_path: Path) -> None:
    serve(tree, tmp_path)
    tree.keep("m")
    assert list(tree.root.iterdir()) == []
    assert tree.read().models["m"].versions[1].kept
    assert (tree.place_of("m", 1) / "model.py").read_text() == "one"
    tree.bring_back("m")
    assert not tree.read().models["m"].versions[1].kept


def test_a_kept_version_that_came_back_can_be_dropped_again(
    tree: LocalTree, tmp_path: Path
) -> None:
    serve(tree, tmp_path)
    tree.keep("m")
    tree.copy("m", 1, str(tree.place_of("m", 1)))
    assert not tree.read().models["m"].versions[1].kept
    tree.drop("m", 1)
    assert tree.read().models["m"].versions[1].kept
    tree.forget("m", 1)
    assert tree.read().models == {}


def test_the_content_is_the_build_key_of_what_mmctl_did_not_make(tree: LocalTree) -> None:
    for name, text in (("a", "same"), ("b", "same"), ("c", "other")):
        (tree.root / name / "1").mkdir(parents=True)
        (tree.root / name / "1" / "model.py").write_text(text)
    models = tree.read().models
    keys = [models[name].versions[1].key for name in "abc"]
    assert keys[0] == keys[1] != keys[2]


def test_what_a_killed_process_left_is_cleared_away(tree: LocalTree, tmp_path: Path) -> None:
    serve(tree, tmp_path)
    (tree.root / "m" / ".2.half").mkdir()
    (tree.root / "m" / ".config.pbtxt.half").write_text("")
    assert set(tree.read().models["m"].versions) == {1}
    tree.tear("one step")
    assert tree.read().torn
    assert {p.name for p in (tree.root / "m").iterdir()} == {"1", "config.pbtxt", "labels.txt"}
    tree.mend()
    assert not tree.read().torn


def test_names_that_lead_elsewhere_are_no_models(tree: LocalTree) -> None:
    (tree.root / "..hidden").mkdir()
    (tree.root / ".git").mkdir()
    assert tree.read().models == {}


def test_the_ledger_outlives_a_line_that_was_cut(tree: LocalTree) -> None:
    tree.log(entry("deploy", {"m": Move((1,), (2,), {2: "key2"})}, "done"))
    with ledger_path(tree.root).open("a") as file:
        file.write('{"half": ')
    assert [line["outcome"] for line in tree.ledger()] == ["done"]
    assert tree.read().keys == {"m": {2: "key2"}}


def test_a_disk_that_cannot_be_written_is_told_with_the_place(
    tree: LocalTree, tmp_path: Path
) -> None:
    (tree.root / "m").write_text("a file where a folder should be")
    with pytest.raises(WorldError, match="cannot write"):
        tree.copy("m", 1, source(tmp_path, 1))
