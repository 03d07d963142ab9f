"""The generated files in a workspace: written, compared, and never taken from others."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mmctl.errors import InputError
from mmctl.stack.files import (
    SIGN,
    find_stale,
    image_files,
    kubernetes_files,
    stack_files,
    write_files,
    write_private,
)
from mmctl.stack.inventory import Inventory
from mmctl.stack.kubernetes import Cluster
from mmctl.triton.releases import parse_release
from mmctl.workspace import Workspace, read_workspace

RELEASE = parse_release("24.10")


@pytest.fixture
def bare(workspace: Path) -> Workspace:
    return read_workspace(workspace)


@pytest.fixture
def texts(inventory: Inventory) -> dict[str, str]:
    return stack_files(inventory, RELEASE, {"flow": "six\n"})


def test_every_file_says_who_wrote_it(texts: dict[str, str]) -> None:
    texts.update(kubernetes_files(Cluster("image"), ["net"]))
    assert [path for path, text in texts.items() if SIGN not in text] == []


def test_what_compose_mounts_and_builds_is_among_them(texts: dict[str, str]) -> None:
    services = yaml.safe_load(texts["docker-compose.yml"])["services"]
    sources = [
        volume.partition(":")[0].removeprefix("./")
        for service in services.values()
        for volume in service.get("volumes", [])
        if volume.startswith("./deploy")
    ]
    sources += [service["build"]["context"] for service in services.values() if "build" in service]
    assert set(sources) == {
        "deploy/prometheus",
        "deploy/grafana/provisioning",
        "deploy/grafana/dashboards",
        "deploy/triton",
    }
    for source in sources:
        assert any(path.startswith(f"{source}/") for path in texts)


def test_grafana_is_provisioned_with_the_source_that_its_panels_name(
    texts: dict[str, str],
) -> None:
    found = yaml.safe_load(texts["deploy/grafana/provisioning/datasources/sources.yaml"])
    urls = {source["uid"]: source["url"] for source in found["datasources"]}
    assert urls == {"prometheus": "http://prometheus:9090", "jaeger": "http://jaeger:16686"}
    assert '"uid": "prometheus"' in texts["deploy/grafana/dashboards/triton.json"]


def test_the_release_is_pinned_in_one_place(texts: dict[str, str]) -> None:
    places = [path for path, text in texts.items() if "24.10" in text]
    assert places == ["deploy/triton/Dockerfile"]
    assert texts[places[0]].count("24.10") == 1


def test_written_files_are_up_to_date_and_are_not_written_again(
    bare: Workspace, texts: dict[str, str]
) -> None:
    assert find_stale(bare, texts) == [f"{path}: missing" for path in texts]
    assert write_files(bare, texts) == list(texts)
    assert find_stale(bare, texts) == []
    assert write_files(bare, texts) == []


def test_a_changed_file_and_one_that_is_needless_now_are_stale(
    bare: Workspace, texts: dict[str, str], inventory: Inventory
) -> None:
    write_files(bare, texts)
    (bare.root / "deploy/prometheus/rules.yml").write_text(f"# {SIGN}stack`\n")
    (bare.root / "deploy/prometheus/mine.yml").write_text("groups: []\n")
    fewer = stack_files(inventory, RELEASE, {})
    needless = "deploy/triton/requirements/flow.txt"
    assert set(find_stale(bare, fewer)) == {
        "deploy/prometheus/rules.yml: differs from what would be generated",
        "deploy/triton/Dockerfile: differs from what would be generated",
        f"{needless}: would not be generated",
    }
    write_files(bare, fewer)
    assert not (bare.root / needless).exists()
    assert (bare.root / "deploy/prometheus/mine.yml").exists(), "it is the user's own"
    assert find_stale(bare, fewer) == []


def test_a_file_of_the_users_own_is_never_overwritten_nor_are_others_beside_it_written(
    bare: Workspace, texts: dict[str, str]
) -> None:
    (bare.root / "deploy" / "triton").mkdir(parents=True)
    (bare.root / "deploy" / "triton" / "Dockerfile").write_text("FROM scratch\n")
    with pytest.raises(InputError, match="deploy/triton/Dockerfile: was not written by mmctl"):
        write_files(bare, texts)
    assert not (bare.root / "docker-compose.yml").exists()


def test_the_image_alone_leaves_the_rest_of_the_stack(
    bare: Workspace, texts: dict[str, str]
) -> None:
    write_files(bare, texts)
    write_files(bare, image_files(RELEASE, {"flow": "six\n"}))
    write_files(bare, kubernetes_files(Cluster("image"), ["net"]))
    assert find_stale(bare, texts) == []


def test_private_variables_are_for_their_owner_alone(bare: Workspace) -> None:
    env = bare.root / ".env"
    assert write_private(bare)
    assert env.stat().st_mode & 0o777 == 0o600
    before = env.read_text()
    assert not write_private(bare)
    assert env.read_text() == before
