"""What Prometheus scrapes, what it derives and when it raises an alarm. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mmctl.stack.inventory import Inventory
from mmctl.stack.queries import (
    CACHE_HITS,
    CACHE_MISSES,
    ENSEMBLES,
    LARGE_BATCH,
    MANY_FALLBACKS,
    MODEL,
    NODE,
    PENDING,
    SLOW_MS,
    error_ratio,
    failures,
    increase,
    many_fallbacks,
    node_cache_without_hits,
    not_loaded,
    slow_large_batches,
)
from mmctl.stack.yamltext import Inline, render_yaml

RULES = "rules.yml"
INTERVAL = "15s"

SLO = 0.999
"""The share of requests that shall be answered, over 30 days."""
LEAST_FAILURES = 10
"""So many failures make an alarm, fewer are single requests."""


@dataclass(frozen=True, slots=True)
class Burn:
    """At `speed` times what the SLO allows, over a long window and still in a short one: the
    budget of 30 days is gone in 30 / `speed` days.
    """

    name: str
    speed: float
    long: str
    short: str
    severity: str


BURNS = (
    Burn("ErrorBudgetBurnsFast", 14.4, "1h", "5m", "critical"),
    Burn("ErrorBudgetBurns", 6, "6h", "30m", "warning"),
)


@dataclass(frozen=True, slots=True)
class Alert:
    """`lasts`: how long `expression` must hold. `summary` may use its labels, as
    `{{ $labels.model }}`.
    """

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str
    todo: str


def render_prometheus(targets: Sequence[str], interval: str = INTERVAL) -> str:
    """prometheus.yml; `targets` are the host:port of metrics, looked at every `interval`."""
    return render_yaml(
        "Written by `mmctl stack`. What is scraped.",
        {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": [RULES],
            "scrape_configs": [
                {"job_name": "triton", "static_configs": [{"targets": list(targets)}]}
            ],
        },
    )


def render_rules(inventory: Inventory) -> str:
    """rules.yml: what the repository holds, what is derived, and the alerts."""
    return render_yaml(
        "Written by `mmctl stack` from the models and pipelines of the workspace.\n"
        "`mmctl stack --check` tells when it is stale.",
        {
            "groups": [
                {"name": "repository", "rules": list(_repository(inventory))},
                {"name": "errors", "rules": list(_error_ratios())},
                {"name": "alerts", "rules": [_rule(alert) for alert in alerts()]},
            ]
        },
    )


def alerts() -> tuple[Alert, ...]:
    return (
        Alert(
            "TritonDown",
            'up{job="triton"} == 0',
            "1m",
            "critical",
            "{{ $labels.instance }} does not answer",
            "read its log: `mmctl logs`, `docker compose logs triton`",
        ),
        *(_burn_alert(burn) for burn in BURNS),
        Alert(
            "QueueGrows",
            f"sum by (model) (min_over_time({PENDING}[5m])) > 8 "
            f"and sum by (model) (deriv({PENDING}[10m])) > 0 "
            f"unless on (model) {ENSEMBLES}",
            "5m",
            "warning",
            "the queue of {{ $labels.model }} has not been empty for 5 minutes, and grows",
            "add instances or servers, or limit how long a request may wait",
        ),
        Alert(
            "ModelNotLoaded",
            not_loaded(),
            "5m",
            "critical",
            "{{ $labels.model }} is in the repository and loaded on {{ $value }} servers only",
            "read the log for why it does not load; `mmctl check` often knows",
        ),
        Alert(
            "CacheWithoutHits",
            f"{increase(CACHE_MISSES, '1h')} > 1000 and {increase(CACHE_HITS, '1h')} == 0",
            "10m",
            "warning",
            "the response cache of {{ $labels.model }} has not answered once in an hour",
            "remove `response_cache`: it costs time and memory, and its requests never repeat",
        ),
        Alert(
            "NodeFallsBack",
            many_fallbacks("5m"),
            "10m",
            "warning",
            "{{ $labels.pipeline }} answers {{ $value | humanizePercentage }} of its requests "
            f"without {{{{ $labels.node }}}}, more than {MANY_FALLBACKS:.0%}",
            "see why the node fails: provenance and the log of its model tell",
        ),
        Alert(
            "NodeCacheWithoutHits",
            node_cache_without_hits(),
            "10m",
            "warning",
            "the kept answers of {{ $labels.node }} in {{ $labels.pipeline }} have not served once "
            "in an hour",
            "remove `cache` from the node: its inputs never repeat within `ttl_s`",
        ),
        Alert(
            "SlowLargeBatches",
            slow_large_batches("5m"),
            "10m",
            "warning",
            f"batches of {{{{ $labels.model }}}} are above {LARGE_BATCH} rows and {SLOW_MS} ms",
            "a smaller `max_batch`, or more instances, may answer sooner",
        ),
    )


def ratio_name(window: str) -> str:
    return f"mmctl:error_ratio:rate{window}"


def _repository(inventory: Inventory) -> Iterator[dict[str, Any]]:
    for model in inventory.models:
        labels = Inline(model=model.name, kind=model.kind, entry=str(model.entry).lower())
        yield _always(MODEL, labels)
    for node in inventory.nodes:
        labels = Inline(pipeline=node.pipeline, node=node.node, model=node.model)
        yield _always(NODE, labels)


def _always(metric: str, labels: Inline) -> dict[str, Any]:
    return {"record": metric, "expr": "vector(1)", "labels": labels}


def _error_ratios() -> Iterator[dict[str, Any]]:
    for window in dict.fromkeys(w for burn in BURNS for w in (burn.short, burn.long)):
        yield {"record": ratio_name(window), "expr": error_ratio(window)}


def _burn_alert(burn: Burn) -> Alert:
    """Of what clients ask: a failure inside may have been absorbed by a policy."""
    limit = round(burn.speed * (1 - SLO), 6)
    return Alert(
        burn.name,
        f"{ratio_name(burn.long)} > {limit} "
        f"and {ratio_name(burn.short)} > {limit} "
        f"and {failures(burn.long)} >= {LEAST_FAILURES} "
        f'and on (model) {MODEL}{{entry="true"}}',
        "2m",
        burn.severity,
        f"{{{{ $labels.model }}}} fails {{{{ $value | humanizePercentage }}}} of its requests: "
        f"{burn.speed:g} times what a target of {SLO:.1%} allows",
        "see which node fails on the dashboard of pipelines, and its log",
    )


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "todo": alert.todo},
    }
