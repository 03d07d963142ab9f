"""Where the Tritons of a target answer, and how they are reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmctl.client.tls import Tls
from mmctl.deploy.deployment import tree_of
from mmctl.deploy.mirrored import MirroredTree
from mmctl.deploy.tree import LocalTree
from mmctl.errors import InputError
from mmctl.serving.session import Connection, connect
from mmctl.workspace import Workspace, read_workspace


def space_with(workspace: Path, target: str) -> Workspace:
    (workspace / "mmctl.yaml").write_text(f"targets: {{prod: {target}}}\n")
    return read_workspace(workspace)


def connection(space: Workspace, target: str = "prod") -> Connection:
    with connect(space, target, [], lambda _: None) as found:
        return found


@pytest.mark.parametrize(
    ("target", "urls"),
    [
        ("{url: 'grpc://a:1'}", ("a:1",)),
        ("{url: ['a:1', 'grpcs://b:1']}", ("a:1", "grpcs://b:1")),
        ("{url: 'a:1', tls: {ca: ca.pem}}", ("grpcs://a:1",)),
    ],
)
def test_a_target_answers_at_each_of_its_addresses(
    workspace: Path, target: str, urls: tuple[str, ...]
) -> None:
    found = connection(space_with(workspace, target))
    assert found.urls == urls
    assert found.grpc == urls[0]


def test_certificates_lie_in_the_workspace(workspace: Path) -> None:
    space = space_with(workspace, "{url: 'a:1', tls: {ca: ca.pem, cert: c.pem, key: k.pem}}")
    files = (workspace / name for name in ("ca.pem", "c.pem", "k.pem"))
    assert connection(space).tls == Tls(*files)


def test_an_unknown_target_is_told_the_known_ones(workspace: Path) -> None:
    with pytest.raises(InputError, match="known: `embedded`, `compose`, `prod`"):
        connection(space_with(workspace, "{url: 'a:1'}"), "prd")


def test_replicas_share_a_tree_or_have_one_each(workspace: Path) -> None:
    for name in ("x", "y"):
        (workspace / name).mkdir()
    one = space_with(workspace, "{url: ['a:1', 'b:1'], repository: x}")
    assert tree_of(one, "prod") == LocalTree(workspace / "x")
    two = space_with(workspace, "{url: ['a:1', 'b:1'], repository: [x, y]}")
    trees = LocalTree(workspace / "x"), LocalTree(workspace / "y")
    assert tree_of(two, "prod") == MirroredTree(trees)


def test_a_tree_each_is_made_alike_on_disk(workspace: Path, tmp_path: Path) -> None:
    trees = LocalTree(workspace / "x"), LocalTree(workspace / "y")
    source = tmp_path / "built"
    source.mkdir()
    (source / "model.py").write_text("one")
    both = MirroredTree(trees)
    for tree in trees:
        tree.root.mkdir()
    both.copy("m", 1, str(source))
    both.write("m", {"config.pbtxt": b'name: "m"\nbackend: "python"\n'})
    both.keep("m")
    both.copy("m__next", 1, both.source_of("m", 1))
    both.log({"names": ["m"]})
    assert trees[0].read().models == trees[1].read().models == both.read().models
    assert both.ledger() == [{"names": ["m"]}]
    assert (trees[1].root / "m__next" / "1" / "model.py").read_text() == "one"
