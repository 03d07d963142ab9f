"""What is counted, added up, and shown to Prometheus."""

from __future__ import annotations

import threading

import pytest

from mmctl.cache.statistics import COUNTS, Statistics, merge, percentile, prometheus


def test_counts_are_kept_by_model_and_level() -> None:
    statistics = Statistics()
    statistics.count("m", "exact", lookups=1)
    statistics.count("m", "exact", lookups=1, hits=1, saved_ms=2.5)
    statistics.count("n", "semantic", lookups=1)
    found = statistics.snapshot()
    assert found["m"]["exact"] == {
        **dict.fromkeys(COUNTS, 0),
        "lookups": 2,
        "hits": 1,
        "saved_ms": 2.5,
    }
    assert found["n"]["semantic"]["lookups"] == 1


def test_only_known_counts_are_taken() -> None:
    with pytest.raises(KeyError):
        Statistics().count("m", "exact", hit=1)


def test_times_become_percentiles_and_a_mean() -> None:
    statistics = Statistics()
    for ms in range(1, 101):
        statistics.took("m", "semantic", "embed", ms)
    found = statistics.snapshot()["m"]["semantic"]
    assert (found["embed_p50_ms"], found["embed_p99_ms"]) == (51, 100)
    assert 70 < statistics.mean_ms("m", "semantic", "embed") < 100
    assert statistics.mean_ms("m", "semantic", "search") == 0


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1.0), (0.5, 3.0), (0.99, 4.0), (1.0, 4.0)], ids=str
)
def test_a_percentile_is_one_of_the_values(share: float, value: float) -> None:
    assert percentile([4.0, 2.0, 1.0, 3.0], share) == value


def test_processes_are_added_up() -> None:
    one, other = Statistics(), Statistics()
    one.count("m", "exact", hits=2)
    other.count("m", "exact", hits=3)
    other.count("n", "none", filled=1)
    gauges = {"m": {"exact": {"bytes": 10.0, "error_upper_95": 0.01}}}
    more = {"m": {"exact": {"bytes": 5.0, "error_upper_95": 0.02}}}
    both = merge([one.snapshot(gauges), other.snapshot(more)])
    assert both["m"]["exact"]["hits"] == 5
    assert both["m"]["exact"]["bytes"] == 15
    assert both["m"]["exact"]["error_upper_95"] == 0.02
    assert both["n"]["none"]["filled"] == 1
    assert merge([]) == {}


def test_prometheus_reads_every_count_with_its_meaning() -> None:
    statistics = Statistics()
    statistics.count('a "b"', "exact", hits=2)
    statistics.took('a "b"', "none", "compute", 1.5)
    text = prometheus(statistics.snapshot())
    assert "# TYPE mmctl_cache_hits_total counter\n" in text
    assert 'mmctl_cache_hits_total{model="a \\"b\\"",level="exact"} 2\n' in text
    assert "# TYPE mmctl_cache_compute_p50_ms gauge\n" in text
    assert 'mmctl_cache_compute_p50_ms{model="a \\"b\\"",level="none"} 1.5\n' in text
    assert text.count("# HELP mmctl_cache_hits_total ") == 1
    assert prometheus({}) == ""


def test_no_count_is_lost_between_threads() -> None:
    statistics = Statistics()

    def work() -> None:
        for _ in range(2000):
            statistics.count("m", "exact", hits=1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statistics.snapshot()["m"]["exact"]["hits"] == 8000
