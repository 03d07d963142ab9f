"""When two answers are the same one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmctl.cache.envelope import Entry
from mmctl.cache.semantic.answers import by_all, by_output


def answer(**outputs: Any) -> Entry:
    arrays = {name: value if isinstance(value, np.ndarray) else np.array(value, object)
              for name, value in outputs.items()}  # fmt: skip
    return Entry(arrays, "m", "1", 0.0, 60.0)


def scores(*values: float) -> Any:
    return np.array([values], np.float32)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        pytest.param(["yes"], ["yes"], True, id="a label"),
        pytest.param(["yes"], ["no"], False, id="another"),
        pytest.param(scores(0.1, 0.9), scores(0.4, 0.6), True, id="the same is largest"),
        pytest.param(scores(0.1, 0.9), scores(0.6, 0.4), False, id="another is largest"),
        pytest.param(scores(0.1), scores(0.2), False, id="one number"),
        pytest.param(scores(0.1, 0.2), scores(0.1, 0.2, 0.0), False, id="another shape"),
        pytest.param(np.array([1]), np.array([1]), True, id="whole numbers"),
        pytest.param(np.array([1]), np.array([1], np.int32), False, id="another type"),
    ],
)
def test_by_one_output(a: Any, b: Any, same: bool) -> None:
    assert by_output("y")(answer(y=a, other=["1"]), answer(y=b, other=["2"])) is same


def test_numbers_within_reach() -> None:
    near = by_output("y", within=0.1)
    assert near(answer(y=scores(1.0, 2.0)), answer(y=scores(1.05, 1.95)))
    assert not near(answer(y=scores(1.0, 2.0)), answer(y=scores(1.2, 2.0)))
    assert not near(answer(y=scores(1.0)), answer(y=scores(np.nan)))


def test_an_answer_without_the_output_is_like_none() -> None:
    assert not by_output("y")(answer(z=["1"]), answer(z=["1"]))


def test_by_all_outputs() -> None:
    assert by_all(answer(a=["1"], b=["2"]), answer(a=["1"], b=["2"]))
    assert not by_all(answer(a=["1"], b=["2"]), answer(a=["1"], b=["3"]))
    assert not by_all(answer(a=["1"], b=["2"]), answer(a=["1"]))
