"""Findings in order, and hints that offer a right name."""

from __future__ import annotations

import pytest

from mmctl.diagnostics import Finding, Position, closest, in_order, nearest


def finding(line: int, code: str, message: str = "wrong") -> Finding:
    return Finding.at(Position("a", line), code, message)


def test_findings_come_once_and_in_order_of_place() -> None:
    first, second = finding(1, "C001", "z"), finding(1, "C001", "a")
    assert in_order([finding(2, "A001"), first, second, first]) == (
        first,
        second,
        finding(2, "A001"),
    )


def test_a_message_that_quotes_a_whole_file_is_cut() -> None:
    assert len(finding(1, "C001", "x" * 1_000_000).message) == 2000


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        pytest.param("ranger", ["ranker", "scorer"], "did you mean `ranker`?", id="a near one"),
        pytest.param("zzz", ["b", "a"], "known here: `a`, `b`", id="the few there are"),
        pytest.param("zzz", [], None, id="none"),
    ],
)
def test_a_hint_offers_a_right_name(word: str, known: list[str], hint: str | None) -> None:
    assert nearest(word, known) == hint


def test_a_list_that_is_cut_says_so() -> None:
    told = nearest("zzz", [f"n{number:02}" for number in range(13)])
    assert told is not None
    assert told.endswith("`n11`, ...")


def test_of_many_names_the_one_that_begins_alike_is_found() -> None:
    known = [f"model_{number:04}" for number in range(1000)]
    assert closest("model_0500x", known, 0.6) == "model_0500"
