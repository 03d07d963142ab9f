"""Load profiles, and when they send."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmctl.errors import InputError
from mmctl.loadtest.schedule import (
    PROFILES,
    Arrivals,
    ClosedLoop,
    OpenLoop,
    Phase,
    Profile,
    Replay,
    parse_profile,
    send_times,
)

CONSTANT, POISSON = Arrivals.CONSTANT, Arrivals.POISSON


def parsed(text: str, seconds: float | None = None) -> Profile:
    return parse_profile(text, seconds, lambda _: (5.0, 5.5, 7.0))


@pytest.mark.parametrize(
    ("text", "seconds", "profile"),
    [
        ("baseline", None, ClosedLoop("baseline", (1,), 30)),
        ("concurrency:4", 5, ClosedLoop("concurrency:4", (4,), 5)),
        ("concurrency:1..8", None, ClosedLoop("concurrency:1..8", (1, 2, 4, 8), 10)),
        ("concurrency:1..6", None, ClosedLoop("concurrency:1..6", (1, 2, 4, 6), 10)),
        ("concurrency:1,3", None, ClosedLoop("concurrency:1,3", (1, 3), 10)),
        ("rate:50", 10, OpenLoop("rate:50", (Phase(10, 50, 50),))),
        ("ramp:1..100", 60, OpenLoop("ramp:1..100", (Phase(60, 1, 100),))),
        (
            "burst:100,500,100",
            30,
            OpenLoop(
                "burst:100,500,100", (Phase(10, 100, 100), Phase(10, 500, 500), Phase(10, 100, 100))
            ),
        ),
        ("soak:300", None, OpenLoop("soak:300", (Phase(72 * 3600, 300, 300),))),
        ("replay:times.txt", None, Replay("replay:times.txt", (0.0, 0.5, 2.0))),
    ],
)
def test_a_profile_is_written_in_one_word(
    text: str, seconds: float | None, profile: Profile
) -> None:
    assert parsed(text, seconds) == profile


def test_every_kind_of_profile_has_an_example_that_is_one() -> None:
    for kind, (example, _) in PROFILES.items():
        assert parsed(example).name.partition(":")[0] == kind


@pytest.mark.parametrize(
    "text",
    [
        "", "steady", "rate", "rate:", "rate:0", "rate:-1", "rate:nan", "rate:inf", "rate:1,2",
        "ramp:5", "ramp:1..", "ramp:1..2..3", "burst:5", "concurrency:0", "concurrency:8..1",
        "concurrency:1.5", "baseline:2", "replay:",
    ],
)  # fmt: skip
def test_what_is_no_profile_is_refused_with_all_that_are(text: str) -> None:
    with pytest.raises(InputError, match="is no load profile") as error:
        parsed(text, 1)
    assert "`ramp:1..100`" in str(error.value.hint)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_load_takes_some_time(seconds: float) -> None:
    with pytest.raises(InputError, match="cannot be offered"):
        parsed("rate:5", seconds)


def test_recorded_times_must_be_in_order() -> None:
    with pytest.raises(InputError, match=r"t\.txt:2: 1 comes after 2"):
        parse_profile("replay:t.txt", None, lambda _: (2.0, 1.0))


def test_a_constant_rate_sends_evenly() -> None:
    times = list(send_times(OpenLoop("", (Phase(2, 4, 4),)), CONSTANT, 0))
    assert times == pytest.approx([0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2])


def test_a_ramp_sends_ever_faster() -> None:
    times = list(send_times(OpenLoop("", (Phase(10, 1, 9),)), CONSTANT, 0))
    assert len(times) == 50
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert gaps == sorted(gaps, reverse=True)
    assert sum(time <= 5 for time in times) == 15  # 1 + 5 a second on average, over 5 s


def test_phases_follow_each_other_without_a_seam() -> None:
    one, two = OpenLoop("", (Phase(10, 3, 3),)), OpenLoop("", (Phase(4, 3, 3), Phase(6, 3, 3)))
    for arrivals in Arrivals:
        once, twice = (list(send_times(profile, arrivals, 7)) for profile in (one, two))
        assert once == pytest.approx(twice)


def test_poisson_arrivals_are_as_irregular_as_they_should_be() -> None:
    """The gaps of a Poisson process are as far from their mean as their mean is long."""
    times = list(send_times(OpenLoop("", (Phase(100, 200, 200),)), POISSON, 1))
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert len(times) == pytest.approx(20_000, abs=5 * 20_000**0.5)
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(1, abs=0.03)


def test_one_seed_gives_one_schedule() -> None:
    profile = OpenLoop("", (Phase(1, 50, 100),))
    first, same, other = (list(send_times(profile, POISSON, seed)) for seed in (3, 3, 4))
    assert first == same != other


def test_a_soak_is_not_made_in_advance() -> None:
    soak = parsed("soak:300")
    assert isinstance(soak, OpenLoop)
    assert len(list(itertools.islice(send_times(soak, POISSON, 0), 10))) == 10


@given(
    st.lists(st.tuples(st.floats(0.1, 50), st.floats(0.1, 300), st.floats(0.1, 300)), max_size=4),
    st.sampled_from(list(Arrivals)),
)
def test_times_are_in_order_and_within_the_profile(
    phases: list[tuple[float, float, float]], arrivals: Arrivals
) -> None:
    profile = OpenLoop("", tuple(Phase(*phase) for phase in phases))
    times = list(itertools.islice(send_times(profile, arrivals, 5), 3000))
    assert times == sorted(times)
    assert all(0 < time <= profile.seconds * (1 + 1e-9) for time in times)


@given(st.floats(0.1, 100), st.floats(0.1, 500), st.floats(0.1, 500), st.floats(0, 1))
def test_time_and_number_of_requests_belong_together(
    seconds: float, first: float, last: float, share: float
) -> None:
    phase = Phase(seconds, first, last)
    t = share * seconds
    assert phase.time_of(phase.expected(t)) == pytest.approx(t, abs=1e-4 * seconds)
