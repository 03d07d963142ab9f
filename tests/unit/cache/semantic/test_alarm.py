"""The alarm: seldom false, however often one looks, and soon when it is right."""

from __future__ import annotations

import json
import random

from mmctl.cache.semantic.alarm import Alarm


def test_it_is_seldom_false_however_long_one_looks() -> None:
    draw = random.Random(0).random
    false = 0
    for _ in range(200):
        alarm = Alarm(0.02)
        false += any(alarm.add(draw() < 0.02) for _ in range(500))
    assert false <= 16  # 5 % of 200 are 10; more than 16 have a chance of 2 %


def test_it_rings_when_the_promise_is_broken() -> None:
    draw = random.Random(0).random
    alarm = Alarm(0.02)
    assert any(alarm.add(draw() < 0.1) for _ in range(300))


def test_a_long_good_time_does_not_make_it_deaf() -> None:
    draw = random.Random(0).random
    alarm = Alarm(0.02)
    assert not any(alarm.add(draw() < 0.002) for _ in range(2000))
    assert any(alarm.add(draw() < 0.1) for _ in range(400))


def test_its_capital_is_not_expected_to_grow_while_the_promise_holds() -> None:
    alarm = Alarm(0.02)
    for wrong in (False, True, False):
        saved = alarm.saved()
        after = []
        for outcome in (False, True):
            other = Alarm.restored(0.02, json.loads(json.dumps(saved)))
            other.add(outcome)
            after.append(other.capital)
        assert 0.98 * after[0] + 0.02 * after[1] <= alarm.capital + 1e-9
        alarm.add(wrong)


def test_it_counts() -> None:
    alarm = Alarm(0.5)
    alarm.add(True)
    alarm.add(False)
    assert (alarm.probes, alarm.errors) == (2, 1)
