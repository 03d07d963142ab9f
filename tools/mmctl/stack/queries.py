"""PromQL that dashboards and rules share. Pure.

Triton's counters are per model, version, and GPU where there is one; an ensemble is always called
version 1. So everything here is summed over versions, GPUs and servers, by model. Durations are in
microseconds, each request counted with the whole time of its batch. An ensemble has no queue, so
its count of waiting requests says nothing, and it counts every failed request twice.

Triton 24.10 takes an error that a Python model answers with for an answer: what a pipeline in the
bls or fused form refuses is among its successes. An exception, a dead process, a request that
waited too long and anything that fails in an ensemble are failures.

Two metrics come from the rules, not from Triton, and are always 1: `mmctl_model` for each model
that should be served (labels kind, entry), `mmctl_node` for each node of a pipeline (labels
pipeline, node, model).
"""

from __future__ import annotations

SUCCESS = "nv_inference_request_success"
FAILURE = "nv_inference_request_failure"
ROWS = "nv_inference_count"
"""Also the sign that a model is loaded: it is there, at 0, from the load to the unload."""
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
    """Of the requests that were not called off, the share that failed."""
    failed = _once(rate(FAILURE, window, NOT_CALLED_OFF))
    return f"{failed} / ({failed} + {rate(SUCCESS, window)})"


def failures(window: str) -> str:
    return _once(increase(FAILURE, window, NOT_CALLED_OFF))


def _once(failed: str) -> str:
    """Failures by model without those that ensembles count again."""
    return f"({failed} unless on (model) {ENSEMBLES} or ({failed} and on (model) {ENSEMBLES}) / 2)"


def pending(where: Where = "") -> str:
    return f"sum by (model) ({PENDING}{braces(where)}) unless on (model) {ENSEMBLES}"


def hit_ratio(window: str, where: Where = "") -> str:
    hits, misses = (rate(metric, window, where) for metric in (CACHE_HITS, CACHE_MISSES))
    return f"{hits} / ({hits} + {misses})"


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
