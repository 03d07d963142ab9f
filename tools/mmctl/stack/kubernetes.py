"""Plain Kubernetes manifests: what to apply, file by file. Pure.

Triton's own `/v2/health/ready` turns false while any model loads and stays false after a load that
failed, so pods are asked for the models that they shall serve, one by one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from mmctl.errors import InputError
from mmctl.server.docker import INSIDE, MODELS, SHM_SIZE
from mmctl.server.flags import BLS_THREADS, EXIT_TIMEOUT_S, Options, triton_flags
from mmctl.stack.queries import STAGES, SUCCESS
from mmctl.stack.yamltext import render_yaml
from mmctl.triton.generate import GPU_PROFILE

PORTS = {"http": INSIDE.http, "grpc": INSIDE.grpc, "metrics": INSIDE.metrics}
METRIC = "triton_queue_ms"
TARGET_PERCENT = 70
SCALE_DOWN_WINDOW_S = 300
DRAIN_S = 5
"""How long a pod that is to end goes on serving: until no proxy sends to it any more."""
START_S, PERIOD_S = 600, 5
USER = 1000
"""`triton-server` in NVIDIA's image."""

OBJECT_STORES = ("s3://", "gs://", "as://")
CLAIM = "pvc:"
NAME = re.compile(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Cluster:
    """How to serve in a cluster. `repository` is `pvc:CLAIM` or the address of an object store.

    `queue_ms` is how long a request may wait, on average, for the busiest model; at 70 % of it pods
    are added. `monitoring` is the namespace whose pods may read metrics. `clients` is a label,
    `name=value`, of other namespaces that may ask over gRPC.
    """

    image: str
    name: str = "triton"
    repository: str = "pvc:triton-models"
    least: int = 2
    most: int = 8
    gpus: int = 0
    queue_ms: float = 50
    monitoring: str = "monitoring"
    clients: str = ""
    bls_threads: int = BLS_THREADS
    otlp_url: str | None = None


def render_kubernetes(cluster: Cluster, models: Sequence[str]) -> dict[str, str]:
    """Files by name; `models` are those that a pod must have to get requests. Raises InputError."""
    _refuse_misfits(cluster, models)
    return {
        "deployment.yaml": render_yaml(_about(cluster), _deployment(cluster, models)),
        "service.yaml": render_yaml(WRITTEN, _service(cluster)),
        "autoscaler.yaml": render_yaml(_about_scaling(cluster), _autoscaler(cluster)),
        "disruption.yaml": render_yaml(WRITTEN, _disruption(cluster)),
        "network.yaml": render_yaml(NETWORK, _network(cluster)),
        "adapter/values.yaml": render_yaml(ADAPTER, adapter_values()),
    }


WRITTEN = "Written by `mmctl k8s`."

NETWORK = f"""\
{WRITTEN} Model control stays in the namespace: HTTP is for its own pods. Over gRPC it is
closed to whoever does not have the key, which is a secret of the namespace."""

ADAPTER = f"""\
{WRITTEN} Values for the chart of prometheus-adapter: the metric that the autoscaler reads,
how long requests wait on average for the model that they wait longest for, in ms, by pod.
Prometheus must put `namespace` and `pod` on what it scrapes, as its operator does."""


def _about(cluster: Cluster) -> str:
    secret = f"{cluster.name}-access"
    store = (
        f"The tree that a Triton shall serve, as `mmctl deploy` makes it, is on the claim "
        f"`{cluster.repository.removeprefix(CLAIM)}`."
        if cluster.repository.startswith(CLAIM)
        else f"The store's credentials are the variables in the secret `{cluster.name}-store`."
    )
    return (
        f"{WRITTEN} {store}\n"
        "The key that steers the servers is made once:\n"
        f"    kubectl create secret generic {secret} --from-literal=key=$(openssl rand -hex 16)"
    )


def _about_scaling(cluster: Cluster) -> str:
    return (
        f"{WRITTEN} Pods are added when requests wait {TARGET_PERCENT} % of "
        f"{cluster.queue_ms:g} ms.\nThe metric is of prometheus-adapter: see adapter/values.yaml."
    )


def _deployment(cluster: Cluster, models: Sequence[str]) -> dict[str, Any]:
    labels = _labels(cluster)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": cluster.name, "labels": labels},
        "spec": {
            # How many there are is the autoscaler's business, so `replicas` is left out.
            "selector": {"matchLabels": labels},
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {
                "metadata": {"labels": labels, "annotations": _scraped()},
                "spec": {
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": DRAIN_S + EXIT_TIMEOUT_S + 5,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": USER,
                        "runAsGroup": USER,
                        "fsGroup": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    **(GPU_POOL if cluster.gpus else {}),
                    "containers": [_container(cluster, models)],
                    "volumes": _volumes(cluster),
                },
            },
        },
    }


GPU_POOL = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}


def _container(cluster: Cluster, models: Sequence[str]) -> dict[str, Any]:
    options = Options(
        bls_threads=cluster.bls_threads,
        otlp_url=cluster.otlp_url,
        key="$(TRITON_KEY)",
        gpus=bool(cluster.gpus),
        config_name=GPU_PROFILE if cluster.gpus else None,
    )
    repository = MODELS if _has_claim(cluster) else cluster.repository
    key = {"secretKeyRef": {"name": f"{cluster.name}-access", "key": "key"}}
    store = {"envFrom": [{"secretRef": {"name": f"{cluster.name}-store"}}]}
    gpus = {"resources": {"limits": {"nvidia.com/gpu": str(cluster.gpus)}}}
    return {
        "name": "triton",
        "image": cluster.image,
        "args": ["tritonserver", *triton_flags(repository, INSIDE, options)],
        "env": [{"name": "TRITON_KEY", "valueFrom": key}],
        **({} if _has_claim(cluster) else store),
        "ports": [{"name": name, "containerPort": port} for name, port in PORTS.items()],
        **(gpus if cluster.gpus else {}),
        "startupProbe": _probe(models, failures=START_S // PERIOD_S),
        "readinessProbe": _probe(models, failures=2),
        "livenessProbe": {
            "httpGet": {"path": "/v2/health/live", "port": "http"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(DRAIN_S)]}}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},
            *([{"name": "models", "mountPath": MODELS, "readOnly": True}] * _has_claim(cluster)),
        ],
    }


def _probe(models: Sequence[str], failures: int) -> dict[str, Any]:
    return {
        **_question(models),
        "periodSeconds": PERIOD_S,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _question(models: Sequence[str]) -> dict[str, Any]:
    """A probe asks for one path; several models take curl, which ends at the first that is not."""
    if len(models) == 1:
        return {
            "httpGet": {"path": f"/v2/models/{quote(models[0], safe='')}/ready", "port": "http"}
        }
    return {"exec": {"command": probe_command(models, INSIDE.http)}}


def probe_command(models: Sequence[str], port: int) -> list[str]:
    names = ",".join(quote(model, safe="") for model in models)
    quiet = ["--silent", "--fail", "--fail-early", "--output", "/dev/null"]
    return ["curl", *quiet, f"http://127.0.0.1:{port}/v2/models/{{{names}}}/ready"]


def _volumes(cluster: Cluster) -> list[dict[str, Any]]:
    shm = {"medium": "Memory", "sizeLimit": f"{SHM_SIZE.removesuffix('g')}Gi"}
    claim = {"claimName": cluster.repository.removeprefix(CLAIM), "readOnly": True}
    models = {"name": "models", "persistentVolumeClaim": claim}
    return [{"name": "shm", "emptyDir": shm}, *([models] * _has_claim(cluster))]


def _service(cluster: Cluster) -> dict[str, Any]:
    ports = [{"name": name, "port": port, "targetPort": name} for name, port in PORTS.items()]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": cluster.name, "labels": _labels(cluster)},
        "spec": {"selector": _labels(cluster), "ports": ports},
    }


def _autoscaler(cluster: Cluster) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": cluster.name, "labels": _labels(cluster)},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": cluster.name,
            },
            "minReplicas": cluster.least,
            "maxReplicas": cluster.most,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": METRIC},
                        "target": {"type": "AverageValue", "averageValue": _target(cluster)},
                    },
                }
            ],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": SCALE_DOWN_WINDOW_S}},
        },
    }


def _target(cluster: Cluster) -> str:
    """As Kubernetes writes numbers: whole, or in thousandths."""
    thousandths = round(cluster.queue_ms * TARGET_PERCENT * 10)
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)


def _disruption(cluster: Cluster) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": cluster.name, "labels": _labels(cluster)},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": _labels(cluster)}},
    }


def _network(cluster: Cluster) -> dict[str, Any]:
    within: dict[str, Any] = {"podSelector": {}}
    monitoring = _namespaces({"kubernetes.io/metadata.name": cluster.monitoring})
    rules = [_ingress([within], "http", "grpc"), _ingress([within, monitoring], "metrics")]
    if cluster.clients:
        name, _, value = cluster.clients.partition("=")
        rules.append(_ingress([_namespaces({name: value})], "grpc"))
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": cluster.name, "labels": _labels(cluster)},
        "spec": {
            "podSelector": {"matchLabels": _labels(cluster)},
            "policyTypes": ["Ingress"],
            "ingress": rules,
        },
    }


def _ingress(peers: Sequence[Mapping[str, Any]], *ports: str) -> dict[str, Any]:
    return {
        "from": [dict(peer) for peer in peers],
        "ports": [{"protocol": "TCP", "port": port} for port in ports],
    }


def _namespaces(labels: Mapping[str, str]) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": dict(labels)}}


def adapter_values() -> dict[str, Any]:
    """prometheus-adapter fills in `<<...>>`. Without requests the wait is 0, not nothing."""

    def summed(metric: str) -> str:
        return f"sum by (<<.GroupBy>>, model) (rate({metric}{{<<.LabelMatchers>>}}[2m]))"

    wait = f"{summed(STAGES['queue'])} / clamp_min({summed(SUCCESS)}, 0.001) / 1000"
    return {
        "rules": {
            "custom": [
                {
                    "seriesQuery": f'{STAGES["queue"]}{{namespace!="",pod!=""}}',
                    "resources": {
                        "overrides": {
                            "namespace": {"resource": "namespace"},
                            "pod": {"resource": "pod"},
                        }
                    },
                    "name": {"as": METRIC},
                    "metricsQuery": f"max by (<<.GroupBy>>) ({wait})",
                }
            ]
        }
    }


def _labels(cluster: Cluster) -> dict[str, str]:
    return {"app.kubernetes.io/name": "triton", "app.kubernetes.io/instance": cluster.name}


def _scraped() -> dict[str, str]:
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(INSIDE.metrics),
        "prometheus.io/path": "/metrics",
    }


def _has_claim(cluster: Cluster) -> bool:
    return cluster.repository.startswith(CLAIM)


def _refuse_misfits(cluster: Cluster, models: Sequence[str]) -> None:
    claim = cluster.repository.removeprefix(CLAIM)
    checks = (
        (bool(models), "there is nothing to serve", "name models or pipelines of the workspace"),
        (
            NAME.fullmatch(cluster.name) is not None,
            f"`{cluster.name}` is not a name that Kubernetes takes",
            "use a-z, 0-9 and -, a letter first, 50 signs at most",
        ),
        (
            NAME.fullmatch(claim) is not None
            if _has_claim(cluster)
            else cluster.repository.startswith(OBJECT_STORES),
            f"`{cluster.repository}` is not a repository that a pod can read",
            f"write `pvc:CLAIM`, or an address that begins with {', '.join(OBJECT_STORES)}",
        ),
        (
            1 <= cluster.least <= cluster.most,
            f"from {cluster.least} to {cluster.most} pods is no range",
            "pass `--min` of at least 1, and `--max` that is not below it",
        ),
        (cluster.queue_ms > 0, "`--queue-ms` must be above 0", "pass, say, `--queue-ms 50`"),
        (
            not cluster.clients or re.fullmatch(r"[\w./-]+=[\w.-]+", cluster.clients) is not None,
            f"`{cluster.clients}` is not a label",
            "write `name=value`",
        ),
    )
    for fits, message, hint in checks:
        if not fits:
            raise InputError(message, hint=hint)
