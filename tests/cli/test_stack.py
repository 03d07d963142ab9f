"""`mmctl stack`, `image` and `k8s`: what is said, written and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mmctl.cli.app import main

CONFIG = """
backend: "python"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 3 }
output { name: "y" data_type: TYPE_FP32 dims: 3 }
"""

TARGETS = """
targets:
  cluster: {url: "grpc://triton:8001", release: "25.01", gpus: 1}
"""

IMAGE = ["deploy/triton/Dockerfile", "deploy/triton/requirements/mmctl.txt"]


@pytest.fixture
def space(workspace: Path) -> Path:
    (workspace / "mmctl.yaml").write_text(TARGETS)
    (workspace / "model_repository" / "echo").mkdir(parents=True)
    (workspace / "model_repository" / "echo" / "config.pbtxt").write_text(CONFIG)
    return workspace


def run(space: Path, *words: str) -> int:
    return main(["-C", str(space), *words])


def test_the_stack_is_written_and_says_what(
    space: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(space, "stack") == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "docker-compose.yml",
        "deploy/prometheus/prometheus.yml",
        "deploy/prometheus/rules.yml",
        "deploy/grafana/provisioning/datasources/sources.yaml",
        "deploy/grafana/provisioning/dashboards/folder.yaml",
        "deploy/grafana/dashboards/triton.json",
        "deploy/grafana/dashboards/pipelines.json",
        *IMAGE,
    ]
    assert said.err == "wrote a key to .env: keep that file out of version control\n"
    assert all((space / path).is_file() for path in said.out.splitlines())
    assert "model: echo" in (space / "deploy/prometheus/rules.yml").read_text()


def test_a_second_run_has_nothing_to_do(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(space, "stack")
    key = (space / ".env").read_text()
    capsys.readouterr()
    assert run(space, "stack") == 0
    assert capsys.readouterr() == ("all files are up to date\n", "")
    assert (space / ".env").read_text() == key


@pytest.mark.parametrize("command", ["stack", "image", "k8s"])
def test_a_check_writes_nothing_and_tells_what_is_stale(
    space: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    before = sorted(space.rglob("*"))
    assert run(space, command, "--check") == 1
    said = capsys.readouterr()
    assert all(line.endswith(": missing") for line in said.out.splitlines())
    assert f"hint: run `mmctl {command}` and commit what it writes" in said.err
    assert sorted(space.rglob("*")) == before
    run(space, command)
    capsys.readouterr()
    assert run(space, command, "--check") == 0
    assert capsys.readouterr().out == "all files are up to date\n"


def test_a_new_model_makes_rules_and_probes_stale(
    space: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(space, "stack")
    run(space, "k8s")
    other = space / "model_repository" / "other"
    other.mkdir()
    (other / "config.pbtxt").write_text(CONFIG)
    capsys.readouterr()
    assert run(space, "stack", "--check", "--json") == 1
    stale = ["deploy/prometheus/rules.yml: differs from what would be generated"]
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "stale": stale}
    assert run(space, "k8s", "--check") == 1
    assert "deploy/kubernetes/deployment.yaml: differs" in capsys.readouterr().out


def test_the_image_is_of_the_release_of_its_target(
    space: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(space, "image") == 0
    assert capsys.readouterr().out.splitlines() == IMAGE
    assert "TRITON_RELEASE=24.10\n" in (space / IMAGE[0]).read_text()
    assert run(space, "image", "--target", "cluster", "--json") == 0
    answer = {"schema": 1, "files": IMAGE, "written": [IMAGE[0]]}
    assert json.loads(capsys.readouterr().out) == answer
    assert "TRITON_RELEASE=25.01\n" in (space / IMAGE[0]).read_text()


def test_manifests_take_gpus_and_release_from_the_target(space: Path) -> None:
    assert run(space, "k8s", "echo", "--target", "cluster") == 0
    deployment = (space / "deploy/kubernetes/deployment.yaml").read_text()
    assert "image: triton-with-steps:25.01" in deployment
    assert "nvidia.com/gpu: '1'" in deployment
    assert "/v2/models/echo/ready" in deployment


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("stack", "--target", "clutser"),
            "error: `clutser` is not a target of mmctl.yaml\n\nhint: did you mean `cluster`?\n",
        ),
        (("stack", "ehco"), "error: `ehco` is neither a model nor a pipeline of this workspace\n"),
        (("k8s", "--repository", "/models"), "error: `/models` is not a repository that a pod can"),
        (("k8s", "--min", "3", "--max", "2"), "error: from 3 to 2 pods is no range\n"),
    ],
)
def test_wrong_words_are_refused_and_nothing_is_written(
    space: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    before = sorted(space.rglob("*"))
    assert run(space, *words) == 2
    assert capsys.readouterr().err.startswith(said)
    assert sorted(space.rglob("*")) == before


def test_an_empty_workspace_has_nothing_to_put_into_a_pod(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(workspace, "k8s") == 2
    assert "there is nothing to serve" in capsys.readouterr().err


def test_a_compose_file_of_the_users_own_stays(
    space: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (space / "docker-compose.yml").write_text("services: {}\n")
    assert run(space, "stack") == 2
    assert "docker-compose.yml: was not written by mmctl" in capsys.readouterr().err
    assert not (space / "deploy").exists()
    assert not (space / ".env").exists()
