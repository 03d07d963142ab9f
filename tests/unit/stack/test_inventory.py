"""What a workspace serves, by its locks and configs alone."""

from __future__ import annotations

import pytest

from mmctl.errors import InputError
from mmctl.stack.inventory import ServedNode, read_inventory, read_requirements
from mmctl.workspace import Workspace


def kinds(workspace: Workspace, *names: str) -> dict[str, tuple[str, bool]]:
    return {m.name: (m.kind, m.entry) for m in read_inventory(workspace, names).models}


def test_every_model_has_a_kind_and_is_asked_by_clients_or_by_others(space: Workspace) -> None:
    assert kinds(space) == {
        "alone": ("model", True),
        "by_hand": ("ensemble", True),
        "inner": ("model", False),
        "echo": ("model", False),
        "twice__double": ("step", False),
        "twice": ("ensemble", True),
        "guarded": ("bls", True),
        "joined": ("fused", True),
    }


def test_a_node_is_run_by_its_model_and_nodes_that_are_one_are_told_as_one(
    space: Workspace,
) -> None:
    assert set(read_inventory(space).nodes) == {
        ServedNode("twice", "double", "twice__double"),
        ServedNode("twice", "echo", "echo"),
        ServedNode("guarded", "again", "twice"),
        ServedNode("guarded", "once", "echo"),
        ServedNode("guarded", "more", "echo"),
        ServedNode("joined", "a+b", "joined"),
    }


def test_names_bring_what_they_call_and_no_more(space: Workspace) -> None:
    assert list(kinds(space, "twice")) == ["echo", "twice__double", "twice"]
    assert kinds(space, "alone") == {"alone": ("model", True)}
    with pytest.raises(InputError, match="`twcie` is neither a model nor a pipeline") as error:
        kinds(space, "twcie")
    assert error.value.hint == "did you mean `twice`?"


def test_the_busiest_pipeline_says_how_many_threads_bls_needs(space: Workspace) -> None:
    assert read_inventory(space, ["twice"]).bls_threads == 32
    assert read_inventory(space).bls_threads > 40


def test_what_needs_an_image_of_its_own_is_left_out(space: Workspace) -> None:
    folder = space.models / "chat"
    folder.mkdir()
    (folder / "model.yaml").write_text('source: {vllm: "org/model"}\n')
    assert "chat" not in kinds(space)


def test_requirements_are_those_of_the_pipelines_that_are_served(space: Workspace) -> None:
    (space.pipelines / "common").mkdir()
    (space.pipelines / "common" / "requirements.txt").write_text("attrs\n")
    assert read_requirements(space) == {"twice": "six==1.16.0\n", "common": "attrs\n"}
    assert list(read_requirements(space, ["guarded"])) == ["common", "twice"]
    assert list(read_requirements(space, ["joined"])) == ["common"]


def test_a_folder_that_is_no_name_becomes_no_path(space: Workspace) -> None:
    odd = space.pipelines / "a b"
    odd.mkdir()
    (odd / "requirements.txt").write_text("six\n")
    with pytest.raises(InputError, match="`a b` is not a name"):
        read_requirements(space)
