"""What came of each request, counted while a load runs."""

from __future__ import annotations

import json
import random
import time

import pytest

from mmctl.loadtest.record import Histogram, Recorder, slice_of


def histogram(*ms: float) -> Histogram:
    made = Histogram()
    for each in ms:
        made.add(each / 1000)
    return made


def test_quantiles_are_latencies_that_happened_to_three_digits() -> None:
    made = histogram(*range(1, 101))
    assert made.told() == pytest.approx(
        {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "p999": 100, "mean": 50.5, "max": 100},
        rel=1e-3,
    )


def test_without_any_there_is_no_number() -> None:
    assert set(histogram().told().values()) == {None}


@pytest.mark.parametrize(("seconds", "ms"), [(0, 0.001), (-1, 0.001), (1e9, 3_600_000)])
def test_what_is_out_of_range_is_the_nearest_that_is_not(seconds: float, ms: float) -> None:
    made = Histogram()
    made.add(seconds)
    assert made.max_ms == pytest.approx(ms, rel=1e-3)


def test_counts_are_what_quantiles_are_taken_from() -> None:
    made = histogram(1, 2, 2, 40)
    assert [count for _, count in made.counts()] == [1, 2, 1]
    assert made.counts()[-1][0] == made.quantile_ms(100)


def test_a_histogram_survives_being_written() -> None:
    made = histogram(1, 2, 2, 40)
    assert Histogram(made.encoded()).counts() == made.counts()


def test_latency_counts_from_when_a_request_was_due() -> None:
    """The machine was busy for a second, then it sent: a user has waited for that second too."""
    recorder = Recorder(10)
    recorder.sent(1.0, 2.0)
    recorder.answered(1.0, 2.5)
    assert recorder.whole.latency.max_ms == pytest.approx(1500, rel=1e-3)
    assert recorder.lag.max_ms == pytest.approx(1000, rel=1e-3)


def test_a_request_belongs_to_the_slice_in_which_it_was_due() -> None:
    recorder = Recorder(10, slices=5)
    for due in (0.0, 1.9, 2.0, 9.99, 10.0):
        recorder.sent(due, due)
        recorder.answered(due, due + 30)
    recorder.failed(3.0, "timeout")
    assert [part.completed for part in recorder.slices] == [2, 1, 0, 0, 2]
    assert [part.failed for part in recorder.slices] == [0, 1, 0, 0, 0]
    assert recorder.whole.errors == {"timeout": 1}


@pytest.mark.parametrize(("seconds", "slices"), [(0.2, 1), (5, 10), (30, 60), (72 * 3600, 60)])
def test_a_slice_is_half_a_second_at_least(seconds: float, slices: int) -> None:
    recorder = Recorder(seconds)
    assert len(recorder.slices) == slices
    assert sum(part.seconds for part in recorder.slices) == pytest.approx(seconds)


def test_slices_survive_being_written() -> None:
    recorder = Recorder(10, slices=2)
    recorder.sent(1, 1)
    recorder.answered(1, 1.25)
    recorder.failed(2, "x")
    for part in recorder.slices:
        read = slice_of(json.loads(json.dumps(part.told())))
        assert (read.told(), read.failed) == (part.told(), part.failed)


def test_quantiles_are_those_of_the_library_and_come_at_once() -> None:
    """It counts them in Python, 20,000 steps each: a live line a second would delay requests."""
    rng = random.Random(0)
    whole = Histogram()
    for _ in range(2000):
        whole.add(rng.expovariate(1 / 0.02))
    theirs = whole._counts
    for percent in (10.0, 50.0, 90.0, 99.0, 99.9, 100.0):
        assert whole.quantile_ms(percent) == theirs.get_value_at_percentile(percent) / 1000
    assert whole.mean_ms == pytest.approx(theirs.get_mean_value() / 1000, rel=0.001)
    began = time.process_time()
    for _ in range(20):
        whole.told()
    assert time.process_time() - began < 1
