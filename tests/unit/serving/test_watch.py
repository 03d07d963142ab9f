"""Which saved files start a rebuild, and who else may change what is served meanwhile."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from mmctl.building.served import lock_path
from mmctl.deploy.ledger import entry
from mmctl.deploy.tree import LocalTree
from mmctl.files import exclusive
from mmctl.server.process import EmbeddedTriton
from mmctl.serving.watch import is_source, watch_and_reload
from mmctl.workspace import read_workspace


@pytest.mark.parametrize(
    ("path", "watched"),
    [
        ("ensembles/p/steps.py", True),
        ("ensembles/p/pipeline.yaml", True),
        ("ensembles/common/words.py", True),
        ("ensembles/p/__pycache__/steps.pyc", False),
        ("ensembles/p/.steps.py.swp", False),
        ("model_repository/m/model.yaml", True),
        ("model_repository/m/source.py", True),
        ("model_repository/m/3/model.onnx", False),
        ("model_repository/m/.3.tmp/steps.py", False),
        ("model_repository/m/config.pbtxt", False),
        ("model_repository/m/model.lock", False),
        ("model_repository/own/config.pbtxt", True),
        ("model_repository/own/1/model.py", True),
    ],
)
def test_people_write_sources_and_mmctl_the_rest(workspace: Path, path: str, watched: bool) -> None:
    (workspace / "model_repository" / "m").mkdir(parents=True)
    (workspace / "model_repository" / "m" / "model.yaml").write_text("")
    assert is_source(read_workspace(workspace), workspace / path) is watched


class Server:
    """One that serves until it is asked whether it does."""

    alive = True


def test_what_was_deployed_meanwhile_is_not_built_over(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = LocalTree(workspace / "served")
    tree.root.mkdir()

    def saved(*_folders: Path, **_options: object) -> Iterator[set[tuple[int, str]]]:
        yield set()
        tree.log(entry("deploy", {}, "done"))
        yield {(1, str(workspace / "ensembles/p/steps.py"))}
        raise AssertionError("still watching")

    monkeypatch.setattr("watchfiles.watch", saved)
    said: list[str] = []
    server = cast("EmbeddedTriton", Server())
    watch_and_reload(read_workspace(workspace), [], server, tree.root, said.append)
    assert said[-1].startswith("what this server serves was deployed to it since")


def test_a_build_waits_for_a_deployment_that_is_under_way(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = workspace / "served"
    root.mkdir()
    said: list[str] = []
    monkeypatch.setattr("mmctl.serving.watch.rebuild", lambda *_: said.append("built") or {})
    waits = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        if line == "waiting for a deployment":
            waits.set()

    def watch(*_folders: Path, **_options: object) -> Iterator[set[tuple[int, str]]]:
        yield {(1, str(workspace / "ensembles/p/steps.py"))}

    monkeypatch.setattr("watchfiles.watch", watch)
    server = cast("EmbeddedTriton", Server())
    arguments = (read_workspace(workspace), [], server, root, say)
    with exclusive(lock_path(root), lambda: None):
        building = threading.Thread(target=watch_and_reload, args=arguments)
        building.start()
        assert waits.wait(10)
        assert "built" not in said
    building.join(10)
    assert said[-1] == "built"
