"""The generated files of a workspace: what they should be, written or compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from mmctl.errors import InputError
from mmctl.files import read_text, render_json, write_text
from mmctl.server.access import new_key
from mmctl.server.composed import COMPOSE, PRIVATE
from mmctl.stack.compose import IMAGE_FOLDER, render_compose, with_private
from mmctl.stack.dashboards import DASHBOARDS
from mmctl.stack.image import render_image
from mmctl.stack.inventory import Inventory
from mmctl.stack.kubernetes import Cluster, render_kubernetes
from mmctl.stack.panels import dashboard_json
from mmctl.stack.prometheus import RULES, render_prometheus, render_rules
from mmctl.stack.yamltext import render_yaml
from mmctl.triton.releases import Release
from mmctl.workspace import Workspace

Texts = Mapping[str, str]
"""Texts of files by path in the workspace."""

SIGN = "Written by `mmctl "
"""What every generated file says of itself: others are nobody's to overwrite."""

DEPLOY = "deploy"
PROMETHEUS, GRAFANA, KUBERNETES = (
    f"{DEPLOY}/prometheus",
    f"{DEPLOY}/grafana",
    f"{DEPLOY}/kubernetes",
)

SOURCES = {
    "apiVersion": 1,
    "datasources": [
        {
            "name": "Prometheus",
            "uid": "prometheus",
            "type": "prometheus",
            "url": "http://prometheus:9090",
            "isDefault": True,
        },
        {"name": "Jaeger", "uid": "jaeger", "type": "jaeger", "url": "http://jaeger:16686"},
    ],
}
PROVIDERS = {
    "apiVersion": 1,
    "providers": [
        {"name": "mmctl", "type": "file", "options": {"path": "/etc/grafana/dashboards"}}
    ],
}


def stack_files(inventory: Inventory, release: Release, requirements: Texts) -> dict[str, str]:
    """docker-compose.yml and all that it mounts and builds."""
    written = f"{SIGN}stack`."
    return {
        COMPOSE: render_compose(inventory),
        f"{PROMETHEUS}/prometheus.yml": render_prometheus(["triton:8002"]),
        f"{PROMETHEUS}/{RULES}": render_rules(inventory),
        f"{GRAFANA}/provisioning/datasources/sources.yaml": render_yaml(written, SOURCES),
        f"{GRAFANA}/provisioning/dashboards/folder.yaml": render_yaml(written, PROVIDERS),
        **{
            f"{GRAFANA}/dashboards/{dashboard.name}.json": render_json(dashboard_json(dashboard))
            for dashboard in DASHBOARDS
        },
        **image_files(release, requirements),
    }


def image_files(release: Release, requirements: Texts) -> dict[str, str]:
    texts = render_image(release, requirements)
    return {f"{IMAGE_FOLDER}/{path}": text for path, text in texts.items()}


def kubernetes_files(cluster: Cluster, models: Iterable[str]) -> dict[str, str]:
    texts = render_kubernetes(cluster, tuple(models))
    return {f"{KUBERNETES}/{path}": text for path, text in texts.items()}


def write_files(workspace: Workspace, texts: Texts) -> list[str]:
    """The paths that were not up to date; what was written once and is needless now is removed.

    Raises InputError, before it writes, for a file that is not ours.
    """
    for path in texts:
        _refuse_others(workspace.root / path, path)
    needless = _needless(workspace, texts)
    for path in needless:
        (workspace.root / path).unlink()
    written = [path for path, text in texts.items() if write_text(workspace.root / path, text)]
    return [*written, *needless]


def find_stale(workspace: Workspace, texts: Texts) -> list[str]:
    """One line for each file that is not what would be written."""
    found = []
    for path, text in texts.items():
        file = workspace.root / path
        if not file.is_file():
            found.append(f"{path}: missing")
        elif file.read_text(errors="replace") != text:
            found.append(f"{path}: differs from what would be generated")
    return [*found, *(f"{path}: would not be generated" for path in _needless(workspace, texts))]


def write_private(workspace: Workspace) -> bool:
    """.env with a key, for its owner alone. True if something was missing in it."""
    path = workspace.root / PRIVATE
    before = read_text(path) if path.exists() else ""
    after = with_private(before, new_key())
    return after != before and write_text(path, after, mode=0o600)


def _needless(workspace: Workspace, texts: Texts) -> list[str]:
    """Files of ours that lie beside `texts` in the folder of generated files, and are none."""
    folders = {(workspace.root / path).parent for path in texts if path.startswith(DEPLOY)}
    found = [
        workspace.shown(file)
        for folder in sorted(folders)
        for file in sorted(folder.glob("*"))
        if file.is_file() and _is_ours(file)
    ]
    return [path for path in found if path not in texts]


def _is_ours(file: Path) -> bool:
    return SIGN in file.read_text(errors="replace")


def _refuse_others(path: Path, shown: str) -> None:
    if path.is_file() and not _is_ours(path):
        raise InputError(
            f"{shown}: was not written by mmctl, so it is not overwritten",
            hint="rename it, or remove it, and run the command again",
        )
