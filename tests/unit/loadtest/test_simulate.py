"""A pipeline under load, simulated."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmctl.loadtest.simulate import Cost, Node, Setting, capacity, simulate

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
