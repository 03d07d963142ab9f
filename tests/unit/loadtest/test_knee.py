"""Where more load stops paying."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmctl.loadtest.knee import knee


def test_the_knee_is_where_throughput_for_each_ms_is_greatest() -> None:
    assert knee([18.2, 29.4, 40.5, 42.3], [55.0, 67.9, 98.0, 189.0]) == 1


@pytest.mark.parametrize("servers", [2, 4, 8])
def test_of_a_closed_loop_without_variance_it_is_the_number_of_servers(servers: int) -> None:
    """Up to there a caller waits for nobody; from there on callers only wait for each other."""
    callers = [1, 2, 4, 8, 16, 32]
    throughputs = [min(n, servers) / 0.010 for n in callers]
    latencies = [10.0 * max(1, n / servers) for n in callers]
    found = knee(throughputs, latencies)
    assert found is not None
    assert callers[found] == servers


def test_of_a_queue_with_random_arrivals_it_is_at_half_of_its_capacity() -> None:
    """Kleinrock's result for M/M/1: latency is 1/(1 - load)."""
    loads = [n / 20 for n in range(1, 20)]
    found = knee(loads, [1 / (1 - load) for load in loads])
    assert found is not None
    assert loads[found] == 0.5


def test_it_is_not_claimed_where_it_was_not_reached() -> None:
    assert knee([10, 20, 40, 80], [10, 10, 10, 10.5]) is None


def test_it_is_not_claimed_of_few_levels_or_without_answers() -> None:
    assert knee([10, 5], [10, 50]) is None
    assert knee([], []) is None
    assert knee([0, 0, 0], [None, None, None]) is None


def test_a_level_without_an_answer_is_not_the_knee() -> None:
    assert knee([10, 20, 0, 0], [10.0, 11.0, None, None]) == 1


@given(
    st.lists(st.tuples(st.floats(0.1, 1e4), st.floats(0.1, 1e4)), min_size=3, max_size=12),
    st.floats(0.01, 100),
    st.floats(0.01, 100),
)
def test_units_do_not_matter(points: list[tuple[float, float]], x: float, y: float) -> None:
    throughputs, latencies = [p[0] for p in points], [p[1] for p in points]
    powers = sorted(t / ms for t, ms in points)
    if powers[-1] > powers[-2] * (1 + 1e-9):
        scaled = knee([x * t for t in throughputs], [y * ms for ms in latencies])
        assert scaled == knee(throughputs, latencies)
