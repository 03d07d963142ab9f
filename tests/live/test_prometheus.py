"""Prometheus scrapes a real Triton: what dashboards and alerts ask for is there, and true."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest
from clocks import eventually
from monitoring import Prometheus, metrics_in, promtool, running
from pipelines import signature, source
from repositories import write_pipelines, write_python_model
from servers import Serve

from mmctl import Client, InferenceError
from mmctl.files import write_text
from mmctl.server.process import EmbeddedTriton
from mmctl.stack.dashboards import DASHBOARDS
from mmctl.stack.inventory import Inventory, ServedModel, ServedNode
from mmctl.stack.kubernetes import adapter_values, probe_command
from mmctl.stack.panels import Panel
from mmctl.stack.prometheus import alerts, render_prometheus, render_rules
from mmctl.stack.queries import REFUSED, error_ratio

pytestmark = [pytest.mark.live, pytest.mark.alone]

TENSORS = """max_batch_size: 4
input [{name: "x", data_type: TYPE_FP32, dims: [2]}]
output [{name: "y", data_type: TYPE_FP32, dims: [2]}]
"""
BATCHED = f"{TENSORS} dynamic_batching {{}}"
CACHED = f"{BATCHED} response_cache {{enable: true}}"

# Negative numbers are refused.
ECHO = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb.get_input_tensor_by_name(r, "x").as_numpy()) for r in requests]

    def answer(self, x):
        if (x < 0).any():
            return pb.InferenceResponse(error=pb.TritonError("below zero"))
        return pb.InferenceResponse([pb.Tensor("y", x)])
"""

PAIR = f"""name: "pair" platform: "ensemble" {TENSORS}
ensemble_scheduling {{step [
  {{model_name: "echo" model_version: -1
    input_map {{key: "x" value: "x"}} output_map {{key: "y" value: "middle"}}}},
  {{model_name: "cached" model_version: -1
    input_map {{key: "x" value: "middle"}} output_map {{key: "y" value: "y"}}}}]}}
"""

TALK = source(
    """
    pipeline: talk
    inputs: {x: "fp32[2]", z: "fp32[2]"}
    nodes:
      hard: {model: other, inputs: {x: x}, cache: {ttl_s: 600}}
      soft: {model: other, inputs: {x: z}, on_error: {y: 0}}
    outputs: {y: hard.y, w: soft.y}
    """,
    name="talk",
)
ALONE = source(
    """
    pipeline: alone
    inputs: {x: "fp32[2]"}
    nodes:
      look: {step: look, inputs: {x: x}, outputs: {y: "fp32[2]"}}
    outputs: {y: look.y}
    """,
    name="alone",
    steps="""
    def look(x):
        assert (x >= 0).all(), "below zero"
        return {"y": x}
    """,
)

INVENTORY = Inventory(
    models=(
        ServedModel("echo", "model", entry=False),
        ServedModel("cached", "model", entry=False),
        ServedModel("broken", "model", entry=True),
        ServedModel("pair", "ensemble", entry=True),
        ServedModel("other", "model", entry=False),
        ServedModel("talk", "bls", entry=True),
        ServedModel("alone", "fused", entry=True),
    ),
    nodes=(
        ServedNode("pair", "first", "echo"),
        ServedNode("pair", "second", "cached"),
        ServedNode("pair", "third", "cached"),
    ),
)

QUIET = {"Alerts", "Slow large batches"}
"""Panels that show nothing while all is well; those of GPUs show nothing here."""
ON_GPUS = "nv_gpu_"
OWN = ("mmctl_request_failure{", "mmctl_node_fallback", "mmctl_node_cache")
"""What a pipeline in the bls form counts itself."""


@pytest.fixture(scope="module")
def triton(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> EmbeddedTriton:
    repository = tmp_path_factory.mktemp("models")
    write_python_model(repository, "echo", BATCHED, ECHO)
    write_python_model(repository, "cached", CACHED, ECHO)
    write_python_model(repository, "broken", TENSORS, "raise ImportError('no such thing')")
    write_text(repository / "pair" / "config.pbtxt", PAIR)
    (repository / "pair" / "1").mkdir()
    write_python_model(repository, "other", BATCHED, ECHO)
    other = signature({"x": "fp32[2]"}, {"y": "fp32[2]"}, 4)
    write_pipelines(repository, [TALK, ALONE], {"other": other}, digests={"other": "a build key"})
    return serve(repository)


@pytest.fixture(scope="module")
def prometheus(
    triton: EmbeddedTriton, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """It has looked at the server before and after requests: answered, failed, and from a cache."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "prometheus.yml").write_text(render_prometheus([triton.metrics], interval="1s"))
    (folder / "rules.yml").write_text(render_rules(INVENTORY))
    promtool("check", "config", "prometheus.yml", cwd=folder)
    with running(folder) as server, Client(triton.grpc) as client:
        loaded = {"echo", "cached", "pair", "other", "talk", "alone"}
        eventually(lambda: server.values("nv_inference_count").keys() == loaded)
        for number in range(20):
            client.infer("pair", {"x": [[number % 5, 1.0]]})
            client.infer("echo", {"x": [[1.0, 1.0], [2.0, 2.0]]})
            with pytest.raises(InferenceError, match="below zero"):
                client.infer("pair", {"x": [[-1.0, 1.0]]})
            client.infer("talk", {"x": [[number % 5, 1.0]], "z": [[1.0, 1.0]]})
            client.infer("talk", {"x": [[number % 5, 1.0]], "z": [[-1.0, 1.0]]})
            with pytest.raises(InferenceError, match="node `hard`"):
                client.infer("talk", {"x": [[-1.0, 1.0]], "z": [[1.0, 1.0]]})
            with pytest.raises(InferenceError, match="below zero"):
                client.infer("alone", {"x": [[-1.0, 1.0]]})
            time.sleep(0.1)
        answered = "nv_inference_request_success"
        eventually(lambda: server.values(answered).get("pair") == 20)
        eventually(lambda: server.values(f"rate({answered}[30s])").get("pair", 0) > 0)
        refused = f"sum by (model) ({REFUSED})"
        eventually(lambda: server.values(refused) == {"talk": 20, "alone": 20})
        yield server


def shown(panel: Panel) -> list[str]:
    """Its queries as Grafana sends them."""
    filled = []
    for query in panel.queries.values():
        text = query.replace("$__rate_interval", "30s").replace("$model", ".*")
        is_own = any(metric in query for metric in OWN)
        filled.append(text.replace("$pipeline", "talk" if is_own else "pair"))
    return filled


PANELS = [
    pytest.param(panel, id=f"{dashboard.name}: {panel.title}")
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
]


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_has_something_to_show(prometheus: Prometheus, panel: Panel) -> None:
    for query in shown(panel):
        samples = prometheus.query(query)
        on_gpus = ON_GPUS in query
        assert bool(samples) is not (on_gpus or panel.title in QUIET), query


def test_every_metric_that_is_named_exists(prometheus: Prometheus) -> None:
    panels = [panel for dashboard in DASHBOARDS for panel in dashboard.panels]
    named = [query for panel in panels for query in panel.queries.values()]
    named += [alert.expression for alert in alerts()]
    metrics = {metric for expression in named for metric in metrics_in(expression)}
    assert len(metrics) > 25
    missing = {metric for metric in metrics if not prometheus.query(f"count({metric})")}
    assert missing == {metric for metric in metrics if metric.startswith(ON_GPUS)}


def test_rules_are_computed_and_no_alert_but_the_true_one_is_on_its_way(
    prometheus: Prometheus,
) -> None:
    rules = prometheus.rules()
    assert {(rule["health"], rule.get("lastError")) for rule in rules} == {("ok", None)}
    states = {rule["name"]: rule["state"] for rule in rules if rule["type"] == "alerting"}
    burning = {"ErrorBudgetBurnsFast", "ErrorBudgetBurns"}  # half of the requests were refused
    raised = {"ModelNotLoaded", "NodeFallsBack"}
    assert {name for name, state in states.items() if state != "inactive"} <= raised | burning
    assert {states[name] for name in raised} == {"pending"}


def test_the_model_that_did_not_load_is_found(prometheus: Prometheus) -> None:
    [alert] = [alert for alert in alerts() if alert.name == "ModelNotLoaded"]
    assert prometheus.values(alert.expression) == {"broken": 0.0}


def test_a_node_is_shown_with_what_its_model_did(prometheus: Prometheus) -> None:
    [panel] = [
        panel
        for dashboard in DASHBOARDS
        for panel in dashboard.panels
        if dashboard.name == "pipelines" and panel.title == "Cache hit ratio"
    ]
    [query] = shown(panel)
    ratios = prometheus.values(query, "node")
    assert set(ratios) == {"second", "third"}, "one model for two nodes; `first` has no cache"
    assert 0 < ratios["second"] < 1


def test_batches_and_failures_are_counted_as_they_were(prometheus: Prometheus) -> None:
    rows = prometheus.values("nv_inference_count")
    assert rows["pair"] == 20
    assert rows["echo"] == 20 + 20 * 2 + 20, "of the pair, by two, and those that it refused"
    failed = prometheus.values('nv_inference_request_failure{model="pair"}', "reason")
    assert {reason: count for reason, count in failed.items() if count} == {"OTHER": 2 * 20}
    answered = prometheus.values("nv_inference_request_success")
    assert answered["echo"] == 20 + 20 + 20, "to Triton an error in words is an answer"


def test_a_request_that_an_ensemble_failed_is_one_failure(prometheus: Prometheus) -> None:
    assert prometheus.values(error_ratio("5m"))["pair"] == pytest.approx(0.5, abs=0.05)


def test_an_error_that_a_pipeline_answers_with_is_a_failure(prometheus: Prometheus) -> None:
    """Triton counts it as answered."""
    ratios = prometheus.values(error_ratio("5m"))
    assert ratios["talk"] == pytest.approx(1 / 3, abs=0.05)
    assert ratios["alone"] == pytest.approx(1, abs=0.05)


def test_what_a_pipeline_does_without_a_node_is_counted(prometheus: Prometheus) -> None:
    assert prometheus.values("mmctl_node_fallback", "node") == {"soft": 20}
    hits = prometheus.values("mmctl_node_cache_hits", "node")
    misses = prometheus.values("mmctl_node_cache_misses", "node")
    assert (hits, misses) == ({"hard": 2 * 20 - 5}, {"hard": 5 + 20}), "errors are not kept"


def test_the_autoscalers_metric_is_a_wait_in_ms(prometheus: Prometheus) -> None:
    [rule] = adapter_values()["rules"]["custom"]
    series = rule["seriesQuery"].replace('namespace!="",pod!=""', 'job="triton"')
    assert prometheus.query(series)
    query = rule["metricsQuery"].replace("<<.LabelMatchers>>", 'job="triton"')
    [wait_ms] = prometheus.values(query.replace("<<.GroupBy>>", "instance"), "instance").values()
    assert 0 < wait_ms < 1000


@pytest.mark.parametrize(
    ("models", "ready"),
    [(("echo", "cached", "pair"), True), (("echo", "broken", "pair"), False)],
)
def test_a_probe_says_whether_every_model_is_ready(
    triton: EmbeddedTriton, models: tuple[str, ...], ready: bool
) -> None:
    port = int(triton.http.partition(":")[2])
    done = subprocess.run(probe_command(models, port), check=False, timeout=30)
    assert (done.returncode == 0) is ready
