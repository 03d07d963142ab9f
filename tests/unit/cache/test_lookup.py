"""Which errors are given again, and how long answers live."""

from __future__ import annotations

import pytest
from cache_traces import key_of
from clocks import Clock

from mmctl.cache.effects import StoreDown
from mmctl.cache.flight import is_final
from mmctl.cache.lookup import JITTER, MAX_ERRORS, Errors, jittered
from mmctl.errors import InferenceError, InputError, LateError, WorldError


@pytest.mark.parametrize(
    ("error", "final"),
    [
        pytest.param(InputError("shape"), True, id="the request is wrong"),
        pytest.param(InferenceError("shape", final=True), True, id="Triton says so"),
        pytest.param(InferenceError("internal"), False, id="Triton failed"),
        pytest.param(WorldError("nobody there"), False, id="nobody there"),
        pytest.param(LateError("late"), False, id="late"),
        pytest.param(StoreDown("down"), False, id="the store"),
        pytest.param(ValueError("bug"), False, id="a bug"),
    ],
)
def test_which_errors_every_equal_request_would_get(error: Exception, final: bool) -> None:
    assert is_final(error) == final


def test_an_error_is_given_as_a_copy_for_as_long_as_is_said() -> None:
    clock = Clock()
    errors = Errors(clock)
    error = InferenceError("shape", hint="look", final=True)
    errors.put(key_of(1), error, 2.0)
    clock.now += 1.9
    copied = errors.get(key_of(1))
    assert isinstance(copied, InferenceError)
    assert copied is not error
    assert (copied.message, copied.hint, copied.final) == ("shape", "look", True)
    clock.now += 0.2
    assert errors.get(key_of(1)) is None


def test_an_error_that_lasts_no_time_is_not_kept() -> None:
    errors = Errors(Clock())
    errors.put(key_of(1), InputError("x"), 0.0)
    assert errors.get(key_of(1)) is None


def test_the_number_of_errors_is_bounded() -> None:
    errors = Errors(Clock())
    for number in range(MAX_ERRORS + 10):
        errors.put(key_of(number), InputError("x"), 5.0)
    kept = [errors.get(key_of(number)) is not None for number in range(MAX_ERRORS + 10)]
    assert kept == [False] * 10 + [True] * MAX_ERRORS


def test_lives_are_spread_evenly_around_what_is_set_and_the_same_everywhere() -> None:
    lives = [jittered(100.0, key_of(number)) for number in range(2000)]
    assert 100 * (1 - JITTER) <= min(lives) < 91
    assert 109 < max(lives) <= 100 * (1 + JITTER)
    assert 99 < sum(lives) / len(lives) < 101
    assert jittered(100.0, key_of(5)) == lives[5]
