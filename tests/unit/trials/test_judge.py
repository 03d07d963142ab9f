"""Replies against promises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mmctl.trials.judge import Tried, judge
from mmctl.trials.promises import Outcome, Promise
from mmctl.trials.rows import Verdict

DECLARED = Promise(Outcome.DECLARED, "", ("a",), (), 200)
NAMED = Promise(Outcome.ERROR, "a", beyond_ms=200)
UNNAMED = Promise(Outcome.ERROR, beyond_ms=200)
RIGHT = Promise(Outcome.RIGHT)
KEPT, BROKEN = Verdict.KEPT, Verdict.BROKEN


@pytest.mark.parametrize(
    ("promise", "tried", "got", "verdict"),
    [
        pytest.param(DECLARED, Tried(100, 200), "as declared", KEPT, id="answer"),
        pytest.param(DECLARED, Tried(201, 200), "late", BROKEN, id="answer, late"),
        pytest.param(
            DECLARED, Tried(100, 200, "model `p`: no"), "error: no", BROKEN, id="error for answer"
        ),
        pytest.param(
            DECLARED,
            Tried(1, 200, wrong={DECLARED.sources: "`y` differs"}),
            "`y` differs",
            BROKEN,
            id="wrong answer",
        ),
        pytest.param(
            NAMED,
            Tried(9, 200, "model `p`: node `a`: died\ntrace"),
            "error: node `a`: died",
            KEPT,
            id="error",
        ),
        pytest.param(NAMED, Tried(9, 200), "an answer", BROKEN, id="answer for error"),
        pytest.param(
            NAMED, Tried(9, 200, "node `b`"), "another error: node `b`", BROKEN, id="other node"
        ),
        pytest.param(UNNAMED, Tried(9, 200, "x"), "error: x", KEPT, id="error without a name"),
        pytest.param(NAMED, Tried(300, 200, "node `a`"), "late", BROKEN, id="error, late"),
        pytest.param(
            NAMED, Tried(30000, 200, hung=True), "nothing after 30 s", BROKEN, id="a hang"
        ),
        pytest.param(RIGHT, Tried(900, None), "the right answer", KEPT, id="no bound"),
    ],
)
def test_judge(promise: Promise, tried: Tried, got: str, verdict: Verdict) -> None:
    row = judge("a", "slow", promise, [tried])
    assert (row.got, row.verdict, row.ms) == (got, verdict, tried.ms)


LATE = Promise(Outcome.DECLARED, "", ("a", "b"), (), 200)
EITHER = replace(DECLARED, otherwise=LATE)


def test_of_two_ways_each_is_good() -> None:
    for wrong in ({DECLARED.sources: "1"}, {LATE.sources: "2"}):
        assert judge("a", "dead", EITHER, [Tried(1, 200, wrong=wrong)]).verdict is KEPT
    both = {DECLARED.sources: "1", LATE.sources: "2"}
    row = judge("a", "dead", EITHER, [Tried(1, 200, wrong=both)])
    assert (row.verdict, row.got) == (BROKEN, "1")


def test_one_request_that_breaks_a_promise_is_enough() -> None:
    row = judge("a", "slow", DECLARED, [Tried(1, 200), Tried(2, 200, "no"), Tried(3, 200)])
    assert (row.verdict, row.ms) == (BROKEN, 2)


def test_of_kept_promises_the_closest_is_shown() -> None:
    row = judge("a", "slow", DECLARED, [Tried(50, 60), Tried(100, 300)])
    assert (row.ms, row.bound_ms) == (50, 60)
