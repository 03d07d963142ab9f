"""Results of `mmctl bench` and `mmctl trace`, for tests of what is made of them."""

from __future__ import annotations

from typing import Any

EVIL = '</script><script>document.title="gone"</script>&<b>'


def latencies(ms: float) -> dict[str, float]:
    names = {"p50": 1.0, "p90": 1.5, "p95": 1.75, "p99": 2.25, "p999": 2.5, "mean": 1.1, "max": 3}
    return {name: ms * factor for name, factor in names.items()}


def bench_result(**changes: Any) -> dict[str, Any]:
    """Four levels of callers; the third is the knee: powers are 0.9, 1.6, 2.0 and 0.6."""
    levels = [
        {
            "callers": callers, "seconds": 3.0, "offered": 300, "completed": 298, "failed": 2,
            "throughput": throughput, "latency_ms": latencies(ms),
        }
        for callers, throughput, ms in ((1, 18.25, 20.0), (2, 35.5, 21.5), (4, 66.0, 31.0),
                                        (8, 70.125, 112.5))
    ]  # fmt: skip
    slices = [
        {
            "start_s": 0.5 * n, "seconds": 0.5, "offered": 10 + n, "completed": 10, "failed": n,
            "latency_ms": latencies(20.0 + n) if n != 2 else dict.fromkeys(latencies(1), None),
            "histogram": "",
        }
        for n in range(6)
    ]  # fmt: skip
    node = {
        "version": "1", "requests": 1300, "failed": 0, "executions": 700, "mean_batch": 1.857,
        "total_ms": 9.5, "queue_ms": 1.25, "input_ms": 0.125, "infer_ms": 7.0, "output_ms": 0.5,
        "cache_hits": 12, "batches": {"1": 350, "2": 100, "3": 250},
    }  # fmt: skip
    return {
        "schema": 1, "kind": "bench", "pipeline": "shop", "model_version": "3",
        "target": "embedded", "release": "2.51.0", "engine": "mmctl",
        "started": "2026-01-02T03:04:05+00:00", "command": "mmctl bench shop --html r.html",
        "profile": {"text": "concurrency:1..8", "arrivals": None, "seed": 1, "seconds": 12.0},
        "environment": {"cpu": "a CPU", "cores": 2, "memory_gib": 23.5, "system": "Linux",
                        "python": "3.11.7", "mmctl": "0.1.0", "gpus": []},
        "versions": {"shop": "3"}, "offered": 1200, "completed": 1192, "failed": 8,
        "errors": {"deadline": 5, EVIL: 3}, "throughput": 47.25, "latency_ms": latencies(40.0),
        "send_lag_ms": latencies(0.002), "checked": None, "wrong_answers": None, "wrong": {},
        "levels": levels, "slices": slices,
        "nodes": [{"model": "shop", **node, "batches": {}, "mean_batch": None},
                  {"model": "price$x$", **node}, {"model": EVIL, **node, "batches": {"1": 700}}],
        "cpu": {"server_seconds": 12.5, "client_seconds": 0.25}, "gpu": None, "partial": None,
        "quality": None,
        **changes,
    }  # fmt: skip


def trace_result(**changes: Any) -> dict[str, Any]:
    """`shop` calls `left` and `right`, which `join` waits for; `right` calls one more."""

    def span(model: str, start: float, end: float, *calls: Any, queue: float = 1) -> dict[str, Any]:
        compute = None if calls else [start + queue, end]
        return {
            "model": model, "version": "1" if model else "", "start_ms": start, "end_ms": end,
            "compute_ms": compute, "calls": list(calls),
        }  # fmt: skip

    def node(*path: str, share: float) -> dict[str, Any]:
        return {
            "path": list(path), "critical_ms": 40 * share, "critical_by_kind_ms": {},
            "share": share, "on_path": 1.0 if share else 0.0, "slack_ms": 0.0 if share else 7.5,
            "queue_ms": 1.0, "compute_ms": 8.0, "mean_batch": 1.5 if share > 0.1 else None,
            "halved_saves_ms": {"p50": share, "p95": 2 * share},
        }  # fmt: skip

    request = span(
        "", 0, 40.5,
        span("shop", 0.5, 40,
             span("shop__left", 1, 9), span("right", 1, 30, span(EVIL, 2, 29.5)),
             span("join", 30, 39.75, queue=3)),
    )  # fmt: skip
    return {
        "schema": 1, "kind": "trace", "pipeline": "shop", "target": "embedded", "requests": 100,
        "length_ms": {"p50": 40.5, "p95": 61.25},
        "nodes": [
            node("shop", "right", EVIL, share=0.7), node("shop", "join", share=0.25),
            node("shop", "right", share=0.03), node("shop", share=0.02),
            node("shop", "shop__left", share=0.0),
        ],
        "edges": {
            "shop": {"shop__left": [], "right": [], "join": ["right", "shop__left"]},
            "right": {EVIL: []},
        },
        "waterfalls": {"median": request, "p99": request},
        "false_dependencies": [
            {"reader": "join", "input": "text", "reads": "left.text", "instead": "text",
             "through": ["left"], "line": 3, "column": 4},
        ],
        "without_them_saves_ms": {"p50": 3.5, "p95": 4.5},
        **changes,
    }  # fmt: skip
