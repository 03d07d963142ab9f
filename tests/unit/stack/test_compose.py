"""docker-compose.yml: what it starts, how it is reached, and what it keeps private."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmctl.server.docker import INSIDE, MODELS, SHM_SIZE
from mmctl.server.flags import Options, triton_flags
from mmctl.stack.compose import KEY, render_compose, with_private
from mmctl.stack.inventory import Inventory

SCHEMA = Path(__file__).parent / "compose-spec.json"
"""The published schema of Compose, as Docker Compose 2.40.3 has it (compose-spec.LICENSE.txt)."""


@pytest.fixture
def compose(inventory: Inventory) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(render_compose(inventory))
    return loaded


@pytest.fixture
def services(compose: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = compose["services"]
    return found


def test_it_fits_the_published_schema(compose: dict[str, Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    judge = jsonschema.Draft7Validator(json.loads(SCHEMA.read_text()))
    judge.validate(compose)
    compose["services"]["redis"]["prots"] = ["6379"]
    with pytest.raises(jsonschema.ValidationError, match="prots"):
        judge.validate(compose)


def test_triton_runs_on_cpus_by_one_profile_and_on_gpus_by_another(
    services: dict[str, Any],
) -> None:
    traces = "http://jaeger:4318/v1/traces"
    on_cpu = Options(otlp_url=traces, key=KEY)
    on_gpu = Options(otlp_url=traces, key=KEY, gpus=True, config_name="gpu")
    for name, profile, options in (
        ("triton", "cpu", on_cpu),
        ("triton-gpu", "gpu", on_gpu),
    ):
        triton = services[name]
        assert triton["profiles"] == [profile]
        assert triton["command"] == ["tritonserver", *triton_flags(MODELS, INSIDE, options)]
        assert triton["shm_size"] == SHM_SIZE
        assert [volume.rpartition(":")[2] for volume in triton["volumes"]] == ["ro"]
    devices = services["triton-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert [device["capabilities"] for device in devices] == [["gpu"]]
    assert "deploy" not in services["triton"]


def test_prometheus_finds_both_by_one_name(services: dict[str, Any]) -> None:
    assert services["triton-gpu"]["networks"]["default"]["aliases"] == ["triton"]


def test_everything_is_on_loopback_ports_that_can_be_moved(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service["ports"]]
    assert ports
    for port in ports:
        assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z_]+_PORT:-(\d+)\}:\1", port), port


def test_every_image_is_pinned(services: dict[str, Any]) -> None:
    images = [service["image"] for service in services.values() if "image" in service]
    assert len(images) == 4
    assert all(re.search(r":v?\d+\.\d+", image) for image in images)


def test_no_release_of_triton_is_written_in_it(services: dict[str, Any]) -> None:
    """It is in the Dockerfile, which takes another from the variable."""
    assert not re.search(r"\d\d\.\d\d", json.dumps(services["triton"]["command"]))
    assert services["triton"]["build"] == {"context": "deploy/triton", "args": ["TRITON_RELEASE"]}


def test_nobody_can_change_dashboards_and_whoever_is_here_can_look(
    services: dict[str, Any],
) -> None:
    settings = services["grafana"]["environment"]
    assert settings["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert settings["GF_AUTH_BASIC_ENABLED"] == "false"
    assert settings["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("", "TRITON_KEY=k\nCOMPOSE_PROFILES=cpu\n", id="nothing yet"),
        pytest.param(
            "A=1", "A=1\nTRITON_KEY=k\nCOMPOSE_PROFILES=cpu\n", id="other variables, no last line"
        ),
        pytest.param(
            "export TRITON_KEY=old\n",
            "export TRITON_KEY=old\nCOMPOSE_PROFILES=cpu\n",
            id="a key is kept",
        ),
        pytest.param("COMPOSE_PROFILES=gpu\nTRITON_KEY=\n", None, id="everything is there"),
        pytest.param(
            "# TRITON_KEY=x\nCOMPOSE_PROFILES=gpu\n",
            "# TRITON_KEY=x\nCOMPOSE_PROFILES=gpu\nTRITON_KEY=k\n",
            id="a comment is none",
        ),
    ],
)
def test_private_variables_are_added_where_they_miss(before: str, after: str | None) -> None:
    assert with_private(before, "k") == (before if after is None else after)
