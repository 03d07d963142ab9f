"""A pipeline under load, simulated."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmctl.loadtest.simulate import Cost, Node, Setting, capacity, keeps, simulate

ONE = Setting()


def test_a_request_alone_takes_its_longest_way_through_the_pipeline() -> None:
    nodes = [
        Node("d", "d", ("b", "c")),
        Node("b", "b", ("a",)),
        Node("c", "c", ("a",)),
        Node("a", "a"),
    ]
    costs = {"a": Cost(1), "b": Cost(2), "c": Cost(5), "d": Cost(10)}
    assert simulate(nodes, costs, dict.fromkeys("abcd", ONE), [3.0], overhead=0.5) == [16.5]


def test_who_comes_while_the_instance_is_busy_waits() -> None:
    nodes, costs = [Node("a", "a")], {"a": Cost(10)}
    assert simulate(nodes, costs, {"a": ONE}, [0, 1, 2, 40]) == [10, 19, 28, 10]
    assert simulate(nodes, costs, {"a": Setting(instances=2)}, [0, 1, 2]) == [10, 10, 18]


def test_what_waits_is_served_in_one_batch() -> None:
    """The first is alone; the other three have come by then."""
    took = simulate([Node("a", "a")], {"a": Cost(10, 1)}, {"a": Setting(8)}, [0, 1, 2, 3])
    assert took == [11, 11 + 13 - 1, 11 + 13 - 2, 11 + 13 - 3]


def test_a_batch_is_not_larger_than_it_may_be() -> None:
    took = simulate([Node("a", "a")], {"a": Cost(10)}, {"a": Setting(2)}, [0, 1, 2, 3])
    assert took == [10, 19, 18, 27]


def test_a_batch_that_is_not_full_waits_for_as_long_as_it_may() -> None:
    setting = {"a": Setting(max_batch=3, delay=5)}
    assert simulate([Node("a", "a")], {"a": Cost(10)}, setting, [0, 2]) == [15, 13]
    assert simulate([Node("a", "a")], {"a": Cost(10)}, setting, [0, 1, 2, 9]) == [12, 11, 10, 15]


def test_nodes_of_one_model_share_its_instances() -> None:
    nodes = [Node("one", "m"), Node("two", "m")]
    assert simulate(nodes, {"m": Cost(10)}, {"m": ONE}, [0]) == [20]
    assert simulate(nodes, {"m": Cost(10)}, {"m": Setting(max_batch=2, delay=1)}, [0]) == [10]


def test_a_call_may_have_several_rows() -> None:
    """Three of two rows each: a batch of four takes two of them, and the third comes after."""
    nodes = [Node("a", "a", rows=2)]
    assert simulate(nodes, {"a": Cost(10, 1)}, {"a": Setting(4)}, [0, 1, 2]) == [12, 25, 24]
    assert simulate(nodes, {"a": Cost(10, 1)}, {"a": Setting(1)}, [0]) == [12]


def test_a_branch_is_taken_by_a_share_of_the_requests() -> None:
    nodes = [Node("a", "a", share=0.25), Node("b", "b", ("a",))]
    settings = dict.fromkeys("ab", Setting())
    times = [n * 100.0 for n in range(4000)]
    took = simulate(nodes, {"a": Cost(10), "b": Cost(1)}, settings, times)
    assert set(took) == {1, 11}
    assert took.count(11) == pytest.approx(1000, abs=100)


def test_a_node_asks_at_most_so_many_times_at_once() -> None:
    many = {"a": Setting(instances=8)}
    nodes = [Node("a", "a", in_flight=2)]
    assert simulate(nodes, {"a": Cost(10)}, many, [0, 0, 0, 0, 0]) == [10, 10, 20, 20, 30]


@pytest.mark.parametrize("rate", [20.0, 60.0, 90.0, 200.0])
def test_a_promise_is_kept_when_the_quantile_says_so(rate: float) -> None:
    """The short look gives what the whole simulation gives."""
    rng, now, times = random.Random(5), 0.0, []
    for _ in range(400):
        now += rng.expovariate(rate)
        times.append(now)
    nodes, costs, settings = [Node("a", "a")], {"a": Cost(0.01)}, {"a": ONE}
    took = sorted(simulate(nodes, costs, settings, times))
    for percent, rank in ((50.0, 199), (95.0, 379), (99.0, 395)):
        for seconds in (0.011, 0.03, 0.1):
            kept = keeps(nodes, costs, settings, times, seconds, percent)
            assert kept == (took[rank] <= seconds)


def test_queues_are_as_long_as_theory_says() -> None:
    """M/D/1: Poisson arrivals, constant service s, load r: the mean wait is r·s / (2·(1 - r))
    (Pollaczek and Khinchine)."""
    rng, service, load = random.Random(3), 0.01, 0.7
    times, now = [], 0.0
    for _ in range(60_000):
        now += rng.expovariate(load / service)
        times.append(now)
    took = simulate([Node("a", "a")], {"a": Cost(service)}, {"a": ONE}, times)
    waited = statistics.mean(took) - service
    assert waited == pytest.approx(load * service / (2 * (1 - load)), rel=0.05)


def test_capacity_is_that_of_the_busiest_model() -> None:
    nodes = [Node("a", "a"), Node("b", "b", ("a",)), Node("c", "b", ("a",))]
    costs = {"a": Cost(0.1), "b": Cost(0.1, 0.05)}
    settings = {"a": Setting(instances=2), "b": Setting(max_batch=4)}
    assert capacity(nodes, costs, settings) == pytest.approx(4 / 0.3 / 2)
    assert capacity([], {}, {}) == float("inf")


@given(
    st.lists(st.floats(0, 0.05), min_size=1, max_size=60),
    st.integers(1, 5),
    st.integers(1, 3),
    st.floats(0, 0.02),
)
def test_every_request_is_answered_and_none_faster_than_its_work(
    gaps: list[float], max_batch: int, instances: int, delay: float
) -> None:
    times = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    nodes = [Node("a", "a"), Node("b", "b", ("a",)), Node("c", "b", ("a",))]
    costs = {"a": Cost(0.01, 0.001), "b": Cost(0.002)}
    setting = Setting(max_batch, instances, delay)
    took = simulate(nodes, costs, {"a": setting, "b": setting}, times)
    assert len(took) == len(times)
    assert min(took) >= 0.011 + 0.002 - 1e-9
