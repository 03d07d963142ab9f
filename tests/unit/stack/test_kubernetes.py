"""The manifests: valid for Kubernetes, and what they promise about probes, scaling and access."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from mmctl.errors import InputError
from mmctl.stack.kubernetes import Cluster, adapter_values, render_kubernetes

PLAIN = Cluster(image="registry/triton:1")
BUSY = Cluster(
    image="registry/triton:1",
    name="moderation",
    repository="s3://models/moderation",
    gpus=2,
    queue_ms=12.5,
    clients="team=shop",
    otlp_url="http://jaeger:4318/v1/traces",
)
MODELS = ("net", "flow__cut", "flow")


def manifests(cluster: Cluster, *models: str) -> dict[str, Any]:
    """By kind; the values for prometheus-adapter are no manifest."""
    texts = render_kubernetes(cluster, models or MODELS)
    loaded = [yaml.safe_load(text) for path, text in texts.items() if "/" not in path]
    return {manifest["kind"]: manifest for manifest in loaded}


def container(cluster: Cluster, *models: str) -> dict[str, Any]:
    [found] = manifests(cluster, *models)["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("version", ["1.29", "1.31", "1.34"])
@pytest.mark.parametrize("cluster", [PLAIN, BUSY], ids=["on CPUs", "on GPUs, from S3"])
def test_kubernetes_takes_them(cluster: Cluster, version: str) -> None:
    judge = pytest.importorskip("kubernetes_validate")
    found = manifests(cluster)
    assert set(found) == {
        *("Deployment", "Service", "HorizontalPodAutoscaler"),
        *("PodDisruptionBudget", "NetworkPolicy"),
    }
    for manifest in found.values():
        judge.validate(manifest, version, strict=True)


def test_all_carry_the_name_and_find_the_pods_by_it() -> None:
    found = manifests(BUSY)
    assert {manifest["metadata"]["name"] for manifest in found.values()} == {"moderation"}
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector == labels for selector in selectors)


def test_pods_are_asked_for_each_model_and_never_for_the_strict_readiness_of_triton() -> None:
    asked = container(PLAIN)
    for probe in ("startupProbe", "readinessProbe"):
        command = asked[probe]["exec"]["command"]
        assert command[0] == "curl"
        assert command[-1] == "http://127.0.0.1:8000/v2/models/{net,flow__cut,flow}/ready"
    assert asked["livenessProbe"]["httpGet"]["path"] == "/v2/health/live"
    assert "health/ready" not in json.dumps(asked)


def test_one_model_needs_no_program_to_ask_for() -> None:
    probe = container(PLAIN, "net")["readinessProbe"]
    assert probe["httpGet"] == {"path": "/v2/models/net/ready", "port": "http"}


def test_a_name_of_the_users_own_stays_a_name_in_a_probe() -> None:
    command = container(PLAIN, "a,b", "c}/x")["readinessProbe"]["exec"]["command"]
    assert command[-1] == "http://127.0.0.1:8000/v2/models/{a%2Cb,c%7D%2Fx}/ready"


def test_pods_are_added_at_70_percent_of_the_time_that_requests_may_wait() -> None:
    for cluster, wanted in ((PLAIN, "35"), (BUSY, "8750m")):
        spec = manifests(cluster)["HorizontalPodAutoscaler"]["spec"]
        [metric] = spec["metrics"]
        assert metric["pods"]["metric"]["name"] == "triton_queue_ms"
        assert metric["pods"]["target"] == {"type": "AverageValue", "averageValue": wanted}
        assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300
        assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 8)


def test_how_many_pods_there_are_is_left_to_the_autoscaler() -> None:
    assert "replicas" not in manifests(PLAIN)["Deployment"]["spec"]


def test_the_adapter_makes_the_metric_that_the_autoscaler_reads() -> None:
    [rule] = adapter_values()["rules"]["custom"]
    assert rule["name"] == {"as": "triton_queue_ms"}
    texts = render_kubernetes(PLAIN, MODELS)
    assert yaml.safe_load(texts["adapter/values.yaml"]) == adapter_values()


def test_model_control_stays_in_the_namespace() -> None:
    """From outside comes nothing but Prometheus, to the metrics, and clients who are named."""
    closed = manifests(PLAIN)["NetworkPolicy"]["spec"]
    opened = manifests(BUSY)["NetworkPolicy"]["spec"]
    assert closed["policyTypes"] == ["Ingress"]
    assert from_outside(closed) == {"metrics": [{"kubernetes.io/metadata.name": "monitoring"}]}
    assert from_outside(opened) == {**from_outside(closed), "grpc": [{"team": "shop"}]}


def from_outside(spec: dict[str, Any]) -> dict[str, list[dict[str, str]]]:
    """Labels of other namespaces by the port that they reach."""
    found: dict[str, list[dict[str, str]]] = {}
    for rule in spec["ingress"]:
        for port in rule["ports"]:
            for peer in rule["from"]:
                if "namespaceSelector" in peer:
                    labels = peer["namespaceSelector"]["matchLabels"]
                    found.setdefault(port["port"], []).append(labels)
    return found


def test_the_key_is_a_secret_and_in_no_file() -> None:
    made = container(PLAIN)
    [key] = made["env"]
    assert key["valueFrom"] == {"secretKeyRef": {"name": "triton-access", "key": "key"}}
    closed = [flag for flag in made["args"] if "restricted" in flag]
    assert len(closed) == 2
    assert all(flag.endswith("mmctl-key=$(TRITON_KEY)") for flag in closed)


def test_the_tree_comes_from_a_claim_read_only_or_from_an_object_store() -> None:
    claimed, stored = container(PLAIN), container(BUSY)
    assert "--model-repository=/models" in claimed["args"]
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in claimed["volumeMounts"]}
    assert mounts == {"/dev/shm": False, "/models": True}
    assert "--model-repository=s3://models/moderation" in stored["args"]
    assert [mount["mountPath"] for mount in stored["volumeMounts"]] == ["/dev/shm"]
    assert stored["envFrom"] == [{"secretRef": {"name": "moderation-store"}}]


def test_gpus_are_asked_for_and_used_where_there_are_some() -> None:
    assert "resources" not in container(PLAIN)
    made = container(BUSY)
    assert made["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert {"--model-config-name=gpu", "--allow-gpu-metrics=true"} <= {*made["args"]}


def test_a_pod_that_ends_has_time_for_what_it_was_asked() -> None:
    spec = manifests(PLAIN)["Deployment"]["spec"]["template"]["spec"]
    [made] = spec["containers"]
    drain_s = int(made["lifecycle"]["preStop"]["exec"]["command"][1])
    [exit_s] = [int(f.partition("=")[2]) for f in made["args"] if "exit-timeout" in f]
    assert spec["terminationGracePeriodSeconds"] > drain_s + exit_s


def test_pods_have_no_rights_that_they_do_not_need() -> None:
    spec = manifests(PLAIN)["Deployment"]["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    made = spec["containers"][0]["securityContext"]
    assert made == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (replace(PLAIN, name="Triton"), "`Triton` is not a name that Kubernetes takes"),
        (replace(PLAIN, repository="pvc:a/b"), "`pvc:a/b` is not a repository"),
        (replace(PLAIN, repository="/models"), "`/models` is not a repository"),
        (replace(PLAIN, least=3, most=2), "from 3 to 2 pods is no range"),
        (replace(PLAIN, queue_ms=0), "`--queue-ms` must be above 0"),
        (replace(PLAIN, clients="shop"), "`shop` is not a label"),
    ],
)
def test_what_no_cluster_could_take_is_refused(cluster: Cluster, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        render_kubernetes(cluster, MODELS)
    assert error.value.hint


def test_nothing_to_serve_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to serve"):
        render_kubernetes(PLAIN, ())
