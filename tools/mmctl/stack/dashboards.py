"""The dashboards. Which models and pipelines there are they ask Prometheus, whose rules say it."""

from __future__ import annotations

from mmctl.stack.panels import Choice, Dashboard, Panel, Row
from mmctl.stack.queries import (
    CACHE_HITS,
    CACHE_MISSES,
    DURATION,
    FAILURE,
    FALLBACKS,
    LARGE_BATCH,
    MODEL,
    NODE,
    REFUSED,
    ROWS,
    SERVERS_UP,
    SLOW_MS,
    STAGES,
    SUCCESS,
    by_node,
    by_own_node,
    error_ratio,
    hit_ratio,
    mean_batch,
    mean_ms,
    node_hit_ratio,
    not_loaded,
    pending,
    rate,
    slow_large_batches,
)

WINDOW = "$__rate_interval"
CHOSEN = 'model=~"$model"'
BY_MODEL, BY_GPU, BY_NODE = "{{model}}", "{{gpu_uuid}}", "{{node}}"
PIPELINE = "$pipeline"


def _of_nodes(expression: str) -> dict[str, str]:
    return {BY_NODE: by_node(expression, PIPELINE)}


_STATE = Row(
    "State",
    (
        Panel("Servers up", {"up": SERVERS_UP}, kind="stat", width=4),
        Panel("Models loaded", {"": f"count(count by (model) ({ROWS}))"}, kind="stat", width=4),
        Panel("Models expected", {"": f"count({MODEL})"}, kind="stat", width=4),
        Panel(
            "Not loaded",
            {"": not_loaded()},
            kind="table",
            about="Models of the repository that some server does not have; how many have them.",
            width=6,
        ),
        Panel("Alerts", {"": 'ALERTS{alertstate="firing"}'}, kind="table", width=6),
    ),
)

_TRAFFIC = Row(
    "Requests",
    (
        Panel("Answered", {BY_MODEL: rate(SUCCESS, WINDOW, CHOSEN)}, "reqps"),
        Panel(
            "Failed, by reason",
            {
                "{{model}} {{reason}}": f"{rate(FAILURE, WINDOW, CHOSEN, 'model, reason')} > 0",
                "{{model}} refused: {{reason}}": (
                    f"{rate(REFUSED, WINDOW, CHOSEN, 'model, reason')} > 0"
                ),
            },
            "reqps",
            "REJECTED: waited too long in a queue. CANCELED: the client left. BACKEND: an "
            "exception, or a dead process. OTHER: a step of an ensemble, counted twice. Refused: "
            "an error that a pipeline or step answers with, which Triton counts as answered.",
        ),
        Panel("Share that failed", {BY_MODEL: error_ratio(WINDOW)}, "percentunit"),
    ),
)

_LATENCY = Row(
    "Latency",
    (
        Panel("Mean of a request", {BY_MODEL: mean_ms(DURATION, WINDOW, CHOSEN)}, "ms"),
        *(
            Panel(f"Mean of the stage `{stage}`", {BY_MODEL: mean_ms(metric, WINDOW, CHOSEN)}, "ms")
            for stage, metric in STAGES.items()
        ),
        Panel(
            "Where the time goes",
            {stage: f"sum({rate(metric, WINDOW, CHOSEN)})" for stage, metric in STAGES.items()},
            "µs",
            "Request time per second of the chosen models, by stage.",
            stacked=True,
        ),
    ),
)

_BATCHES = Row(
    "Batches and queues",
    (
        Panel("Mean batch", {BY_MODEL: mean_batch(WINDOW, CHOSEN)}, about="Rows per execution."),
        Panel(
            "Slow large batches",
            {BY_MODEL: slow_large_batches(WINDOW, CHOSEN)},
            about=f"Mean batch of models with more than {LARGE_BATCH} rows per execution and more "
            f"than {SLOW_MS} ms in it: a smaller max_batch may answer sooner.",
        ),
        Panel(
            "Waiting requests",
            {BY_MODEL: pending(CHOSEN)},
            about="Not of ensembles, which have no queue of their own.",
        ),
    ),
)

_CACHE = Row(
    "Response cache",
    (
        Panel("Hit ratio", {BY_MODEL: hit_ratio(WINDOW, CHOSEN)}, "percentunit", width=6),
        Panel(
            "Look-ups",
            {
                "{{model}} hits": rate(CACHE_HITS, WINDOW, CHOSEN),
                "{{model}} misses": rate(CACHE_MISSES, WINDOW, CHOSEN),
            },
            "reqps",
            width=6,
        ),
        Panel("Full", {"{{instance}}": "nv_cache_util"}, "percentunit", width=6),
        Panel(
            "Entries and evictions",
            {
                "{{instance}} entries": "nv_cache_num_entries",
                "{{instance}} evictions": "nv_cache_num_evictions",
            },
            width=6,
        ),
    ),
)

_GPU = Row(
    "GPUs",
    (
        Panel("Use", {BY_GPU: "nv_gpu_utilization"}, "percentunit"),
        Panel(
            "Memory",
            {
                f"{BY_GPU} used": "nv_gpu_memory_used_bytes",
                f"{BY_GPU} total": "nv_gpu_memory_total_bytes",
            },
            "bytes",
        ),
        Panel(
            "Power draw",
            {f"{BY_GPU} draw": "nv_gpu_power_usage", f"{BY_GPU} limit": "nv_gpu_power_limit"},
            "watt",
            "Triton has no GPU metrics under MIG, or beside another DCGM.",
        ),
    ),
)

_HOST = Row(
    "Host",
    (
        Panel("CPU", {"{{instance}}": "nv_cpu_utilization"}, "percentunit"),
        Panel(
            "Memory",
            {
                "{{instance}} used": "nv_cpu_memory_used_bytes",
                "{{instance}} total": "nv_cpu_memory_total_bytes",
            },
            "bytes",
        ),
        Panel(
            "Pinned memory",
            {"{{instance}}": "nv_pinned_memory_pool_used_bytes"},
            "bytes",
            "The pool by which data goes to GPUs.",
        ),
    ),
)

TRITON = Dashboard(
    "triton",
    "Triton",
    "Every model of every server. Written by `mmctl stack`.",
    (Choice("model", f"label_values({ROWS}, model)", several=True),),
    (_STATE, _TRAFFIC, _LATENCY, _BATCHES, _CACHE, _GPU, _HOST),
)

PIPELINES = Dashboard(
    "pipelines",
    "Pipelines",
    "The nodes of one pipeline. A model that several pipelines call is counted for all of them. "
    "Written by `mmctl stack`.",
    (Choice("pipeline", f"label_values({NODE}, pipeline)"),),
    (
        Row(
            "The pipeline",
            (
                Panel(
                    "Requests",
                    {
                        "answered": rate(SUCCESS, WINDOW, f'model="{PIPELINE}"'),
                        "failed: {{reason}}": rate(
                            FAILURE, WINDOW, f'model="{PIPELINE}"', "model, reason"
                        ),
                        "refused: {{reason}}": rate(
                            REFUSED, WINDOW, f'model="{PIPELINE}"', "model, reason"
                        ),
                    },
                    "reqps",
                ),
                Panel(
                    "Mean of a request",
                    {"in total": mean_ms(DURATION, WINDOW, f'model="{PIPELINE}"')},
                    "ms",
                ),
                Panel("Nodes", {"": f'{NODE}{{pipeline="{PIPELINE}"}}'}, kind="table"),
            ),
        ),
        Row(
            "Its nodes",
            (
                Panel("Mean of a request", _of_nodes(mean_ms(DURATION, WINDOW)), "ms"),
                *(
                    Panel(f"Mean of the stage `{stage}`", _of_nodes(mean_ms(metric, WINDOW)), "ms")
                    for stage, metric in STAGES.items()
                ),
                Panel("Answered", _of_nodes(rate(SUCCESS, WINDOW)), "reqps"),
                Panel("Share that failed", _of_nodes(error_ratio(WINDOW)), "percentunit"),
                Panel("Mean batch", _of_nodes(mean_batch(WINDOW))),
                Panel("Waiting requests", _of_nodes(pending())),
                Panel("Cache hit ratio", _of_nodes(hit_ratio(WINDOW)), "percentunit"),
                Panel(
                    "Fallbacks",
                    {BY_NODE: by_own_node(FALLBACKS, WINDOW, PIPELINE)},
                    "reqps",
                    "Requests in which a policy stood in for the node: `on_error`, or "
                    "`required: false`.",
                ),
                Panel(
                    "Kept answers that served",
                    {BY_NODE: node_hit_ratio(WINDOW, PIPELINE)},
                    "percentunit",
                    "Of the rows of nodes with `cache`, the share that was not run.",
                ),
                Panel("Slow large batches", _of_nodes(slow_large_batches(WINDOW))),
            ),
        ),
    ),
)

DASHBOARDS = (TRITON, PIPELINES)
