"""The served tree: pinned, complete, and still where nothing changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mmctl.building.build import build
from mmctl.building.served import ServedTree, Versions, materialise, served_versions
from mmctl.errors import InputError
from mmctl.triton.pbtxt import parse_config
from mmctl.triton.repository import CONFIG, DIGEST, content_digest, digests_of, read_build_key
from mmctl.workspace import Workspace


def serve(workspace: Workspace, *, live: dict[str, Versions] | None = None) -> ServedTree:
    models = build(workspace, [], lambda _: None).models
    return materialise(workspace, models, workspace.served("t"), live=live)


def policy(tree: ServedTree, model: str) -> Versions:
    return served_versions(tree.root)[model]


def edit_step(workspace: Workspace, body: str) -> None:
    steps = workspace.pipelines / "twice" / "steps.py"
    steps.write_text(f"def double(x):\n    return {{'y': {body}}}\n")


def test_every_call_is_pinned_and_every_model_of_ours_has_a_version_policy(
    small: Workspace,
) -> None:
    serve(small)
    edit_step(small, "x + x")
    tree = serve(small)
    config = parse_config((tree.root / "twice" / "config.pbtxt").read_text(), where="t")
    assert config.versions == (2,)
    assert {step.model: step.version for step in config.steps} == {"twice__double": 2, "echo": 1}


def test_callees_come_before_their_callers(small: Workspace) -> None:
    assert tuple(serve(small).models) == ("echo", "twice__double", "twice")


def test_an_unchanged_tree_is_left_alone_to_the_modification_time(small: Workspace) -> None:
    tree = serve(small)
    before = {p: p.stat().st_mtime_ns for p in tree.root.rglob("*")}
    again = serve(small)
    assert again.changed == ()
    assert {p: p.stat().st_mtime_ns for p in tree.root.rglob("*")} == before


def test_configs_tell_what_their_versions_are_made_from(small: Workspace) -> None:
    tree = serve(small)
    for name, versions in tree.models.items():
        source = small.models / name
        served = parse_config((tree.root / name / CONFIG).read_text(), where=name)
        keys = {v: source / str(v) for v in versions}
        expected = {v: read_build_key(f) or content_digest(f) for v, f in keys.items()}
        assert digests_of(served.parameters[DIGEST]) == expected
        assert DIGEST not in (source / CONFIG).read_text()


def test_only_what_triton_reads_is_in_it(small: Workspace) -> None:
    tree = serve(small)
    names = {p.name for p in (tree.root / "twice__double").rglob("*") if p.is_file()}
    runner = {
        "model.py", "model_counters.py", "step_reads.py", "step_tensors.py", "item_lists.py",
    }  # fmt: skip
    assert names == {"config.pbtxt", "manifest.json", "step.json", "steps.py"} | runner


def test_new_versions_load_beside_live_ones_and_the_old_go_after_the_switch(
    small: Workspace,
) -> None:
    live = served_versions(serve(small).root)
    edit_step(small, "x + x")
    beside = serve(small, live=live)
    assert set(beside.changed) == {"twice__double", "twice"}
    assert policy(beside, "twice__double") == (1, 2)
    assert policy(beside, "twice") == (2,)  # versions of an ensemble share one config
    assert (beside.root / "twice__double" / "1").is_dir()
    after = serve(small)
    assert after.changed == ("twice__double",)
    assert policy(after, "twice__double") == (2,)
    assert not (after.root / "twice__double" / "1").exists()


def test_a_version_that_failed_to_load_is_not_kept_beside_the_next(small: Workspace) -> None:
    live = served_versions(serve(small).root)
    for body in ("x + x", "x + x + x"):
        edit_step(small, body)
        tree = serve(small, live=live)
    assert policy(tree, "twice__double") == (1, 3)


def test_an_edited_file_of_a_foreign_model_is_served_anew(small: Workspace) -> None:
    serve(small)
    (small.models / "echo" / "1" / "model.py").write_text("# another one\n")
    assert serve(small, live={}).changed == ("echo",)


@pytest.mark.parametrize("first", [b"engine", None], ids=["another engine", "the first engine"])
def test_a_file_that_comes_later_into_a_version_of_ours_is_served(
    small: Workspace, first: bytes | None
) -> None:
    plan = small.models / "twice__double" / "1" / "model.plan"
    serve(small)
    if first is not None:
        plan.write_bytes(first)
        serve(small)
        plan.unlink()
    plan.write_bytes(b"newer!")
    tree = serve(small)
    assert tree.changed == ("twice__double",)
    assert (tree.root / "twice__double" / "1" / "model.plan").read_bytes() == b"newer!"
    assert serve(small).changed == ()
    plan.unlink()
    assert serve(small).changed == ("twice__double",)
    assert not (tree.root / "twice__double" / "1" / "model.plan").exists()


def test_a_change_of_settings_moves_the_config_alone(small: Workspace) -> None:
    tree = serve(small)
    folder = tree.root / "twice__double" / "1"
    before = folder.stat().st_ino
    source = small.pipelines / "twice" / "pipeline.yaml"
    source.write_text(source.read_text().replace("cpu: 2", "cpu: 3"))
    assert serve(small).changed == ("twice__double",)
    assert folder.stat().st_ino == before, "Triton adds an instance without loading anew"


def test_new_version_folders_are_precompiled_once(small: Workspace) -> None:
    models = build(small, [], lambda _: None).models
    compiled: list[Sequence[Path]] = []
    for _ in range(2):
        materialise(small, models, small.served("t"), precompile=compiled.append)
    assert [[path.parent.name for path in folders] for folders in compiled] == [
        ["echo", "twice__double", "twice"]
    ]


def test_what_is_not_built_is_told(small: Workspace) -> None:
    build(small, [], lambda _: None)
    (small.models / "twice" / "1" / "manifest.json").unlink()
    with pytest.raises(InputError, match="`twice` is not built"):
        materialise(small, ["twice"], small.served("t"))


def test_a_config_without_tensors_is_left_to_triton_to_complete(small: Workspace) -> None:
    assert serve(small).whole
    (small.models / "auto" / "1").mkdir(parents=True)
    (small.models / "auto" / "1" / "model.py").write_text("# the user's own")
    (small.models / "auto" / "config.pbtxt").write_text('name: "auto" backend: "python"')
    assert not serve(small).whole
