"""Where the workspace is found, and which names may become paths."""

from pathlib import Path

import pytest

from mmctl.errors import InputError, InvalidFiles
from mmctl.workspace import check_name, find_workspace, read_workspace


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


def test_a_target_may_have_replicas_and_need_not_state_its_release(workspace: Path) -> None:
    (workspace / "mmctl.yaml").write_text(
        "targets:\n"
        "  one: {url: 'a:1', repository: models}\n"
        "  two: {url: ['a:1', 'b:1'], repository: models, tls: {ca: ca.pem}, release: '25.01'}\n"
        "  own: {url: ['a:1', 'b:1'], repository: [x, y]}\n"
        "defaults: {release: '24.11'}\n"
    )
    space = read_workspace(workspace)
    assert (space.target("one").url, space.target("one").repository) == (("a:1",), ("models",))
    assert space.target("two").url == ("a:1", "b:1")
    assert space.target("own").repository == ("x", "y")
    assert [space.release_of(name) for name in ("one", "two")] == ["24.11", "25.01"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("{url: []}", "`url`: "),
        ("{url: {a: b}}", "write one value, not a list or a mapping"),
        ("{url: ['a:1', 'b:1', 'c:1'], repository: [x, y]}", "3 urls and 2 repositories"),
        ("{url: 'a:1', tls: {file: x}}", "unknown key `file`"),
    ],
)
def test_a_target_of_another_shape_is_refused(workspace: Path, target: str, message: str) -> None:
    (workspace / "mmctl.yaml").write_text(f"targets:\n  a: {target}\n")
    with pytest.raises(InvalidFiles, match=message):
        read_workspace(workspace)


def test_prices_are_read_where_they_are_said(workspace: Path) -> None:
    assert read_workspace(workspace).cost is None
    (workspace / "mmctl.yaml").write_text("cost: {per_hour: 0.8, per_instance_hour: 0.05}\n")
    cost = read_workspace(workspace).cost
    assert cost is not None
    assert (cost.per_hour, cost.per_instance_hour, cost.throughput) == (0.8, 0.05, 1.0)
