"""When two answers are the same."""

from __future__ import annotations

import numpy as np
import pytest

from mmctl.trials.answers import find_difference

ONE = np.array([[0.5]], np.float32)


def texts(*values: str) -> np.ndarray:
    return np.array([[value] for value in values], object)


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        pytest.param(np.array([[1.0], [2.0]]), [np.array([[1.0]]), np.array([[2.0]])], id="rows"),
        pytest.param(ONE + 1e-4, [ONE], id="the last digits of a float"),
        pytest.param(np.array([[np.nan]]), [np.array([[np.nan]])], id="NaN"),
        pytest.param(texts("a", "b"), [texts("a"), texts("b")], id="texts"),
        pytest.param(
            texts('[{"score": 0.9991}]'), [texts('[{"score": 0.9992}]')], id="numbers in JSON"
        ),
    ],
)
def test_the_same(given: np.ndarray, rows: list[np.ndarray]) -> None:
    assert find_difference({"y": given}, [{"y": row} for row in rows], ["y"], batched=True) is None


@pytest.mark.parametrize(
    ("given", "rows", "difference"),
    [
        pytest.param(
            texts("b", "a"),
            [texts("a"), texts("b")],
            "`y`[0,0]: `a` expected, `b` came",
            id="rows that are swapped",
        ),
        pytest.param(
            texts("a"),
            [texts("a"), texts("b")],
            "`y`: shape [2, 1] expected, [1, 1] came",
            id="short",
        ),
        pytest.param(ONE, [ONE + 0.1], "`y`[0,0]: `0.6` expected, `0.5` came", id="another number"),
        pytest.param(
            np.array([[True]]),
            [np.array([[False]])],
            "`y`[0,0]: `False` expected, `True` came",
            id="flags",
        ),
        pytest.param(
            texts('{"a": 1}'),
            [texts('{"a": 2}')],
            '`y`[0,0]: `{"a": 2}` expected, `{"a": 1}` came',
            id="JSON",
        ),
    ],
)
def test_different(given: np.ndarray, rows: list[np.ndarray], difference: str) -> None:
    wanted = [{"y": row} for row in rows]
    assert find_difference({"y": given}, wanted, ["y"], batched=True) == difference


def test_an_output_that_is_missing_is_a_difference() -> None:
    assert find_difference({}, [{"y": ONE}], ["y"], batched=True) == "no output `y`"


def test_without_a_batch_axis_an_answer_is_one_row() -> None:
    assert find_difference({"y": ONE[0]}, [{"y": ONE[0]}], ["y"], batched=False) is None
