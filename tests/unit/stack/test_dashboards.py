"""The dashboards, as Grafana reads them."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest

from mmctl.files import render_json
from mmctl.stack.dashboards import DASHBOARDS
from mmctl.stack.panels import Choice, Dashboard, Panel, Row, dashboard_json

EVERY = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)

SHOWN = {
    "success": "nv_inference_request_success",
    "errors by reason": "model, reason",
    "queue": "nv_inference_queue_duration_us",
    "input": "nv_inference_compute_input_duration_us",
    "infer": "nv_inference_compute_infer_duration_us",
    "output": "nv_inference_compute_output_duration_us",
    "mean batch": "nv_inference_exec_count",
    "waiting requests": "nv_inference_pending_request_count",
    "cache hits": "nv_cache_num_hits_per_model",
    "GPU use": "nv_gpu_utilization",
    "GPU memory": "nv_gpu_memory_used_bytes",
    "power draw": "nv_gpu_power_usage",
    "slow large batches": "> 16 and",
    "errors that are answers": "mmctl_request_failure",
    "fallbacks of a node": 'mmctl_node_fallback{pipeline="$pipeline"}',
    "kept answers of a node": 'mmctl_node_cache_hits{pipeline="$pipeline"}',
    "nodes of a pipeline": 'mmctl_node{pipeline="$pipeline"}',
}


def expressions(dashboard: Dashboard) -> list[str]:
    return [query for panel in dashboard.panels for query in panel.queries.values()]


@pytest.mark.parametrize("text", SHOWN.values(), ids=SHOWN)
def test_what_operators_ask_for_is_shown(text: str) -> None:
    assert any(text in query for dashboard in DASHBOARDS for query in expressions(dashboard))


@EVERY
def test_grafanas_own_types_read_it_and_lose_nothing(dashboard: Dashboard) -> None:
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    from grafana_foundation_sdk.cog import plugins
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    plugins.register_default_plugins()
    written = json.loads(render_json(dashboard_json(dashboard)))
    read = json.loads(JSONEncoder().encode(models.Dashboard.from_json(written)))
    assert lost(written, read) == []


def lost(written: Any, read: Any, at: str = "") -> list[str]:
    """Places whose value did not come back."""
    match written, read:
        case dict(), dict():
            return [p for key in written for p in lost(written[key], read.get(key), f"{at}.{key}")]
        case list(), list() if len(written) == len(read):
            pairs = enumerate(zip(written, read, strict=True))
            return [place for number, pair in pairs for place in lost(*pair, f"{at}[{number}]")]
        case _:
            return [] if written == read else [at]


@EVERY
def test_variables_of_queries_are_offered_or_grafanas_own(dashboard: Dashboard) -> None:
    used = set(re.findall(r"\$(\w+)", " ".join(expressions(dashboard))))
    assert used <= {choice.name for choice in dashboard.choices} | {"__rate_interval"}
    assert {choice.name for choice in dashboard.choices} <= used


@EVERY
def test_panels_have_numbers_of_their_own_and_cover_no_other(dashboard: Dashboard) -> None:
    panels = dashboard_json(dashboard)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x, y in itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        )
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_counts_of_waiting_requests_leave_ensembles_out() -> None:
    waiting = [
        query
        for dashboard in DASHBOARDS
        for query in expressions(dashboard)
        if "nv_inference_pending_request_count" in query
    ]
    assert len(waiting) == 2
    assert all('unless on (model) mmctl_model{kind="ensemble"}' in query for query in waiting)


def test_no_query_tells_versions_or_gpus_of_a_model_apart() -> None:
    """An ensemble is always called version 1, and instances on GPUs have a label more."""
    for query in itertools.chain.from_iterable(map(expressions, DASHBOARDS)):
        assert "version" not in query
        for metric in re.findall(r"nv_inference_\w+", query):
            assert re.search(rf"by \((?:instance, )?model(?:, reason)?\) \(\w*\(?{metric}", query)


def test_a_panel_becomes_what_grafana_draws() -> None:
    one = Panel("Rate", {"{{model}}": "rate(a[5m])", "all": "b"}, "reqps", "Per second.", width=12)
    other = Panel("Now", {"": "c"}, kind="table", width=16)
    made = dashboard_json(Dashboard("d", "D", "", (Choice("m", "label_values(a, m)"),), (
        Row("First", (one, other)),
    )))  # fmt: skip
    row, first, second = made["panels"]
    assert (row["type"], row["title"], row["gridPos"]["w"]) == ("row", "First", 24)
    assert first["gridPos"] == {"x": 0, "y": 1, "w": 12, "h": 8}
    assert second["gridPos"] == {"x": 0, "y": 9, "w": 16, "h": 8}, "it did not fit beside the first"
    assert [target["refId"] for target in first["targets"]] == ["A", "B"]
    assert [target["expr"] for target in first["targets"]] == ["rate(a[5m])", "b"]
    assert first["fieldConfig"]["defaults"]["unit"] == "reqps"
    assert (second["targets"][0]["instant"], second["targets"][0]["format"]) == (True, "table")
    assert made["uid"] == "mmctl-d"
    [choice] = made["templating"]["list"]
    assert (choice["query"], choice["multi"]) == ("label_values(a, m)", False)
