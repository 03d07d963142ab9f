"""PromQL that dashboards and rules share. Pure.

Triton's counters are per model, version, and GPU where there is one; an ensemble is always called
version 1. So everything here is summed over versions, GPUs and servers, by model. Durations are in
microseconds, each request counted with the whole time of its batch. An ensemble has no queue, so
its count of waiting requests says nothing, and it counts every failed request twice.

Triton 24.10 takes an error that a Python model answers with for an answer: what a pipeline in the
bls or fused form refuses is among its successes, and its runner counts it, by reason. An exception,
a dead process, a request that waited too long and anything that fails in an ensemble are failures.
The runner of the bls form counts by pipeline and node as well: requests in which a policy stood in
for a node, rows that a node with `cache` did not run, and those that it did.

Two metrics come from the rules, not from Triton, and are always 1: `mmctl_model` for each model
that should be served (labels kind, entry), `mmctl_node` for each node of a pipeline (labels
pipeline, node, model).
"""

from __future__ import annotations

SUCCESS = "nv_inference_request_success"
FAILURE = "nv_inference_request_failure"
ROWS = "nv_inference_count"
"""Also the sign that a model is loaded: it is there, at 0, from the load to the unload."""
REFUSED = "mmctl_request_failure"
FALLBACKS = "mmctl_node_fallback"
NODE_HITS, NODE_MISSES = "mmctl_node_cache_hits", "mmctl_node_cache_misses"
EXECUTIONS = "nv_inference_exec_count"
PENDING = "nv_inference_pending_request_count"
DURATION = "nv_inference_request_duration_us"
STAGES = {
    "queue": "nv_inference_queue_duration_us",
    "input": "nv_inference_compute_input_duration_us",
    "infer": "nv_inference_compute_infer_duration_us",
    "output": "nv_inference_compute_output_duration_us",
}
CACHE_HITS = "nv_cache_num_hits_per_model"
CACHE_MISSES = "nv_cache_num_misses_per_model"

MODEL, NODE = "mmctl_model", "mmctl_node"
ENSEMBLES = f'{MODEL}{{kind="ensemble"}}'
SERVERS_UP = 'sum(up{job="triton"})'

NOT_CALLED_OFF = 'reason!="CANCELED"'

LARGE_BATCH, SLOW_MS = 16, 200
"""A batch above both is slow for being large."""
MANY_FALLBACKS = 0.05
"""A share of a pipeline's requests."""

Where = str
"""Matchers without braces: `model="a"`."""


def rate(metric: str, window: str, where: Where = "", by: str = "model") -> str:
    return f"sum by ({by}) (rate({metric}{braces(where)}[{window}]))"


def increase(metric: str, window: str, where: Where = "") -> str:
    return f"sum by (model) (increase({metric}{braces(where)}[{window}]))"


def mean_ms(duration: str, window: str, where: Where = "") -> str:
    """Milliseconds of a successful request."""
    return f"{rate(duration, window, where)} / {rate(SUCCESS, window, where)} / 1000"


def mean_batch(window: str, where: Where = "") -> str:
    """Rows of an execution."""
    return f"{rate(ROWS, window, where)} / {rate(EXECUTIONS, window, where)}"


def slow_large_batches(window: str, where: Where = "") -> str:
    """The mean batch of models whose batches are both large and slow."""
    return (
        f"{mean_batch(window, where)} > {LARGE_BATCH} "
        f"and {mean_ms(STAGES['infer'], window, where)} > {SLOW_MS}"
    )


def error_ratio(window: str) -> str:
    """Of the requests that were not called off, the share that failed, or was refused in words."""
    failed = _once(rate(FAILURE, window, NOT_CALLED_OFF))
    both = _with_refused(failed, rate(REFUSED, window))
    return f"{both} / ({failed} + {rate(SUCCESS, window)})"


def failures(window: str) -> str:
    failed = _once(increase(FAILURE, window, NOT_CALLED_OFF))
    return _with_refused(failed, increase(REFUSED, window))


def _with_refused(failed: str, refused: str) -> str:
    """Only models that mmctl generates count what they refuse."""
    return f"({failed} + {refused} or {failed})"


def _once(failed: str) -> str:
    """Failures by model without those that ensembles count again."""
    return f"({failed} unless on (model) {ENSEMBLES} or ({failed} and on (model) {ENSEMBLES}) / 2)"


def pending(where: Where = "") -> str:
    return f"sum by (model) ({PENDING}{braces(where)}) unless on (model) {ENSEMBLES}"


def hit_ratio(window: str, where: Where = "") -> str:
    hits, misses = (rate(metric, window, where) for metric in (CACHE_HITS, CACHE_MISSES))
    return f"{hits} / ({hits} + {misses})"


def by_own_node(metric: str, window: str, pipeline: str) -> str:
    """A rate of what the runner of a pipeline counts of its nodes."""
    return f'sum by (node) (rate({metric}{{pipeline="{pipeline}"}}[{window}]))'


def node_hit_ratio(window: str, pipeline: str) -> str:
    hits, misses = (by_own_node(m, window, pipeline) for m in (NODE_HITS, NODE_MISSES))
    return f"{hits} / ({hits} + {misses})"


def many_fallbacks(window: str) -> str:
    """The share of a pipeline's requests in which a policy stands in for a node, where large."""
    fallbacks = f"sum by (pipeline, node) (rate({FALLBACKS}[{window}]))"
    requests = f'label_replace({rate(SUCCESS, window)}, "pipeline", "$1", "model", "(.*)")'
    return f"{fallbacks} / on (pipeline) group_left () {requests} > {MANY_FALLBACKS}"


def node_cache_without_hits() -> str:
    hits, misses = (
        f"sum by (pipeline, node) (increase({metric}[1h]))" for metric in (NODE_HITS, NODE_MISSES)
    )
    return f"{misses} > 1000 and {hits} == 0"


def not_loaded() -> str:
    """For each model that should be served and is missing somewhere: how many servers have it."""
    loaded = f"count by (model) (count by (instance, model) ({ROWS}))"
    nowhere = f"sum by (model) ({MODEL}) * 0"
    return f"({loaded} or {nowhere}) < scalar({SERVERS_UP}) and on (model) {MODEL}"


def by_node(expression: str, pipeline: str) -> str:
    """What is known by model, said of the nodes of a pipeline; several may have one model."""
    return f'({expression}) * on (model) group_right () {NODE}{{pipeline="{pipeline}"}}'


def braces(where: Where) -> str:
    return f"{{{where}}}" if where else ""
