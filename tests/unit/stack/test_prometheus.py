"""What Prometheus is told; promtool, where there is one, judges it and plays the alerts through."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from monitoring import promtool

from mmctl.stack.inventory import Inventory
from mmctl.stack.prometheus import alerts, render_prometheus, render_rules

FAILED = "nv_inference_request_failure"
ANSWERED = "nv_inference_request_success"
LOADED = "nv_inference_count"
WAITING = "nv_inference_pending_request_count"


def test_rules_name_the_models_and_nodes_of_the_workspace(inventory: Inventory) -> None:
    first = yaml.safe_load(render_rules(inventory))["groups"][0]
    assert [(rule["record"], rule["expr"], rule["labels"]) for rule in first["rules"]] == [
        ("mmctl_model", "vector(1)", {"model": "net", "kind": "model", "entry": "false"}),
        ("mmctl_model", "vector(1)", {"model": "flow__cut", "kind": "step", "entry": "false"}),
        ("mmctl_model", "vector(1)", {"model": "flow", "kind": "ensemble", "entry": "true"}),
        ("mmctl_model", "vector(1)", {"model": "talk", "kind": "bls", "entry": "true"}),
        ("mmctl_node", "vector(1)", {"pipeline": "flow", "node": "cut", "model": "flow__cut"}),
        ("mmctl_node", "vector(1)", {"pipeline": "flow", "node": "look", "model": "net"}),
    ]


def test_what_is_scraped() -> None:
    text = render_prometheus(["triton:8002", "other:8002"])
    assert text.startswith("# Written by `mmctl stack`")
    [job] = yaml.safe_load(text)["scrape_configs"]
    assert job["job_name"] == "triton"
    assert job["static_configs"] == [{"targets": ["triton:8002", "other:8002"]}]


def test_promtool_finds_nothing_wrong(tmp_path: Path, inventory: Inventory) -> None:
    write(tmp_path, inventory)
    said = promtool("check", "config", "prometheus.yml", cwd=tmp_path)
    assert "1 rule files found" in said
    said = promtool("check", "rules", "rules.yml", cwd=tmp_path)
    assert f"{6 + 4 + len(alerts())} rules found" in said


def test_an_empty_workspace_has_rules_as_well(tmp_path: Path) -> None:
    write(tmp_path, Inventory((), ()))
    promtool("check", "rules", "rules.yml", cwd=tmp_path)


def write(folder: Path, inventory: Inventory) -> None:
    (folder / "rules.yml").write_text(render_rules(inventory))
    (folder / "prometheus.yml").write_text(render_prometheus(["h:1"]))


UP = {'up{job="triton", instance="a"}': "1+0x800"}
ALL_LOADED = {
    f'{LOADED}{{model="{model}", version="1", instance="a"}}': "0+60x800"
    for model in ("net", "flow__cut", "flow", "talk")
}
HEALTHY = {**UP, **ALL_LOADED}


def series(metric: str, model: str, values: str, **labels: str) -> dict[str, str]:
    words = {"model": model, "version": "1", "instance": "a", **labels}
    text = ", ".join(f'{name}="{value}"' for name, value in words.items())
    return {f"{metric}{{{text}}}": values}


def failing(
    model: str, failed: str, reason: str = "BACKEND", answered: str = "0+100x800"
) -> dict[str, str]:
    answers = series(ANSWERED, model, answered)
    return {**answers, **series(FAILED, model, failed, reason=reason)}


def batches(model: str, rows: int, infer_ms: int) -> dict[str, str]:
    """60 executions a minute of `rows` requests each, each of which waits the whole time."""
    return {
        **series(LOADED, model, f"0+{60 * rows}x800"),
        **series("nv_inference_exec_count", model, "0+60x800"),
        **series(ANSWERED, model, f"0+{60 * rows}x800"),
        **series(
            "nv_inference_compute_infer_duration_us", model, f"0+{60 * rows * infer_ms * 1000}x800"
        ),
    }


def cached(hits: str, misses: str = "0+50x800") -> dict[str, str]:
    return {
        **series("nv_cache_num_misses_per_model", "net", misses),
        **series("nv_cache_num_hits_per_model", "net", hits),
    }


def refused(failed: str) -> dict[str, str]:
    """A pipeline in the bls form answers with errors, which Triton counts as answered."""
    told = series("mmctl_request_failure", "talk", failed, reason="timeout")
    quiet = series("mmctl_request_failure", "talk", "0x800", reason="error")
    return {**failing("talk", "0x800"), **told, **quiet}


def of_node(metric: str, values: str) -> dict[str, str]:
    return {f'{metric}{{pipeline="talk", node="look", instance="a"}}': values}


def fallbacks(values: str) -> dict[str, str]:
    return {**series(ANSWERED, "talk", "0+100x800"), **of_node("mmctl_node_fallback", values)}


def kept(hits: str, misses: str = "0+50x800") -> dict[str, str]:
    found = of_node("mmctl_node_cache_hits", hits)
    return {**found, **of_node("mmctl_node_cache_misses", misses)}


FAST, SLOW = "ErrorBudgetBurnsFast", "ErrorBudgetBurns"


@pytest.mark.parametrize(
    ("seen", "raised"),
    [
        pytest.param({}, {}, id="all is well"),
        pytest.param(
            {'up{job="triton", instance="a"}': "1x170 0+0x20"}, {"TritonDown": None}, id="down"
        ),
        pytest.param(
            failing("flow", "0+5x800"), {FAST: "flow", SLOW: "flow"}, id="5 % of a pipeline fails"
        ),
        pytest.param(failing("talk", "0+2x800"), {FAST: "talk", SLOW: "talk"}, id="2 % of another"),
        pytest.param(failing("talk", "0x60 0+1x800"), {SLOW: "talk"}, id="1 % fails for hours"),
        pytest.param(
            failing("flow", "0+2x800", "OTHER"), {SLOW: "flow"}, id="an ensemble counts twice"
        ),
        pytest.param(
            failing("flow", "0+50x60 3000+0x800"), {}, id="it is over, if it was in the last hours"
        ),
        pytest.param(failing("net", "0+5x800"), {}, id="a failure inside is for policies"),
        pytest.param(failing("flow", "0+5x800", "CANCELED"), {}, id="clients that left"),
        pytest.param(refused("0+5x800"), {FAST: "talk", SLOW: "talk"}, id="5 % are refused"),
        pytest.param(refused("0+1x800"), {SLOW: "talk"}, id="1 % are refused"),
        pytest.param(refused("0x800"), {}, id="none is refused"),
        pytest.param(fallbacks("0+6x800"), {"NodeFallsBack": "look"}, id="6 % without a node"),
        pytest.param(fallbacks("0+4x800"), {}, id="4 % without a node"),
        pytest.param(kept("0x800"), {"NodeCacheWithoutHits": "look"}, id="answers kept in vain"),
        pytest.param(kept("0+1x800"), {}, id="kept answers that serve at times"),
        pytest.param(kept("0x800", "0+5x800"), {}, id="few kept answers tell nothing"),
        pytest.param(
            failing("talk", "0x150 0+0.3x30", answered="0+1x800"), {}, id="a handful of failures"
        ),
        pytest.param(
            failing("talk", "0x150 0+1x30", answered="0+1x800"),
            {FAST: "talk", SLOW: "talk"},
            id="half of little traffic fails",
        ),
        pytest.param(series(WAITING, "net", "0+3x800"), {"QueueGrows": "net"}, id="a queue grows"),
        pytest.param(series(WAITING, "net", "20x800"), {}, id="a long queue that stays"),
        pytest.param(series(WAITING, "net", "0+0.03x800"), {}, id="a short queue"),
        pytest.param(
            series(WAITING, "net", " ".join(f"0 {3 * turn}" for turn in range(120))),
            {},
            id="a queue that empties again and again",
        ),
        pytest.param(series(WAITING, "flow", "0+3x800"), {}, id="an ensemble has no queue"),
        pytest.param(
            {'nv_inference_count{model="net", version="1", instance="a"}': "0x100 stale"},
            {"ModelNotLoaded": "net"},
            id="a model was unloaded",
        ),
        pytest.param(
            {'up{job="triton", instance="b"}': "1x800"},
            {"ModelNotLoaded": "flow"},
            id="one of two servers has nothing",
        ),
        pytest.param(
            series(LOADED, "net__next", "0x800"), {}, id="a model more than the repository has"
        ),
        pytest.param(cached("0x800"), {"CacheWithoutHits": "net"}, id="a cache in vain"),
        pytest.param(cached("0+1x800"), {}, id="a cache that answers at times"),
        pytest.param(cached("0x800", "0+5x800"), {}, id="few look-ups tell nothing"),
        pytest.param(batches("net", 24, 300), {"SlowLargeBatches": "net"}, id="large and slow"),
        pytest.param(batches("net", 24, 100), {}, id="large and quick"),
        pytest.param(batches("net", 8, 300), {}, id="small and slow"),
    ],
)
def test_alerts_are_raised_for_what_they_say_and_for_nothing_else(
    tmp_path: Path, inventory: Inventory, seen: Mapping[str, str], raised: Mapping[str, str]
) -> None:
    """`seen` joins what a healthy server shows, a value a minute; `raised` maps alerts to models.

    Three hours in, whole minutes apart.
    """
    write(tmp_path, inventory)
    told = yaml.safe_load((tmp_path / "rules.yml").read_text())
    told["groups"] = [
        {**group, "rules": [without_words(rule) for rule in group["rules"]]}
        for group in told["groups"]
    ]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(told))
    values = {**HEALTHY, **seen}
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": s, "values": v} for s, v in values.items()],
                "alert_rule_test": [
                    {"eval_time": "180m", "alertname": alert.name, "exp_alerts": expected}
                    for alert in alerts()
                    for expected in [expected_of(alert.name, alert.severity, raised)]
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    promtool("test", "rules", "test.yml", cwd=tmp_path)


def without_words(rule: dict[str, Any]) -> dict[str, Any]:
    """promtool wants every word of an annotation: those have a test of their own."""
    return {key: value for key, value in rule.items() if key != "annotations"}


def expected_of(alert: str, severity: str, raised: Mapping[str, str]) -> list[dict[str, Any]]:
    if alert not in raised:
        return []
    if alert == "TritonDown":
        return [{"exp_labels": {"severity": severity, "job": "triton", "instance": "a"}}]
    if alert.startswith("Node"):
        of = {"pipeline": "talk", "node": raised[alert]}
        return [{"exp_labels": {"severity": severity, **of}}]
    models = [raised[alert]]
    if alert == "ModelNotLoaded" and raised[alert] == "flow":
        models = ["flow", "flow__cut", "net", "talk"]
    return [{"exp_labels": {"severity": severity, "model": model}} for model in models]


def test_words_of_an_alert_name_the_model_and_what_to_do(
    tmp_path: Path, inventory: Inventory
) -> None:
    write(tmp_path, inventory)
    told = {
        "summary": "net is in the repository and loaded on 0 servers only",
        "todo": "read the log for why it does not load; `mmctl check` often knows",
    }
    expected = {
        "exp_labels": {"severity": "critical", "model": "net"}, "exp_annotations": told,
    }  # fmt: skip
    series = {name: values for name, values in HEALTHY.items() if 'model="net"' not in name}
    test = {
        "rule_files": ["rules.yml"],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": s, "values": v} for s, v in series.items()],
                "alert_rule_test": [
                    {"eval_time": "30m", "alertname": "ModelNotLoaded", "exp_alerts": [expected]}
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    promtool("test", "rules", "test.yml", cwd=tmp_path)
