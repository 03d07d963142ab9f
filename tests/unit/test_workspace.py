"""Where the workspace is found, and which names may become paths."""

from pathlib import Path

import pytest

from mmctl.errors import InputError, InvalidFiles
from mmctl.workspace import check_name, find_workspace


def test_the_nearest_folder_with_mmctl_yaml_is_the_workspace(workspace: Path) -> None:
    below = workspace / "a" / "b"
    below.mkdir(parents=True)
    assert find_workspace(below).root == workspace


def test_without_one_the_way_out_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no `mmctl\.yaml`") as caught:
        find_workspace(tmp_path)
    assert caught.value.hint is not None
    assert "mmctl init" in caught.value.hint


def test_a_wrong_key_of_mmctl_yaml_is_told_at_its_place(workspace: Path) -> None:
    (workspace / "mmctl.yaml").write_text("targets:\n  a: {url: x, repo: y}\n")
    with pytest.raises(InvalidFiles, match=r"mmctl\.yaml:2:15: Y003 unknown key `repo`"):
        find_workspace(workspace)


@pytest.mark.parametrize("name", ["../x", "A", "1a", "a-b", "", "a/b", "a.b", "a__b"])
def test_what_is_no_name_never_becomes_a_path(name: str) -> None:
    assert check_name(name) is not None


def test_generated_names_may_have_the_reserved_underscores() -> None:
    assert check_name("a__b", generated=True) is None
