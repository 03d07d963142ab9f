"""A dashboard -> the JSON that Grafana is provisioned with. Pure."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

COLUMNS = 24
HEIGHTS = {"timeseries": 8, "table": 8, "stat": 4}
SOURCE = {"type": "prometheus", "uid": "prometheus"}
SCHEMA_VERSION = 39
"""Of Grafana 11; later ones convert it when they read it."""


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries` maps what a line is called (`{{label}}` is filled in) to its PromQL. `unit` is one
    of Grafana's. `width` is in columns, of 24.
    """

    title: str
    queries: Mapping[str, str]
    unit: str = "short"
    about: str = ""
    kind: Literal["timeseries", "table", "stat"] = "timeseries"
    stacked: bool = False
    width: int = 8


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading, from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A list to choose from above a dashboard, `$name` in its queries. `several` may be taken."""

    name: str
    query: str
    several: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """`name` is part of its address and the name of its file."""

    name: str
    title: str
    about: str
    choices: tuple[Choice, ...]
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(panel for row in self.rows for panel in row.panels)


def dashboard_json(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"mmctl-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["mmctl", "triton"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_choice(choice) for choice in dashboard.choices]},
        "panels": list(_placed(dashboard.rows)),
    }


def _choice(choice: Choice) -> dict[str, Any]:
    all_of_them = {"allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return {
        "name": choice.name,
        "type": "query",
        "datasource": SOURCE,
        "query": choice.query,
        "refresh": 2,
        "sort": 1,
        "multi": choice.several,
        "includeAll": choice.several,
        **(all_of_them if choice.several else {}),
    }


def _placed(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Panels fill lines of 24 columns from the left; each heading begins a line."""
    numbers = itertools.count(1)
    y = 0
    for row in rows:
        place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        yield {"id": next(numbers), "type": "row", "title": row.title, "gridPos": place}
        x, y, height = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, height = 0, y + height, 0
            height = max(height, HEIGHTS[panel.kind])
            place = {"x": x, "y": y, "w": panel.width, "h": HEIGHTS[panel.kind]}
            yield {"id": next(numbers), "gridPos": place, **_panel(panel)}
            x += panel.width
        y += height


def _panel(panel: Panel) -> dict[str, Any]:
    stacking = {"mode": "normal" if panel.stacked else "none"}
    custom = {"fillOpacity": 30 if panel.stacked else 5, "stacking": stacking}
    lines = panel.kind == "timeseries"
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "targets": [_target(panel, *query) for query in _lettered(panel)],
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, **({"custom": custom} if lines else {})},
            "overrides": [],
        },
        "options": _options(panel),
        **({"transformations": [_without_time()]} if panel.kind == "table" else {}),
    }


def _lettered(panel: Panel) -> Iterator[tuple[str, str, str]]:
    """Grafana calls the queries of a panel A, B, C."""
    for number, (legend, expression) in enumerate(panel.queries.items()):
        yield string.ascii_uppercase[number], legend, expression


def _target(panel: Panel, letter: str, legend: str, expression: str) -> dict[str, Any]:
    now = panel.kind != "timeseries"
    return {
        "refId": letter,
        "datasource": SOURCE,
        "expr": expression,
        "legendFormat": legend,
        "instant": now,
        "range": not now,
        "format": "table" if panel.kind == "table" else "time_series",
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        legend = {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
    return {"showHeader": True}


def _without_time() -> dict[str, Any]:
    return {"id": "organize", "options": {"excludeByName": {"Time": True, "__name__": True}}}
